"""The console through nginx with a name, a path, TLS and Basic credentials, in a real browser."""

from __future__ import annotations

import base64
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.apache import free_port
from support.browser import TOKEN, Page
from support.daemon import running_daemon
from support.tls_clients import FILES
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client
from zoolet.testing.state.waiting import wait

pytest.importorskip("h11")
pytest.importorskip("selenium.webdriver")
pytestmark = pytest.mark.slow
PROXY_NAME: Final = "console.example.org"
NGINX_CONFIGURATION: Final = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl; server_name {name};
    ssl_certificate {files}/server.pem; ssl_certificate_key {files}/server-key.pem;
    location /zk/ {{
      auth_basic "zookeeper"; auth_basic_user_file {folder}/users;
      proxy_pass http://127.0.0.1:{admin}/;
      proxy_set_header Host $http_host;
    }}
  }}
}}
"""


def is_listening(port: int) -> bool:
    """Return whether something listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def nginx(admin: int, folder: Path) -> Iterator[int]:
    """Run nginx in front of an admin port. Yield the port of nginx."""
    if (program := shutil.which("nginx", path="/usr/sbin:/usr/bin")) is None:
        pytest.skip("no nginx (apt-get install nginx-light)")
    (folder / "users").write_text("ann:{PLAIN}secret\n")
    file, port = folder / "nginx.conf", free_port()
    file.write_text(NGINX_CONFIGURATION.format(folder=folder, port=port, name=PROXY_NAME, files=FILES, admin=admin))
    with subprocess.Popen([program, "-c", str(file), "-p", str(folder)]) as process:
        try:
            wait(lambda: is_listening(port), DEADLINE_S, lambda: TimeoutError("nginx does not listen"))
            yield port
        finally:
            process.terminate()


def first_event(port: int) -> str:
    """Return the first line of the stream of events."""
    context = ssl._create_unverified_context()
    basic = base64.b64encode(b"ann:secret").decode()
    headers = {"Host": f"{PROXY_NAME}:{port}", "Authorization": f"Basic {basic}"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}/zk/console/api/events", headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S, context=context) as response:
        return response.readline().decode()


def test_console_works_through_nginx(driver: Any, tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text(TOKEN)
    admin = free_port()
    options = ("--admin-port", str(admin), "--admin-token-file", str(token), f"-Dzoolet.adminHosts={PROXY_NAME}")
    with running_daemon("--port", "0", *options) as daemon, nginx(admin, tmp_path) as port:
        with Client(f"127.0.0.1:{daemon.port()}") as zk:
            zk.create("/through", b"before")
            page = Page(driver, f"https://{PROXY_NAME}:{port}/zk/")
            driver.get(f"https://ann:secret@{PROXY_NAME}:{port}/zk/")
            page.shows("✓ live", "✓ Serving")
            page.open("tree/%2Fthrough")
            page.shows("before")
            page.click("Edit…")
            page.give_token()
            page.find("textarea").send_keys(" and after")
            page.click("Save…")
            page.click("Set the data")
            page.until(lambda: zk.get("/through")[0] == b"before and after")
            page.shows("before and after", "✓ live")
            assert first_event(port).startswith("data: {")
            driver.get("about:blank")

"""Fixtures for tests in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from support.apache import free_port, skip_unless_required
from support.browser import TOKEN, Page
from support.daemon import RunningDaemon, running_daemon

from zoolet.client.blocking import Client

PROXY = ("--host-resolver-rules=MAP console.example.org 127.0.0.1", "--ignore-certificate-errors")
"""Options for pages of a reverse proxy on this machine, whose name no server knows."""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser."""
    browser, control = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or control is None:
        skip_unless_required("no Chromium (apt-get install chromium chromium-driver)")
        return
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1000", *PROXY):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Selenium's default is a port that the system may give to a client before chromedriver listens on it.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(control, port=free_port()))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """The port and the console URL of a daemon with a data directory."""
    folder = tmp_path_factory.mktemp("console")
    file = folder / "token"
    file.write_text(TOKEN)
    options = ("--admin-port", "0", "--admin-token-file", str(file), "--data-dir", str(folder / "data"))
    with running_daemon("--port", "0", *options, "-D4lw.commands.whitelist=*") as process:
        yield process.port(), _admin(process)


def _admin(process: RunningDaemon) -> str:
    line = process.read_line(1)
    assert line.startswith("zoolet admin on http://"), line
    return line.rpartition(" ")[2]


@pytest.fixture
def page(driver: Any, daemon: tuple[int, str]) -> Iterator[Page]:
    """The console of the daemon, without a token; no test may leave an error in the browser's console."""
    driver.get("about:blank")
    driver.get_log("browser")
    page = Page(driver, daemon[1])
    driver.get(page.url)
    driver.execute_script("sessionStorage.clear()")
    driver.get("about:blank")
    yield page
    assert page.errors() == []


@pytest.fixture
def zk(daemon: tuple[int, str]) -> Iterator[Any]:
    """A client of the daemon."""
    with Client(f"127.0.0.1:{daemon[0]}") as client:
        yield client

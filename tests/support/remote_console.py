"""``zoolet console`` in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.daemon import RunningDaemon
from support.waiting import DEADLINE_S


class RemoteConsole:
    """A console in a separate process."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def get(self, name: str) -> Any:
        """Request an endpoint of the API. Return its decoded answer."""
        with urllib.request.urlopen(f"{self.url}console/api/{name}", timeout=DEADLINE_S) as response:
            text = response.read()
        lines = text.splitlines()
        return json.loads(text) if len(lines) == 1 else [json.loads(line) for line in lines]

    def change(self, action: str, **arguments: object) -> Any:
        """Send a request that changes data, with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        body = json.dumps(arguments).encode()
        request = urllib.request.Request(f"{self.url}console/api/change/{action}", body, headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return json.loads(response.read())

    def until(self, name: str, wanted: Any) -> Any:
        """Repeat a request until its answer meets a condition."""
        deadline = time.monotonic() + DEADLINE_S
        while not wanted(answer := self.get(name)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        return answer


@contextmanager
def run_console(hosts: str, *options: str) -> Iterator[RemoteConsole]:
    """Run ``zoolet console`` for the block, and yield the console."""
    command = [sys.executable, "-m", "zoolet", "console", hosts, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        lines = RunningDaemon(process)
        try:
            url = lines.read_line(1).removeprefix("zoolet console on ")
            yield RemoteConsole(url, lines.read_line(1).removeprefix("zoolet console token "))
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)

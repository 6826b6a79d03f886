"""The control API of a server that was made with ``admin=True``."""

from __future__ import annotations

from zoolet.server.testing.control.commands import control_of
from zoolet.server.testing.control.http import ControlServer
from zoolet.server.testing.endpoint import Endpoint


def control_server(endpoint: Endpoint, host: str, port: int = 0) -> ControlServer:
    """Return the control API for a server or proxy, on an address and a port.

    Raises:
        ModuleNotFoundError: h11 is not installed.
    """
    return ControlServer(control_of(endpoint), port, host)

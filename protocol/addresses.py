"""Functions for addresses of the form ``host:port``, with brackets around IPv6 addresses."""

from __future__ import annotations

import re
from typing import Final

_SERVER_PATTERN: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]]+)):(\d{1,5})")


def host_and_port(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def invalid_server_error(text: str, connect_string: str) -> ValueError:
    """Return the ValueError for *text*, an invalid address in a connect string."""
    place = f" in {connect_string!r}" if connect_string != text else ""
    return ValueError(f"server must be host:port or [IPv6]:port, with a port from 1 to 65535, not {text!r}{place}")


def parse_server_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Parse a list of addresses such as ``host:port,[IPv6]:port``. Return the hosts and ports.

    Raises:
        ValueError: An address has a different form, or its port is not from 1 to 65535.
    """
    addresses = []
    for server in text.split(","):
        match = _SERVER_PATTERN.fullmatch(server.strip())
        if match is None or not 1 <= int(match[3]) <= 65535:
            raise invalid_server_error(server.strip(), text)
        addresses.append((match[1] or match[2], int(match[3])))
    return tuple(addresses)

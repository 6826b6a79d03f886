"""The connect string: ``host:port,host:port/chroot``, or ``unix:/path/of/a/socket``.

Everything from the first slash on is the chroot. The port is 2181 where none is given; an IPv6 address stands in
brackets; blanks and empty parts are passed over. A unix socket stands alone: it is one server, without a chroot.

Source: ConnectStringParser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from zoolet.protocol import paths

PORT: Final = 2181
UNIX: Final = "unix:"
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]\s]+))(?::(?P<port>\d*))?")


class Address(NamedTuple):
    """Where a server listens.

    Args:
        host: An address or a host name, or ``unix:`` and the path of a socket.
        port: The port; 0 for a path.
    """

    host: str
    port: int

    @property
    def path(self) -> str:
        """The path of a unix socket; empty for a host."""
        return self.host.removeprefix(UNIX) if self.host.startswith(UNIX) else ""

    def __str__(self) -> str:
        if self.path:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hosts:
    """The servers and the chroot of a connect string.

    Args:
        addresses: The servers, at least one.
        chroot: What stands before every path; empty for nothing.
    """

    addresses: tuple[Address, ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> Hosts:
        """Read a connect string.

        Raises:
            TypeError: It is not a string.
            ValueError: It names no server, an address is invalid, or the chroot is not a valid path.
        """
        if not isinstance(text, str):
            raise TypeError(f"hosts must be a string like 'host:2181,other:2181/chroot', not {text!r}")
        if text.startswith(f"{UNIX}/"):
            return cls((Address(text.rstrip(), 0),))
        servers, slash, rest = text.partition("/")
        addresses = tuple(_address(part.strip(), text) for part in servers.split(",") if part.strip())
        if not addresses:
            raise ValueError(f"hosts {text!r} name no server; they look like 'host:2181,other:2181/chroot'")
        chroot = (slash + rest).rstrip()
        if chroot in ("", "/"):
            return cls(addresses)
        if (why := paths.path_error(chroot)) is not None:
            raise ValueError(f"hosts {text!r}: bad chroot {chroot!r}: {why}")
        return cls(addresses, chroot)

    def in_turn(self, rng: Random) -> Iterator[Address]:
        """Yield the servers in an order drawn once, round and round without end."""
        order = list(self.addresses)
        rng.shuffle(order)
        while True:
            yield from order


def _address(text: str, connect_string: str) -> Address:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"hosts {connect_string!r}: {text!r} is not an address; it must be host:port or [IPv6]:port")
    port = int(match["port"]) if match["port"] else PORT
    if not 0 < port < 65536:
        raise ValueError(f"hosts {connect_string!r}: {port} is not a port; it must be from 1 to 65535")
    return Address(match["six"] or match["host"], port)

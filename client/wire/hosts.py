"""The connect string: ``host:port,host:port/chroot``, or ``unix:/path/of/a/socket``.

Everything from the first slash on is the chroot. The default port is 2181. An IPv6 address is written in brackets.
Blanks and empty parts are ignored. A unix socket cannot be combined with other servers or with a chroot.

Source: ConnectStringParser.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from ...protocol import paths
from ...protocol.addresses import host_and_port, invalid_server_error

DEFAULT_PORT: Final = 2181
UNIX_PREFIX: Final = "unix:"
_CREDENTIALS_PATTERN: Final = re.compile(r"[@\ufe6b\uff20]|%40(?![^\[]*\])")
"""An at sign in each of its forms, but not in the zone of an IPv6 address: ``[fe80::1%40]``."""
_ADDRESS_PATTERN: Final = r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]\s]+))(?::(?P<port>\d*))?"


class Address(NamedTuple):
    """The address of one server.

    Args:
        host: An IP address or a host name, or ``unix:`` and the path of a socket.
        port: The port; 0 for a socket path.
    """

    host: str
    port: int

    @property
    def path(self) -> str:
        """The path of a unix socket; empty for a host."""
        return self.host.removeprefix(UNIX_PREFIX) if self.host.startswith(UNIX_PREFIX) else ""

    @property
    def is_name(self) -> bool:
        """Whether the host is a name, which has to be looked up."""
        return (
            not self.path and ":" not in self.host and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", self.host) is None
        )

    def __str__(self) -> str:
        return self.host if self.path else host_and_port(self.host, self.port)


class ServerAddress(NamedTuple):
    """One server: an address of a connect string, or one of the IP addresses that its host name stands for.

    Args:
        address: The address in the connect string. Its host is the name for TLS.
        ip: IP address to connect to; empty for a socket path.
    """

    address: Address
    ip: str

    @property
    def tls_name(self) -> str:
        """The host name that the server's certificate must match, without a trailing dot."""
        return self.address.host.removesuffix(".")

    def __str__(self) -> str:
        return str(self.address) if self.ip in ("", self.address.host) else f"{self.address} ({self.ip})"


class Hosts(NamedTuple):
    """The servers and the chroot of a connect string.

    Args:
        addresses: The servers, at least one.
        chroot: Prefix of every path; empty for none.
    """

    addresses: tuple[Address, ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> Hosts:
        """Parse a connect string.

        Raises:
            TypeError: *text* is not a string.
            ValueError: *text* contains no server or an invalid address, or the chroot is not a valid path.
        """
        form = "hosts must be a string like 'host:2181,other:2181/chroot'"
        if not isinstance(text, str):
            raise TypeError(f"{form}, not {type(text).__name__}")
        if text.startswith(f"{UNIX_PREFIX}/"):
            return cls((Address(text.rstrip(), 0),))
        servers, slash, rest = text.partition("/")
        try:
            if _CREDENTIALS_PATTERN.search(servers):
                raise ValueError
            addresses = tuple(_parse_address(part.strip(), text) for part in servers.split(",") if part.strip())
            if not addresses:
                raise ValueError(f"{form}, not {text!r}")
            chroot = (slash + rest).rstrip()
            if chroot in ("", "/"):
                return cls(addresses)
            if (why := paths.path_error(chroot)) is not None:
                raise ValueError(f"invalid chroot {chroot!r} in {text!r}: {why}")
            return cls(addresses, chroot)
        except ValueError:
            if not _CREDENTIALS_PATTERN.search(text):
                raise
        # Raised outside of the handler, because some tools also log the context of an error, and it may
        # contain the password.
        hidden = "without '@' (the text is not shown, because it may contain a password)"
        raise ValueError(f"{form}, {hidden}; for a user and a password use auth= or login=")


def order_servers(
    endpoints: Iterable[ServerAddress], rng: Random, last: ServerAddress | None, first: ServerAddress | None = None
) -> list[ServerAddress]:
    """Return each endpoint once, in random order, except that *first* comes first and *last* comes last."""
    order = list(dict.fromkeys(endpoints))
    rng.shuffle(order)
    return sorted(order, key=lambda endpoint: (endpoint != first, endpoint == last))


def has_several_servers(endpoints: Iterable[ServerAddress]) -> bool:
    """Return whether two endpoints have addresses of one family, and so are different servers.

    An IPv4 and an IPv6 address may belong to the same server.
    """
    return max(Counter(":" in endpoint.ip for endpoint in endpoints).values(), default=0) > 1


def _parse_address(text: str, connect_string: str) -> Address:
    match = re.fullmatch(_ADDRESS_PATTERN, text)
    if match is None:
        raise invalid_server_error(text, connect_string)
    port = int(match["port"]) if match["port"] else DEFAULT_PORT
    if not 0 < port < 65536:
        raise invalid_server_error(text, connect_string)
    return Address(match["six"] or match["host"], port)

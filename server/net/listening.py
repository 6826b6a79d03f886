"""The addresses to listen on, and the addresses of peers.

``0.0.0.0`` and ``::`` both mean all addresses of both families, as in Java: one IPv6 socket also receives connections
over IPv4. On such a socket, a peer over IPv4 has an address such as ``::ffff:192.0.2.1``. :func:`peer_host` returns its
IPv4 address, for ACLs, limits and logs.
"""

from __future__ import annotations

import errno
import socket


def means_all(host: str | None) -> bool:
    """Return whether a host means all addresses of the machine: None, or zero in any notation, such as ``::``."""
    return host is None or not host.strip("0:.")


def listen_on_all(port: int, backlog: int) -> socket.socket:
    """Return a socket that listens on all addresses of both families. Without IPv6, it listens on IPv4 only.

    Raises:
        OSError: The port is in use, or reserved for privileged users.
    """
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # these two mean that IPv6 is disabled
                raise
    return socket.create_server(("0.0.0.0", port), backlog=backlog)


def new_socket(family: int, host: str) -> socket.socket:
    """Return a new socket that can be bound to an address. A socket for ``::`` also receives connections over IPv4."""
    created = socket.socket(family, socket.SOCK_STREAM)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6 and means_all(host):
        created.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return created


def peer_host(address: tuple[object, ...]) -> str:
    """Return the host in the address of a peer. An IPv4 address has no prefix ``::ffff:``."""
    host = str(address[0])
    return host.removeprefix("::ffff:") if "." in host else host


def split_hosts(host: str) -> str | list[str]:
    """Split comma-separated addresses. A single address is returned unchanged."""
    return host.split(",") if "," in host else host


def port_for(hosts: str | list[str], port: int) -> int:
    """Return the port for all addresses. For port 0 and several addresses, choose a free port that they share."""
    if port != 0 or isinstance(hosts, str):
        return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])

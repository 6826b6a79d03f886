"""Connections to an address, be it a host and a port or the path of a unix socket, over which there is no TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from zoolet.client.wire.hosts import Address

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.Protocol)


async def dial(address: Address, make: Callable[[], P], tls: ssl.SSLContext | None) -> P:
    """Return a protocol that is connected.

    Raises:
        OSError: Nobody listens there, or not with TLS.
    """
    loop = asyncio.get_running_loop()
    if address.path:
        _, protocol = await loop.create_unix_connection(make, address.path)
    else:
        name = address.host if tls is not None else None
        _, protocol = await loop.create_connection(make, address.host, address.port, ssl=tls, server_hostname=name)
    return protocol


async def dial_streams(
    address: Address, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection; errors as for :func:`dial`."""
    if address.path:
        return await asyncio.open_unix_connection(address.path)
    name = address.host if tls is not None else None
    return await asyncio.open_connection(address.host, address.port, ssl=tls, server_hostname=name)

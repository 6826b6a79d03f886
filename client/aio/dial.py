"""Connections to a host and port, or to a unix socket (without TLS), and descriptions of their failures."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ...protocol.messages import lower_first
from ..wire.diagnosis import CLOSED, RESET, early_close_reason
from ..wire.hosts import ServerAddress

if TYPE_CHECKING:
    import ssl

P = TypeVar("P", bound=asyncio.Protocol)
_ERRNO_PATTERN: Final = re.compile(r"\[Errno (\d+)\]")


async def dial(server: ServerAddress, make: Callable[[], P], tls: ssl.SSLContext | None) -> P:
    """Connect to a server and return the protocol.

    Raises:
        OSError: No server listens on the address, or the TLS handshake failed.
    """
    loop = asyncio.get_running_loop()
    if server.address.path:
        _, protocol = await loop.create_unix_connection(make, server.address.path)
    else:
        name = server.tls_name if tls is not None else None
        _, protocol = await loop.create_connection(make, server.ip, server.address.port, ssl=tls, server_hostname=name)
    return protocol


async def dial_streams(
    server: ServerAddress, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server and return the streams.

    Raises:
        OSError: No server listens on the address, or the TLS handshake failed.
    """
    if server.address.path:
        return await asyncio.open_unix_connection(server.address.path)
    name = server.tls_name if tls is not None else None
    return await asyncio.open_connection(server.ip, server.address.port, ssl=tls, server_hostname=name)


def connection_failure(error: Exception) -> str:
    """Return the reason why a connection was lost or could not be opened, without the address."""
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return RESET if str(error) else CLOSED  # in a TLS handshake, asyncio's error for a closed connection is empty
    if (untrusted := getattr(error, "verify_message", None)) is not None:
        return f"the certificate of the server cannot be verified: {str(untrusted).rstrip('.')}"
    if getattr(error, "library", None) is not None:  # an SSLError
        return f"the TLS handshake failed: {str(getattr(error, 'reason', error)).replace('_', ' ').lower()}"
    # asyncio replaces the text of the operating system by the addresses, and may combine several errors.
    texts = dict.fromkeys(os.strerror(int(code)).lower() for code in _ERRNO_PATTERN.findall(str(error)))
    return ", ".join(texts) or lower_first(str(getattr(error, "strerror", None) or error)) or type(error).__name__


def open_failure(error: Exception, seconds: float, tls: bool) -> str:
    """Return the reason why a connection could not be opened within *seconds*."""
    if isinstance(error, TimeoutError) and not error.errno:
        return f"no connection within {seconds:.3f} s"
    reason = connection_failure(error)
    return early_close_reason(reason, tls) if reason in (CLOSED, RESET) else reason

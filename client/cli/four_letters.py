"""Asking a server with a four-letter command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from zoolet.client.aio.dial import dial_streams

if TYPE_CHECKING:
    import ssl

    from zoolet.client.wire.hosts import Address

MAX_ANSWER: Final = 4 << 20
"""The most bytes of an answer."""
NOT_LISTED: Final = "is not executed because it is not in the whitelist"


class NotExecutedError(Exception):
    """The server does not execute the command."""


async def ask(address: Address, command: str, timeout: float, tls: ssl.SSLContext | None = None) -> str:
    """Return a server's answer to a four-letter command.

    Raises:
        OSError: It does not answer, or not in time; the message says so.
        NotExecutedError: It may not be asked that.
    """
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await dial_streams(address, tls)
            try:
                writer.write(command.encode())
                answer = bytearray()
                while len(answer) < MAX_ANSWER and (more := await reader.read(1 << 16)):
                    answer += more
            finally:
                writer.close()
    except TimeoutError:
        hint = ": it may serve TLS (--tls-ca), or something else than ZooKeeper" if tls is None else ""
        raise OSError(f"does not answer within {timeout:g} s{hint}") from None
    except OSError as error:
        reason = str(error.strerror or error) or "it closes the connection"
        hint = "; it may be a plain port" if tls is not None and isinstance(error, ConnectionError) else ""
        raise OSError(f"does not answer: {reason}{hint}") from None
    text = answer.decode("utf-8", "replace")
    if not text:
        hint = "serve TLS only (--tls-ca)" if tls is None else "want a certificate, or another one (--tls-cert)"
        raise OSError(f"closes the connection without an answer: it may {hint}")
    if NOT_LISTED in text:
        raise NotExecutedError(f"answers, but {command} is not in 4lw.commands.whitelist")
    return text

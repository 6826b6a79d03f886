"""Messages about addresses: a server that cannot be reached, and an address that cannot be listened on."""

from __future__ import annotations

import os

from ..protocol.addresses import host_and_port
from ..protocol.messages import lower_first


def format_address(host: str, port: int) -> str:
    """Return an address in the usual notation; *host* may contain several hosts separated by commas."""
    return ", ".join(host_and_port(one, port) for one in host.split(","))


def cannot_connect(reason: str) -> str:
    """Return the message of all commands for servers that cannot be reached.

    Args:
        reason: The address and the cause, such as ``127.0.0.1:1: connection refused``.
    """
    return f"cannot connect to {reason}"


def server_message(address: object, text: str) -> str:
    """Return a sentence about a server.

    Args:
        address: The address of the server.
        text: The rest of the sentence, such as an error of :func:`zoolet.client.four_letters.send_command`.
    """
    reason = text.removeprefix("does not answer: ")
    return f"{address} {text}" if reason == text else cannot_connect(f"{address}: {reason}")


def listen_error(error: Exception) -> str:
    """Return the reason why an address cannot be listened on, without the address, which asyncio adds."""
    number = getattr(error, "errno", None) or 0
    return lower_first(os.strerror(number) if number > 0 else str(getattr(error, "strerror", None) or error))

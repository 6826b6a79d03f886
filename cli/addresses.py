"""Messages about addresses: a server that cannot be reached, and an address that cannot be listened on."""

from __future__ import annotations

import os

from ..protocol.addresses import host_and_port
from ..protocol.messages import lower_first


def format_address(host: str, port: int) -> str:
    """Return an address in the usual notation; *host* may contain several hosts separated by commas."""
    return ", ".join(host_and_port(one, port) for one in host.split(","))


def cannot_connect_message(reason: str) -> str:
    """Return the message for servers that cannot be reached. All commands use this wording.

    Args:
        reason: The address and the cause, such as ``127.0.0.1:1: connection refused``.
    """
    return f"cannot connect to {reason}"


def server_message(address: object, text: str) -> str:
    """Return a sentence that starts with the address of a server.

    Args:
        address: The address of the server.
        text: The rest of the sentence, such as an error of :func:`zoolet.client.four_letters.send_command`.
    """
    reason = text.removeprefix("does not answer: ")
    return f"{address} {text}" if reason == text else cannot_connect_message(f"{address}: {reason}")


def listen_error_reason(error: Exception) -> str:
    """Return the reason of a listen error, without the address that asyncio adds to it."""
    number = getattr(error, "errno", None) or 0
    return lower_first(os.strerror(number) if number > 0 else str(getattr(error, "strerror", None) or error))

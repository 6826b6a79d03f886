"""The four-letter commands, which are answered in plain text on the client port.

Source: org.apache.zookeeper.server.command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ...protocol.four_letter_words import WORDS
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from ..core.server_connection import FourLetterCommand
from .observed import MonitoredServer

TELNET_CLOSE: Final = b"\xff\xf4\xff\xfd"
"""The bytes that a telnet client sends for ^C. They close the connection without a reply."""


def four_letter_commands(
    whitelist: Iterable[str], observe: Callable[[Engine], MonitoredServer] = MonitoredServer
) -> dict[bytes, FourLetterCommand]:
    """Return the functions that answer the four-letter commands, by the four bytes of each command.

    Args:
        whitelist: The allowed commands. ``*`` allows all commands, and ``srvr`` is always allowed.
        observe: A function that returns the view of an engine's server.
    """
    allowed = {"srvr", *(word.strip() for word in whitelist)}
    table: dict[bytes, FourLetterCommand] = {TELNET_CLOSE: lambda engine, client, data: b""}
    return table | {
        word.encode(): _make_command(word, observe) if allowed & {word, "*"} else _make_refusal(word) for word in WORDS
    }


def _make_command(word: str, observe: Callable[[Engine], MonitoredServer]) -> FourLetterCommand:
    def execute(engine: Engine, client: ClientConnection, data: bytes) -> bytes:
        from .four_letter import answer  # imported late, because the import takes some milliseconds

        return answer(word, observe(engine), client, data)

    return execute


def _make_refusal(word: str) -> FourLetterCommand:
    text = f"{word} is not executed because it is not in the whitelist.\n".encode()
    return lambda engine, client, data: text

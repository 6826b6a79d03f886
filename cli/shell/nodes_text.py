"""One-line text for the data of a node."""

from __future__ import annotations

from typing import Final

MAX_WIDTH: Final = 60
"""Maximum number of characters of data in a line."""


def format_data(data: bytes | None) -> str:
    """Return data as the rest of a line: short printable text unchanged, other data as a number of bytes."""
    if not data:
        return ""
    size = f"({len(data):,} bytes)"
    if len(data) > 4 * MAX_WIDTH:
        return size
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return size
    return text if len(text) <= MAX_WIDTH and text.isprintable() else size

"""Recorded connections between leaders of Apache ZooKeeper and their observers, in both directions.

A file has a title and one line for each packet or snapshot: its sender (O for the observer, L for the leader) and its
bytes in hexadecimal digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_suffix("")
DUMPS: Final = sorted(FOLDER.glob("*.dump"))


def bytes_from(sender: str, dump: Path) -> bytes:
    """Return all bytes of one direction."""
    lines = dump.read_text().splitlines()[1:]
    return b"".join(bytes.fromhex(line[2:]) for line in lines if line[0] == sender)

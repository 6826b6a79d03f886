"""Zxids and session ids as hexadecimal text."""

from __future__ import annotations


def hexadecimal(number: int) -> str:
    """Return a zxid or session id as ZooKeeper writes it: ``0x`` and its 64 bits, without a sign.

    Source: Long.toHexString, in ZooKeeper's messages and commands.
    """
    return f"0x{number & 0xFFFFFFFFFFFFFFFF:x}"

"""Zxids and session ids as hexadecimal text, and as signed numbers of 64 bits."""

from __future__ import annotations


def hexadecimal(number: int) -> str:
    """Return a zxid or session id as ZooKeeper writes it: ``0x`` and the 64 bits as an unsigned number.

    Source: Long.toHexString, in ZooKeeper's messages and commands.
    """
    return f"0x{number & 0xFFFFFFFFFFFFFFFF:x}"


def to_signed_64(number: int) -> int:
    """Wrap a number around to a signed number of 64 bits, as Java's long does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)

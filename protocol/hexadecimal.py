"""Zxids and session ids as hexadecimal text, and as signed numbers of 64 bits."""

from __future__ import annotations


def hexadecimal(number: int) -> str:
    """Return a zxid or session id as ZooKeeper writes it: ``0x`` and its 64 bits, without a sign.

    Source: Long.toHexString, in ZooKeeper's messages and commands.
    """
    return f"0x{number & 0xFFFFFFFFFFFFFFFF:x}"


def to_signed_64(number: int) -> int:
    """Return the number from -2**63 to 2**63 - 1 with the same 64 bits, like Java's long."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)

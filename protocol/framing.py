"""Frames: a four-byte length followed by the payload, in both directions.

The server splits received bytes in place (``server/core/server_connection.py``). :class:`Frames` is for the client and
for tests.
"""

from __future__ import annotations

from typing import Final

from .codec import int_at, pack_int
from .enums import MAX_FRAME
from .errors import MarshallingError


def frame(payload: bytes) -> bytes:
    """Return a payload as a frame: its length in four bytes, followed by the payload."""
    return pack_int(len(payload)) + payload


class Frames:
    """A splitter of a byte stream into the payloads of its frames.

    Args:
        limit: Maximum length of a payload in bytes; None for no limit.
    """

    def __init__(self, limit: int | None = MAX_FRAME) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._missing = 4

    def feed(self, data: bytes) -> list[bytes]:
        """Receive bytes, and return the payloads that they complete.

        Raises:
            MarshallingError: A length is negative or above the limit. The stream cannot be continued after that.
        """
        size = len(data)
        self._missing -= size
        if self._missing > 0:  # joined once, when the frame is complete, so a frame of n bytes costs O(n)
            self._parts.append(data)
            return []
        if self._parts:
            data = b"".join([*self._parts, data])
            size = len(data)
            self._parts = []
        offset, payloads = 0, []
        missing = 4
        while size - offset >= 4:
            (length,) = int_at(data, offset)
            if length < 0 or (self._limit is not None and length > self._limit):
                raise MarshallingError(detail=f"invalid frame length {length}, the limit is {self._limit}")
            end = offset + 4 + length
            if end > size:
                missing = 4 + length
                break
            payloads.append(data[offset + 4 : end])
            offset = end
        if offset < size:
            self._parts = [data[offset:]]
        self._missing = missing - (size - offset)
        return payloads


_HTTP_PREFIXES: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"PRI ", b"CONN")


def guess_protocol(length: int) -> str | None:
    """Guess the protocol of a peer from its first four bytes, which were read as a frame length.

    Returns:
        ``TLS`` or ``HTTP``, or None for any other protocol.
    """
    first = (length & 0xFFFFFFFF).to_bytes(4, "big")
    if first.startswith(b"\x16\x03"):
        return "TLS"
    return "HTTP" if first in _HTTP_PREFIXES else None

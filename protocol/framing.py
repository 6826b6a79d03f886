"""Frames: an int length, then that many bytes. Both directions, always.

The server's own frame loop (``server/core/server_connection.py``) works on the received bytes in place; this
splitter is for everybody else.
"""

from __future__ import annotations

from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.errors import MarshallingError


def frame(payload: bytes) -> bytes:
    """Put the length before a payload."""
    return pack_int(len(payload)) + payload


class Frames:
    """Bytes in, whole payloads out.

    Args:
        limit: The longest payload that is taken, in bytes; None for no limit.
    """

    def __init__(self, limit: int | None = MAX_FRAME) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._missing = 4

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes off the wire and return the payloads that are whole now.

        Raises:
            MarshallingError: A length is negative or above the limit. The stream is of no use after that.
        """
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return []
        buf = b"".join(self._parts)
        offset, size, whole = 0, len(buf), []
        missing = 4
        while size - offset >= 4:
            (length,) = int_at(buf, offset)
            if length < 0 or (self._limit is not None and length > self._limit):
                raise MarshallingError(detail=f"a frame of {length} bytes, where {self._limit} is the limit")
            end = offset + 4 + length
            if end > size:
                missing = 4 + length
                break
            whole.append(buf[offset + 4 : end])
            offset = end
        self._parts = [buf[offset:]]
        self._missing = missing - (size - offset)
        return whole

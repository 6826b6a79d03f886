"""How values become a node's bytes: bytes as they are, or typed values as JSON or msgpack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class UndecodableError(ValueError):
    """A node holds bytes that the client's serializer cannot read; another program may have written them.

    Args:
        path: The node.
        serializer: The serializer's name.
        data: The bytes.
        reason: What is wrong with them.
    """

    def __init__(self, path: str | None, serializer: str, data: bytes, reason: str) -> None:
        super().__init__(path, serializer, data, reason)
        self.path = path
        self.serializer = serializer
        self.data = data
        self.reason = reason

    def __str__(self) -> str:
        shown = repr(self.data[:40]) + ("..." if len(self.data) > 40 else "")
        return f"{self.path}: the data is not {self.serializer}: {self.reason}; it is {shown}"


@dataclass(frozen=True, slots=True)
class Serializer:
    """A way to write values.

    Args:
        name: For errors.
        encode: From a value to bytes; TypeError or ValueError for values it cannot write.
        decode: From bytes to a value; any ValueError or TypeError means that the bytes are not its own.
    """

    name: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def read(self, path: str | None, data: bytes | None) -> Any:
        """Decode what a node holds; null counts as empty.

        Raises:
            UndecodableError: The bytes are not this serializer's.
        """
        try:
            return self.decode(data or b"")
        except (ValueError, TypeError, RecursionError) as error:
            raise UndecodableError(path, self.name, data or b"", str(error)) from None


def _encode_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"data must be bytes, not {type(value).__name__}; use a serializer for typed values")
    return bytes(value)


def _encode_json(value: Any) -> bytes:
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _decode_json(data: bytes) -> Any:
    import json

    return None if not data else json.loads(data)


def _encode_msgpack(value: Any) -> bytes:
    import msgpack  # type: ignore[import-untyped, unused-ignore]

    try:
        packed = msgpack.packb(value, use_bin_type=True)
    except OverflowError as error:
        raise ValueError(f"{value!r}: {error}") from None
    return bytes(packed or b"")


def _decode_msgpack(data: bytes) -> Any:
    import msgpack

    if not data:
        return None
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ValueError(str(error) or type(error).__name__) from None


raw = Serializer("bytes", _encode_bytes, bytes)
"""Bytes as they are."""
json = Serializer("JSON", _encode_json, _decode_json)
"""Whatever JSON can say; an empty node is None."""
msgpack = Serializer("msgpack", _encode_msgpack, _decode_msgpack)
"""Whatever msgpack can say; an empty node is None."""

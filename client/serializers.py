"""Serializers, which convert between values and a node's bytes: plain bytes, or typed values as JSON or msgpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic

if TYPE_CHECKING:  # Python 3.13 introduced defaults of type variables, and type checkers know them for every version
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)
    """Type of a client's values: ``Client`` without an argument is a client of bytes."""
    C = TypeVar("C", default=Any)
    """Type of a serializer's values: Any, unless the program specifies it."""
else:
    from typing import TypeVar

    V, C = TypeVar("V"), TypeVar("C")

__all__ = ["Serializer", "UndecodableError", "json", "msgpack", "raw"]


def __dir__() -> list[str]:
    return __all__


class UndecodableError(ValueError):
    """The error for node data that the client's serializer cannot decode. A different program may have written it.

    Args:
        path: Path of the node.
        serializer: Name of the serializer.
        data: The bytes that could not be decoded.
        reason: The serializer's error message.
    """

    def __init__(self, path: str | None, serializer: str, data: bytes, reason: str) -> None:
        super().__init__(path, serializer, data, reason)
        self.path = path
        self.serializer = serializer
        self.data = data
        self.reason = reason

    def __str__(self) -> str:
        shown = repr(self.data[:40]) + ("..." if len(self.data) > 40 else "")
        return f"{self.path}: the data is not {self.serializer}: {self.reason}; found {shown}"


class Serializer(Generic[C]):
    """A pair of functions that encode values to bytes and decode them.

    Args:
        name: Name of the format, for error messages.
        encode: Function from a value to bytes. It raises TypeError or ValueError for unsupported values.
        decode: Function from bytes to a value. A ValueError or TypeError means that the bytes are in another format.
    """

    def __init__(self, name: str, encode: Callable[[C], bytes], decode: Callable[[bytes], C]) -> None:
        self.name: Final = name
        self.encode: Final = encode
        self.decode: Final = decode

    def __repr__(self) -> str:
        return f"<Serializer {self.name}>"

    def read(self, path: str | None, data: bytes | None) -> C:
        """Decode a node's data. If the node has no data (None), decode empty bytes.

        Raises:
            UndecodableError: The serializer cannot decode the bytes.
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


raw: Serializer[bytes] = Serializer("bytes", _encode_bytes, bytes)
"""Plain bytes."""
json: Serializer[Any] = Serializer("JSON", _encode_json, _decode_json)
"""Values that JSON supports. An empty node is None."""
msgpack: Serializer[Any] = Serializer("msgpack", _encode_msgpack, _decode_msgpack)
"""Values that msgpack supports. An empty node is None."""

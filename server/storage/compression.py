"""Read snapshots that ZooKeeper has compressed.

::

    .gz       a gzip stream
    .snappy   "\\x82SNAPPY\\0", int version, int compatible version, then blocks: int length, compressed bytes

The bytes of a snappy block are the size of its content, as a varint, and then elements. The lower two bits of the first
byte of an element are its kind:

- 0: literal bytes, with their number minus one in the upper bits, or in the next one to four bytes.
- 1, 2, 3: a copy of earlier output, with its distance in 11, 16 or 32 bits.

Source: SnapStream; SnappyOutputStream of snappy-java; format_description.txt of snappy.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from .errors import StorageError

SUFFIXES: Final = ("", ".gz", ".snappy")
"""The suffixes of snapshots."""
PIECE: Final = 1 << 20
"""Maximum number of bytes that are read in one step."""
SNAPPY: Final = b"\x82SNAPPY\0"
"""The first bytes of a file in snappy-java's format."""
_HEADER: Final = struct.Struct(">8sii")
_LENGTH: Final = struct.Struct(">i")
MAX_BLOCK: Final = 1 << 26
"""Maximum size of a snappy block after decompression, in bytes. ZooKeeper's blocks have 32 KiB."""


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a snapshot file.

    Raises:
        StorageError: The file cannot be decompressed.
        OSError: The file cannot be read.
    """
    if path.suffix == ".snappy":
        with path.open("rb") as file:
            yield from _snappy(file, str(path))
        return
    try:
        # The file is read in pieces, because a buffered reader allocates the requested size even for a small file.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while piece := stream.read(PIECE):
                yield piece
    except (OSError, EOFError, zlib.error) as error:
        if path.suffix != ".gz" or isinstance(error, FileNotFoundError):
            raise
        raise StorageError(str(path), f"the gzip stream is damaged: {error}") from None


def _snappy(file: BinaryIO, where: str) -> Iterator[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(SNAPPY):
        raise StorageError(where, "the snappy stream is damaged: the file does not start with a header of snappy-java")
    while prefix := file.read(_LENGTH.size):
        at = file.tell()
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else -1
        if not 0 < length <= size - at:
            raise StorageError(where, f"the snappy stream is damaged: no complete block at byte {at - len(prefix)}")
        try:
            yield _block(file.read(length))
        except (ValueError, IndexError) as error:
            raise StorageError(where, f"the snappy stream is damaged: {error} in the block at byte {at}") from None


def _block(data: bytes) -> bytes:
    """Return the content of a snappy block.

    Raises:
        ValueError: The block is damaged.
        IndexError: The block is truncated.
    """
    size = at = 0
    while True:
        size |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80:
            break
        if size > MAX_BLOCK or at > 4:
            raise ValueError("invalid size")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if not tag & 3:
            count = (tag >> 2) + 1
            if count > 60:
                extra = count - 60
                count = int.from_bytes(data[at : at + extra], "little") + 1
                at += extra
            out += data[at : at + count]
            at += count
        else:
            if tag & 3 == 1:
                count, distance = (tag >> 2 & 7) + 4, tag >> 5 << 8 | data[at]
                at += 1
            else:
                width = 2 if tag & 3 == 2 else 4
                count, distance = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little")
                at += width
            if not 0 < distance <= len(out):
                raise ValueError(f"a copy from a distance of {distance} bytes")
            start = len(out) - distance
            found = out[start : start + count]
            out += (found * (count // len(found) + 1))[:count]  # a copy may overlap its own output
        if len(out) > size:
            break
    if len(out) != size or at != len(data):
        raise ValueError(f"expected {size} bytes")
    return bytes(out)

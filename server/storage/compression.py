"""The decompression of snapshots that ZooKeeper has compressed.

::

    .gz       a gzip stream
    .snappy   "\\x82SNAPPY\\0", int version, int compatible version, then blocks: int length, compressed bytes

A compressed block of snappy starts with the size of its content, as a varint. Each of the following elements is either
a sequence of literal bytes, or a copy of earlier output at a distance.

Source: SnapStream; SnappyOutputStream of snappy-java; format_description.txt of snappy.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from .errors import StorageError

SUFFIXES: Final = ("", ".gz", ".snappy")
"""The suffixes that the name of a snapshot file may have."""
PIECE: Final = 1 << 20
"""Maximum number of bytes that are read in one step."""
SNAPPY_HEADER: Final = b"\x82SNAPPY\0" + bytes((0, 0, 0, 1)) * 2
"""The header of a snappy stream as snappy-java writes it: the magic number and two versions."""
MAX_BLOCK_BYTES: Final = 1 << 20
"""Maximum size of a snappy block after decompression, in bytes. ZooKeeper's blocks have 32 KiB."""


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a snapshot file.

    Raises:
        StorageError: The file cannot be decompressed.
        OSError: The file cannot be read.
    """
    if path.suffix == ".snappy":
        with path.open("rb") as file:
            yield from _read_snappy(file, str(path))
        return
    try:
        # The file is read in pieces, because a buffered reader allocates the requested size even for a small file.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while piece := stream.read(PIECE):
                yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StorageError(str(path), f"the gzip stream is damaged: {error}") from None


def _read_snappy(file: BinaryIO, where: str) -> Iterator[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if file.read(len(SNAPPY_HEADER)) != SNAPPY_HEADER:
        raise StorageError(where, "the snappy stream is damaged: the file does not start with a header of snappy-java")
    while prefix := file.read(4):
        at, length = file.tell(), int.from_bytes(prefix)
        try:
            if len(prefix) < 4 or length > size - at:
                raise ValueError("unexpected end of file")
            yield _decompress_block(file.read(length))
        except (ValueError, IndexError) as error:
            raise StorageError(where, f"the snappy stream is damaged in the block at byte {at}: {error}") from None


def _decompress_block(data: bytes) -> bytes:
    """Decompress one snappy block.

    Raises:
        ValueError: The block is damaged.
        IndexError: The block is truncated.
    """
    size = at = 0
    while True:
        size |= (data[at] & 0x7F) << 7 * at
        at += 1
        if size > MAX_BLOCK_BYTES or at > 5:
            raise ValueError("invalid size")
        if data[at - 1] < 0x80:
            break
    out = bytearray()
    while at < len(data) and len(out) <= size:
        upper, kind = divmod(data[at], 4)
        width = (max(0, upper - 59), 1, 2, 4)[kind]
        number = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        at += 1 + width
        if kind == 0:
            count = (number if width else upper) + 1
            out += data[at : at + count]
            at += count
            continue
        count, distance = ((upper & 7) + 4, upper >> 3 << 8 | number) if kind == 1 else (upper + 1, number)
        if not 0 < distance <= len(out):
            raise ValueError(f"invalid back-reference (distance {distance})")
        start = len(out) - distance
        found = out[start : start + count]
        out += (found * (count // len(found) + 1))[:count]  # a copy may overlap its own output
    if len(out) != size or at != len(data):
        raise ValueError(f"expected {size} bytes, found {len(out)}")
    return bytes(out)

"""The archive of the history: session ends, deletions and ACL changes, to find out why a node was deleted.

The entries are compressed to 20 to 50 bytes each, so the archive of a busy server covers several days. Entries about
nodes with sequence numbers have a separate ring: locks and queues delete many such nodes, and their names are rarely
searched.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterator
from heapq import merge
from typing import Any, Final

from ...protocol.paths import sequence_number

MAX_BYTES: Final = 16 << 20
"""Maximum size of each of the two rings in bytes."""
CHUNK_BYTES: Final = 64 << 10
"""Number of bytes of text that are compressed together, which takes a millisecond."""
MAX_PARTS_BYTES: Final = 32 << 10
"""Maximum size in bytes of the archived changes of one transaction."""
MAX_PATH_CHARACTERS: Final = 1_000
"""Maximum length of the archived paths in characters. In JSON, a character may take six bytes."""
SESSION_ENDS: Final = frozenset({"closed", "expired", "ended"})
"""The kinds of entries that end a session."""
ARCHIVED_CHANGES: Final = frozenset({"delete", "set ACL"})
"""The kinds of changes that are archived."""


class HistoryArchive:
    """Two rings of archived entries: one for nodes with sequence numbers, one for all others."""

    def __init__(self) -> None:
        self._rings: Final = (_Ring(), _Ring())

    def __len__(self) -> int:
        return sum(ring.count for ring in self._rings)

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return sum(ring.size for ring in self._rings)

    def add(self, kept: tuple[Any, ...]) -> None:
        """Archive a history entry, if it ends a session or has a change of the kinds in :data:`ARCHIVED_CHANGES`.

        Args:
            kept: The fields of an entry that is newer than all archived entries.
        """
        *head, kind, parts, left_out, why, number = kept
        lasting = [part for part in parts if part[0] in ARCHIVED_CHANGES and len(part[1]) <= MAX_PATH_CHARACTERS]
        if not lasting and kind not in SESSION_ENDS:
            return
        size = most = 0
        while most < len(lasting) and (size := size + len(lasting[most][1]) + 20) <= MAX_PARTS_BYTES:
            most += 1
        row = (*head, kind, lasting[:most], left_out + len(parts) - most, why, number)
        self._rings[all(sequence_number(path) is not None for _, path, _ in lasting)].add(number, json.dumps(row))

    def entries(self, text: str = "", before: int = 0) -> Iterator[list[Any] | None]:
        """Yield the fields of entries, the latest first. None is yielded before each step of a millisecond.

        Args:
            text: Yield only entries whose JSON contains this text; empty for all. A few other entries may also match.
            before: Yield only entries with a number below this one; 0 for all.
        """
        wanted = json.dumps(text)[1:-1].encode()
        for _, row in merge(*(ring.rows(wanted, before) for ring in self._rings), key=lambda each: -each[0]):
            yield row


class _Ring:
    """A ring of entries, as compressed lines of JSON. The oldest entries are discarded."""

    def __init__(self) -> None:
        self.count = self.size = 0
        self._chunks: deque[tuple[int, int, int, bytes]] = deque()  # first and last entry number, line count, zlib data
        self._lines: list[str] = []
        self._first = self._last = self._pending_bytes = 0

    def add(self, number: int, line: str) -> None:
        if not self._lines:
            self._first = number
        self._lines.append(line)
        self._last = number
        self._pending_bytes += len(line)
        self.count += 1
        self.size += len(line)
        if self._pending_bytes < CHUNK_BYTES:
            return
        packed = zlib.compress("\n".join(self._lines).encode(), 1)
        self.size += len(packed) - self._pending_bytes
        self._chunks.append((self._first, self._last, len(self._lines), packed))
        self._lines, self._pending_bytes = [], 0
        while self.size > MAX_BYTES:
            _, _, count, packed = self._chunks.popleft()
            self.count -= count
            self.size -= len(packed)

    def rows(self, wanted: bytes, before: int) -> Iterator[tuple[int, list[Any] | None]]:
        """Yield the numbers and fields of entries, the latest first.

        Before each chunk is decompressed, its last number is yielded with None instead of fields.
        """
        chunks = list(self._chunks)  # a copy, because the ring may change while the caller pauses
        if self._lines:
            chunks.append((self._first, self._last, 0, zlib.compress("\n".join(self._lines).encode(), 1)))
        for first, last, _, packed in reversed(chunks):
            if before and first >= before:
                continue
            yield last, None
            text = zlib.decompress(packed)
            if wanted not in text:
                continue
            for line in reversed(text.split(b"\n")):
                if wanted in line:
                    row = json.loads(line)
                    if not before or row[-1] < before:
                        yield row[-1], row

"""Looks at one batch of requests in 64: how long it took, and each request in it, by operation and by path.

To time each request would cost a read a third of its time, and to add each batch to a summary a tenth of that of a
connection with one request at a time. So for one batch in :data:`EVERY` the engine gets a dispatch table whose handlers
are timed. Which ones is random, so that no pattern of requests escapes. The latency of such a batch stands for all
reads and writes since the one before, so that the counts of ``readlatency`` and ``updatelatency`` are those of all
requests; beginnings and ends of sessions, which take a zxid, count as writes.
"""

from __future__ import annotations

from random import Random
from time import perf_counter
from typing import Any, Final

from zoolet.protocol.operations import name_of
from zoolet.server.core.engine import Engine
from zoolet.server.core.metrics import Summary
from zoolet.server.core.ops.dispatch import Decode, Dispatch, Handle, late_decoder

EVERY: Final = 64
"""Of how many batches one is looked at, on average."""
MAX_PATHS: Final = 100
"""The most prefixes of paths; the others are counted together."""
OTHERS: Final = "others"


class Sampler:
    """The times of some requests of an engine.

    Args:
        engine: The engine.
        random: Chooses the batches.

    Attributes:
        by_label: The summaries, in milliseconds, by the name of a label and its value.
    """

    def __init__(self, engine: Engine, random: Random | None = None) -> None:
        self.by_label: dict[str, dict[str, Summary]] = {"operation": {}, "path": {}}
        self._engine = engine
        self._random = random or Random()
        self._table: Dispatch = {}
        self._timed: Dispatch = {}  # of that table
        self._packets, self._zxid = engine.metrics.packets_received, engine.zxid  # at the last batch that was looked at

    def next(self) -> int:
        """Return in how many batches the next one is to be looked at: in :data:`EVERY` on average."""
        return self._random.randint(1, 2 * EVERY - 1)

    def begin(self) -> None:
        """Begin a batch whose requests are timed; :meth:`end` has to follow."""
        engine = self._engine
        if self._table is not engine.dispatch:
            self._table = engine.dispatch
            self._timed = {op: self._entry(op, entry) for op, entry in self._table.items()}
        engine.dispatch = self._timed

    def end(self, milliseconds: float) -> None:
        """End a batch whose requests were timed, which took so long."""
        engine = self._engine
        if engine.dispatch is self._timed:  # otherwise it was replaced meanwhile
            engine.dispatch = self._table
        packets, zxid = engine.metrics.packets_received, engine.zxid
        requests = max(packets - self._packets, 0)  # srst has set it back
        writes = min(zxid - self._zxid, requests)
        self._packets, self._zxid = packets, zxid
        summaries = engine.metrics.summaries
        if writes > 0 and engine.journal is None:  # otherwise the commit says how long they took
            summaries["updatelatency"].observe(milliseconds, writes)
        if requests > writes:
            summaries["readlatency"].observe(milliseconds, requests - writes)

    def rotate(self, monotonic_ms: int) -> None:
        """Forget, of the quantiles, what is older than their window."""
        for summaries in self.by_label.values():
            for summary in summaries.values():
                summary.rotate(monotonic_ms)

    def _entry(self, op: int, entry: tuple[Decode, Handle, bool]) -> tuple[Decode, Handle, bool]:
        _, handle, costly = entry
        table, name = self._table, name_of(op)

        def timed(state: Any, client: Any, request: Any) -> bytes:
            started = perf_counter()
            try:
                return handle(state, client, request)
            finally:
                self._observe(name, getattr(request, "path", None), (perf_counter() - started) * 1000)

        return late_decoder(table, op), timed, costly

    def _observe(self, name: str, path: str | None, milliseconds: float) -> None:
        _summary(self.by_label["operation"], name).observe(milliseconds)
        if isinstance(path, str) and path.startswith("/"):
            prefix = "/".join(path[:256].split("/", 3)[:3])
            paths = self.by_label["path"]
            _summary(paths, prefix if prefix in paths or len(paths) < MAX_PATHS else OTHERS).observe(milliseconds)


def _summary(summaries: dict[str, Summary], value: str) -> Summary:
    summary = summaries.get(value)
    if summary is None:
        summary = summaries[value] = Summary()
    return summary

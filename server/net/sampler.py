"""The timing of one batch of requests in 64, and of each of its requests by operation and by path.

Timing every request would make reads a third slower. Even timing every batch would make a connection with one request
at a time a tenth slower. For one batch in :data:`BATCHES_PER_SAMPLE`, the engine therefore gets a dispatch table with
timed handlers. The batches are chosen at random, because a regular pattern of requests could escape sampling.

The latency of a sampled batch is counted for all reads and writes since the previous sample, so the counts of
``readlatency`` and ``updatelatency`` include all requests. Opening and closing a session uses a zxid and counts as a
write.
"""

from __future__ import annotations

from random import Random
from time import perf_counter
from typing import Any, Final

from ...protocol.operations import operation_name
from ..core.engine import Engine
from ..core.metrics import Summary
from ..core.ops.dispatch import Dispatch, DispatchTuple, late_decoder

BATCHES_PER_SAMPLE: Final = 64
"""Average number of batches per sample."""
MAX_PATH_PREFIXES: Final = 100
"""Maximum number of prefixes of paths. Requests with other prefixes are counted together."""
OTHERS: Final = "others"


class Sampler:
    """A sampler for the durations of an engine's requests.

    Args:
        engine: The engine.
        random: Source of randomness for choosing batches.

    Attributes:
        by_label: The summaries, in milliseconds, by the name and the value of a label.
    """

    def __init__(self, engine: Engine, random: Random | None = None) -> None:
        self.by_label: dict[str, dict[str, Summary]] = {"operation": {}, "path": {}}
        self._engine = engine
        self._random = random or Random()
        self._table: Dispatch = {}
        self._timed: Dispatch = {}  # the timed version of the dispatch table
        self._packets, self._zxid = engine.metrics.packets_received, engine.zxid  # values at the last sample

    def batches_until_next(self) -> int:
        """Return a random number of batches until the next sample: :data:`BATCHES_PER_SAMPLE` on average."""
        return self._random.randint(1, 2 * BATCHES_PER_SAMPLE - 1)

    def begin(self) -> None:
        """Start timing the requests of a batch. A call of :meth:`end` must follow."""
        engine = self._engine
        if self._table is not engine.dispatch:
            self._table = engine.dispatch
            self._timed = {op: self._entry(op, entry) for op, entry in self._table.items()}
        engine.dispatch = self._timed

    def end(self, milliseconds: float) -> None:
        """Finish a batch whose requests were timed.

        Args:
            milliseconds: The duration of the whole batch.
        """
        engine = self._engine
        if engine.dispatch is self._timed:  # another dispatch table may have replaced the timed one
            engine.dispatch = self._table
        packets, zxid = engine.metrics.packets_received, engine.zxid
        requests = max(packets - self._packets, 0)  # srst may have reset the counter
        writes = min(zxid - self._zxid, requests)
        self._packets, self._zxid = packets, zxid
        summaries = engine.metrics.summaries
        if writes > 0 and engine.journal is None:  # a journal means that GroupCommit measures the writes
            summaries["updatelatency"].observe(milliseconds, writes)
        if requests > writes:
            summaries["readlatency"].observe(milliseconds, requests - writes)

    def rotate(self, monotonic_ms: int) -> None:
        """Discard the values that are older than the window of their summary."""
        for summaries in self.by_label.values():
            for summary in summaries.values():
                summary.rotate(monotonic_ms)

    def _entry(self, op: int, entry: DispatchTuple) -> DispatchTuple:
        _, handle, costly, _ = entry
        table, name = self._table, operation_name(op)

        def timed(state: Any, client: Any, request: Any) -> bytes:
            started = perf_counter()
            try:
                return handle(state, client, request)
            finally:
                self._observe(name, getattr(request, "path", None), (perf_counter() - started) * 1000)

        return late_decoder(table, op), timed, costly, None

    def _observe(self, name: str, path: str | None, milliseconds: float) -> None:
        _summary(self.by_label["operation"], name).observe(milliseconds)
        if isinstance(path, str) and path.startswith("/"):
            prefix = "/".join(path[:256].split("/", 3)[:3])
            paths = self.by_label["path"]
            _summary(paths, prefix if prefix in paths or len(paths) < MAX_PATH_PREFIXES else OTHERS).observe(
                milliseconds
            )


def _summary(summaries: dict[str, Summary], value: str) -> Summary:
    summary = summaries.get(value)
    if summary is None:
        summary = summaries[value] = Summary()
    return summary

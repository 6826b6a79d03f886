"""Times single requests of one batch in 64, by operation and by the first two parts of the path.

To time each request would cost a read a third of its time. So for one batch in :data:`EVERY` the engine gets a dispatch
table whose handlers are timed; which batches these are does not depend on what is in them.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Final

from zoolet.protocol.operations import name_of
from zoolet.server.core.engine import Engine
from zoolet.server.core.metrics import Summary
from zoolet.server.core.ops.dispatch import Decode, Dispatch, Handle

EVERY: Final = 64
"""Batches, of which the requests of one are timed."""
MAX_PATHS: Final = 100
"""The most prefixes of paths; the others are counted together."""
OTHERS: Final = "others"


class Sampler:
    """The times of some requests of an engine.

    Args:
        engine: The engine.

    Attributes:
        by_label: The summaries, in milliseconds, by the name of a label and its value.
    """

    def __init__(self, engine: Engine) -> None:
        self.by_label: dict[str, dict[str, Summary]] = {"operation": {}, "path": {}}
        self._engine = engine
        self._left = EVERY
        self._table: Dispatch = {}
        self._timed: Dispatch = {}  # of that table

    def begin(self) -> bool:
        """Count a batch that begins; return whether its requests are timed: then :meth:`end` has to follow."""
        self._left -= 1
        if self._left:
            return False
        self._left = EVERY
        engine = self._engine
        if self._table is not engine.dispatch:
            self._table = engine.dispatch
            self._timed = {op: self._entry(op, entry) for op, entry in self._table.items()}
        engine.dispatch = self._timed
        return True

    def end(self) -> None:
        """End a batch whose requests were timed."""
        if self._engine.dispatch is self._timed:  # otherwise it was replaced meanwhile
            self._engine.dispatch = self._table

    def rotate(self, monotonic_ms: int) -> None:
        """Forget, of the quantiles, what is older than their window."""
        for summaries in self.by_label.values():
            for summary in summaries.values():
                summary.rotate(monotonic_ms)

    def _entry(self, op: int, entry: tuple[Decode, Handle, bool]) -> tuple[Decode, Handle, bool]:
        _, handle, costly = entry
        table, name = self._table, name_of(op)

        def decode(buf: bytes, offset: int, end: int) -> Any:
            return table[op][0](buf, offset, end)  # the first call may replace it

        def timed(state: Any, client: Any, request: Any) -> bytes:
            started = perf_counter()
            try:
                return handle(state, client, request)
            finally:
                self._observe(name, getattr(request, "path", None), (perf_counter() - started) * 1000)

        return decode, timed, costly

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

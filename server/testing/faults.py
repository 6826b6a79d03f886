"""Faults: which requests and events a rule matches, and how often it is applied.

A rule counts the requests or events that match its op, path and client. Of these ``nth`` selects some by their number
and ``probability`` some at random, and ``times`` limits the hits. Each rule has its own random generator, seeded with
the server's seed and the number of the rule, so the same seed hits the same requests, whatever other rules do.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection
from random import Random
from types import TracebackType
from typing import Final, Self

from zoolet.protocol import multi as wire
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.operations import OPERATIONS, OpCode, codes_named, names
from zoolet.server.testing.actions import Action

CONNECT: Final = int(OpCode.CREATE_SESSION)
"""The op code that stands for the connect request, which has none."""


def ops_named(op: str | int | None) -> frozenset[int] | None:
    """Return the op codes that a name or number stands for; None for all.

    Raises:
        ValueError: There is no such operation.
    """
    if op is None:
        return None
    if isinstance(op, int) and not isinstance(op, bool):
        if op in OPERATIONS:
            return frozenset({int(op)})
    elif isinstance(op, str) and (codes := codes_named(op)):
        return codes
    raise ValueError(f"op {op!r} is unknown; one of {', '.join(names())}")


def compile_glob(path: str | None) -> Callable[[str], bool] | None:
    """Return a predicate for the paths that match a glob, in which ``*`` also matches slashes; None for all paths.

    Raises:
        ValueError: No path could match the glob.
    """
    if path is None:
        return None
    if not isinstance(path, str) or not path or path[0] not in "/*?[":
        raise ValueError(f"path {path!r} is not a glob for paths; it must start with '/' or '*'")
    if path.count("[") > path.count("]"):
        raise ValueError(f"path {path!r} is not a glob; a '[' is not closed")
    import re

    matches = re.compile(fnmatch.translate(path)).match
    return lambda candidate: matches(candidate) is not None


def paths_in(opcode: int, body: bytes) -> tuple[str, ...]:
    """Return the paths in a request: none, one, or all those of a transaction."""
    if opcode in (OpCode.MULTI, OpCode.MULTI_READ):
        try:
            operations = list(wire.iter_operations(body, 0, len(body), wire.WRITES | wire.READS))
        except MarshallingError:
            return ()
        return tuple(path for _, request in operations if (path := getattr(request, "path", None)) is not None)
    operation = OPERATIONS.get(opcode)
    if operation is None or operation.request is None or operation.path is None:
        return ()
    try:
        path = getattr(operation.request.decode(body), operation.path)
    except MarshallingError:
        return ()
    return () if path is None else (path,)


def _numbers(nth: int | Collection[int] | None) -> set[int]:
    picked: set[object] = {nth} if not isinstance(nth, Collection) or isinstance(nth, str) else set(nth)
    wrong = [number for number in picked if not isinstance(number, int) or isinstance(number, bool) or number < 1]
    if nth is None:
        return set()
    if wrong or not picked:
        raise ValueError(f"nth is {nth!r}; it must be 1 for the first, 2 for the second, or a set of such numbers")
    return {number for number in picked if isinstance(number, int)}


def _check_limits(probability: float | None, times: int | None) -> None:
    if probability is not None and not (isinstance(probability, int | float) and 0 <= probability <= 1):
        raise ValueError(f"probability is {probability!r}; it must be from 0 to 1")
    if times is not None and (not isinstance(times, int) or times < 0):
        raise ValueError(f"times is {times!r}; it must be 0 or more")


class Fault:
    """A rule that is applied until its ``with`` block or :meth:`end` ends it.

    :meth:`Server.fault` returns it and documents the arguments.

    Attributes:
        hits: The number of requests or events to which it was applied.
        seen: The number of requests or events that matched op, path and client.
    """

    def __init__(
        self,
        action: Action,
        *,
        op: str | int | None = None,
        path: str | None = None,
        session: Callable[[], int | None] | None = None,
        nth: int | Collection[int] | None = None,
        probability: float | None = None,
        times: int | None = None,
        strict: bool = False,
        rng: Random | None = None,
        end: Callable[[Fault], None] | None = None,
        release: Callable[[Fault], None] | None = None,
    ) -> None:
        if not isinstance(action, Action):
            raise ValueError(
                f"action {action!r} is unknown; one of delay(s), error(code), drop_request(), lose_reply(), "
                "close_after(), hold(), withhold_event(), all of zoolet.server.testing"
            )
        if action.used:
            raise ValueError(f"action {action!r} belongs to another fault already; make a new one")
        picked = _numbers(nth)
        _check_limits(probability, times)
        if action.events and op is not None:
            raise ValueError(f"op {op!r} is invalid with withhold_event(); an event belongs to no operation")
        self.action = action
        self.hits = self.seen = 0
        self._ops = ops_named(op)
        if self._ops is not None and CONNECT in self._ops and action.code:
            raise ValueError(f"{action!r} is invalid with op='connect'; the answer to a handshake has no error code")
        self._matches = compile_glob(path)
        self._session = session
        self._nth = picked
        self._probability = probability
        self._times = times
        self._strict = strict
        self._rng = rng or Random(0)
        self._end = end
        conditions = {"op": op, "path": path, "nth": nth, "probability": probability, "times": times}
        self._conditions = "".join(f", {name}={value!r}" for name, value in conditions.items() if value is not None)
        action.used = True
        if release is not None:
            action.on_release = lambda: release(self)

    def __repr__(self) -> str:
        return f"fault({self.action}{self._conditions})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if self._strict and kind is None and not self.hits:
            raise AssertionError(f"{self!r} was strict and was never applied; it saw {self.seen} that matched it")

    def end(self) -> None:
        """Stop applying the rule. Requests that it holds are executed, events that it withholds are lost."""
        if self._end is not None:
            self._end(self)

    def release(self) -> None:
        """Release the requests or events that the action holds, and hold no more.

        Raises:
            ValueError: The action is of a kind that holds nothing.
        """
        self.action.release()

    # --- called by the interceptor ---

    def applies(self, opcode: int, session_id: int, paths: Callable[[], tuple[str, ...]], *, event: bool) -> bool:
        """Count a request or event, and return whether the fault is applied to it."""
        if self.action.events != event or self.action.released:
            return False
        if self._ops is not None and opcode not in self._ops:
            return False
        if self._session is not None and self._session() != session_id:
            return False
        if self._matches is not None and not any(map(self._matches, paths())):
            return False
        self.seen += 1
        if self._nth and self.seen not in self._nth:
            return False
        if self._probability is not None and self._rng.random() >= self._probability:
            return False
        if self._times is not None and self.hits >= self._times:
            return False
        self.hits += 1
        return True

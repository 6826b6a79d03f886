"""Faults: which requests and events a rule matches, and how often it is applied.

A rule counts the requests or events that match its op, path and client. Of these ``nth`` selects some by their number
and ``probability`` some at random, and ``times`` limits the hits. Each rule has its own random generator, seeded with
the server's seed and the number of the rule, so the same seed hits the same requests, whatever other rules do.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection
from random import Random
from types import TracebackType
from typing import Final, Self

from zoolet.protocol.operations import OPERATIONS, codes_named, name_of, names
from zoolet.server.testing.frames.actions import Action
from zoolet.server.testing.frames.requests import CONNECT, Request, When

NEAR_MISSES: Final = 3
"""How many requests the error of a strict fault shows that nearly matched it."""
_SEQUENCE: Final = re.compile(r"-?\d{10}$")


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
    matches = re.compile(fnmatch.translate(path)).match
    return lambda candidate: matches(candidate) is not None


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


def _check_action(action: object) -> None:
    if not isinstance(action, Action):
        raise ValueError(
            f"action {action!r} is unknown; one of delay(s), error(code), drop_request(), lose_reply(), "
            "close_after(), hold(), withhold_event(), corrupt_reply(), cut_reply(), slow_reply(rate), all of "
            "zoolet.testing"
        )
    if action.used:
        raise ValueError(f"action {action!r} belongs to another fault already; make a new one")


class Fault:
    """A rule that is applied until its ``with`` block or :meth:`end` ends it.

    :meth:`Server.fault` returns it and documents the arguments.

    Attributes:
        hits: The number of requests or events to which it was applied.
        seen: The number of requests or events that matched op, path, client and *when*.
        was_too_long: Whether it has held a request for longer than its limit.
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
        when: When | None = None,
        strict: bool = False,
        rng: Random | None = None,
        end: Callable[[Fault], None] | None = None,
        release: Callable[[Fault], None] | None = None,
    ) -> None:
        _check_action(action)
        if when is not None and not callable(when):
            raise ValueError(f"when is {when!r}; it must be a function of a request, such as lambda op: op.data == b''")
        picked = _numbers(nth)
        _check_limits(probability, times)
        if action.events and op is not None:
            raise ValueError(f"op {op!r} is invalid with withhold_event(); an event belongs to no operation")
        self.action = action
        self.hits = self.seen = 0
        self.was_too_long = False
        self._near: list[str] = []
        self._op, self._path = op, path
        self._when = when
        self._when_error: Exception | None = None
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
        conditions = {"op": op, "path": path, "nth": nth, "probability": probability, "times": times, "when": when}
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
        __tracebackhide__ = True
        self.end()
        if kind is not None:
            return
        if self._when_error is not None:
            raise self._when_error
        if self.was_too_long:
            raise TimeoutError(
                f"{self!r} has held a request for {self.action.limit} s, its limit, without a release(); then it was "
                "executed"
            )
        if self._strict and not self.hits:
            raise AssertionError(self._why_not())

    def _why_not(self) -> str:
        """Return the message for a strict fault that was never applied."""
        message = f"{self!r} was strict and was never applied"
        if self.seen:
            return f"{message}; {self.seen} matched it, of which nth, probability and times selected none"
        if self._near:
            return f"{message}; what came close:" + "".join(f"\n  {line}" for line in self._near)
        return f"{message}; nothing that matched it, or nearly did, was requested while it was active"

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

    def claim(self, request: Request) -> bool:
        """Count a request or event, and return whether the fault is applied to it."""
        if self.action.events != (request.event is not None) or self.action.released:
            return False
        if not self._is_meant(request):
            if self._strict and len(self._near) < NEAR_MISSES:
                self._note(request)
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

    def delay(self) -> float:
        """Return for how many seconds a request that matches is delayed."""
        jitter = self.action.jitter
        return self.action.seconds + (self._rng.uniform(0, jitter) if jitter else 0.0)

    def _is_meant(self, request: Request) -> bool:
        if request.opcode == CONNECT and self.action.code:  # the answer to a handshake has no error code
            return False
        if self._ops is not None and request.opcode not in self._ops:
            return False
        if self._session is not None and self._session() != request.session:
            return False
        if self._matches is not None and not any(map(self._matches, request.paths)):
            return False
        if self._when is None or self._when_error is not None:
            return self._when is None
        try:
            return bool(self._when(request.view))
        except Exception as error:  # of the test's: raised at the end of the block
            self._when_error = error
            return False

    def _note(self, request: Request) -> None:
        """Remember a request that nearly matches, and why it does not."""
        is_op = self._ops is None or request.opcode in self._ops
        is_path = self._matches is None or any(map(self._matches, request.paths))
        why = None
        if is_op and is_path:
            is_client = self._session is None or self._session() == request.session
            why = "when() was false" if is_client else "it is another client's"
        elif is_op and self._matches is not None:
            why = _nearly(self._matches, request.paths, str(self._path))
        elif is_path and self._path is not None:
            advice = "; op='multi' matches it" if request.view.parts else ""
            why = f"it is {name_of(request.opcode)}{advice}"
        if why is not None and (line := f"{request.view.title}: {why}") not in self._near:
            self._near.append(line)


def _nearly(matches: Callable[[str], bool], paths: tuple[str, ...], glob: str) -> str | None:
    """Return why paths do not match a glob, if they nearly do; None if they are quite different."""
    for path in paths:
        if _SEQUENCE.search(path) and (matches(path[:-10]) or matches(path[:-11])):
            return f"its name has a sequence number; {glob}* matches it"
        places = [place for place, letter in enumerate(path) if letter == "/" and place]
        if any(matches(path[place:]) for place in places):
            return f"the path is the server's, with the client's chroot; *{glob} matches it"
        if matches(path.rpartition("/")[0] or "/"):
            return f"it is below; {glob.rstrip('/')}/* matches it"
    return None

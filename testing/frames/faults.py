"""Faults, whose rules are matched against requests and events.

A rule counts the requests or events that match its op, path and client. From these, ``nth`` selects some by number and
``probability`` selects some at random. ``times`` limits the hits. Each rule uses a separate random generator, seeded
with the server's seed and the number of the rule, so the same seed hits the same requests, whatever other rules do.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection
from difflib import get_close_matches
from random import Random
from types import TracebackType
from typing import Final, Self

from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS, codes_by_name, known_names, operation_name
from ...protocol.paths import sequence_number
from .actions import ACTIONS, Action
from .requests import CONNECT, InterceptedRequest, When

MAX_NEAR_MISSES: Final = 3
"""Maximum number of near misses that the error of a strict fault lists."""


def parse_op(op: str | int | None) -> frozenset[int] | None:
    """Return the op codes that a name or number stands for. None stands for all op codes, and is returned.

    Raises:
        ValueError: *op* is not a known operation.
    """
    if op is None:
        return None
    if isinstance(op, int) and not isinstance(op, bool):
        if op in OPERATIONS:
            return frozenset({int(op)})
    elif isinstance(op, str) and (codes := codes_by_name(op)):
        return codes
    if isinstance(op, str) and (near := get_close_matches(op, known_names(), 1)):
        raise ValueError(f"unknown op {op!r}; did you mean {near[0]}?")
    raise ValueError(f"op must be one of {', '.join(known_names())}, not {op!r}")


def compile_glob(path: str | None) -> Callable[[str], bool] | None:
    """Return a predicate for paths that match a glob, where ``*`` also matches slashes. For None, return None.

    Raises:
        ValueError: No path could match the glob.
    """
    if path is None:
        return None
    if not isinstance(path, str) or not path or path[0] not in "/*?[":
        raise ValueError(f"path must be a glob that starts with '/' or '*', not {path!r}")
    if path.count("[") > path.count("]"):
        raise ValueError(f"path must be a glob with a ']' for each '[', not {path!r}")
    matches = re.compile(fnmatch.translate(path)).match
    return lambda candidate: matches(candidate) is not None


def _parse_nth(nth: int | Collection[int] | None) -> set[int]:
    picked: set[object] = {nth} if not isinstance(nth, Collection) or isinstance(nth, str) else set(nth)
    wrong = [number for number in picked if not isinstance(number, int) or isinstance(number, bool) or number < 1]
    if nth is None:
        return set()
    if wrong or not picked:
        raise ValueError(f"nth must be 1 for the first, 2 for the second, or a set of such numbers, not {nth!r}")
    return {number for number in picked if isinstance(number, int)}


def _check_limits(probability: float | None, times: int | None) -> None:
    if probability is not None and not (isinstance(probability, int | float) and 0 <= probability <= 1):
        raise ValueError(f"probability must be from 0 to 1, not {probability!r}")
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or times < 1):
        raise ValueError(f"times must be 1 or more, not {times!r}")


def _check_action(action: object) -> None:
    if not isinstance(action, Action):
        raise ValueError(f"action must come from a function of zoolet.testing ({', '.join(ACTIONS)}), not {action!r}")
    if action.used:
        raise ValueError(f"action {action!r} already belongs to another fault; create a new action")


class Fault:
    """An injected fault. It applies until its ``with`` block is left or :meth:`end` is called.

    :meth:`Server.fault` creates faults and documents the arguments.

    Attributes:
        hits: Number of requests or events that the fault was applied to.
        seen: Number of requests or events that matched op, path, client and *when*.
        was_too_long: Whether the fault held a request for longer than its limit.
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
            raise ValueError(f"when must be a function of a request, such as lambda op: op.data == b'', not {when!r}")
        picked = _parse_nth(nth)
        _check_limits(probability, times)
        if action.events and op is not None:
            raise ValueError(f"op must be None with withhold_event(), because events have no operation, not {op!r}")
        self.action = action
        self.hits = self.seen = 0
        self.was_too_long = False
        self._near_misses: list[str] = []
        self._op, self._path = op, path
        self._when = when
        self._when_error: Exception | None = None
        self._ops = parse_op(op)
        if self._ops is not None and CONNECT in self._ops and action.code:
            raise ValueError(f"op='connect' does not support {action!r}: a handshake response has no error code")
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
        if when is not None:
            self._conditions += f", when={getattr(when, '__qualname__', when)}"
        action.used = True
        if release is not None:
            action.on_release = lambda: release(self)

    def __repr__(self) -> str:
        client = "" if self._session is None else f", client={hexadecimal(self._session() or 0)}"
        return f"fault({self.action}{self._conditions}{client})"

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
                f"{self!r} held a request for its limit of {self.action.limit} s without a release(); the request was "
                "then executed"
            )
        if self._strict and not self.hits:
            raise AssertionError(self._unapplied_message())

    def _unapplied_message(self) -> str:
        """Return the message for a strict fault that was never applied."""
        message = f"{self!r} was strict and was never applied"
        if self.seen:
            return f"{message}; nth, probability and times selected none of {self.seen} matching requests or events"
        if self._near_misses:
            return f"{message}; near misses:" + "".join(f"\n  {line}" for line in self._near_misses)
        return f"{message}; no request or event matched or nearly matched while the fault was active"

    def end(self) -> None:
        """End the fault. Held requests are executed, and withheld events are lost."""
        if self._end is not None:
            self._end(self)

    def release(self) -> None:
        """Release the held requests or events, and stop holding new ones.

        Raises:
            ValueError: The action is neither ``hold()`` nor ``withhold_event()``.
        """
        self.action.release()

    # --- for the interceptor ---

    def claim(self, request: InterceptedRequest) -> bool:
        """Count a request or event, and return whether the fault is applied to it."""
        if self.action.events != (request.event is not None) or self.action.released:
            return False
        if not self._matches_rule(request):
            if self._strict and len(self._near_misses) < MAX_NEAR_MISSES:
                self._note_near_miss(request)
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
        """Return the delay of the next matching request in seconds."""
        jitter = self.action.jitter
        return self.action.seconds + (self._rng.uniform(0, jitter) if jitter else 0.0)

    def _matches_rule(self, request: InterceptedRequest) -> bool:
        if request.opcode == CONNECT and self.action.code:  # a handshake response has no error code
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
        except Exception as error:  # an error of the test, which the end of the block raises
            self._when_error = error
            return False

    def _note_near_miss(self, request: InterceptedRequest) -> None:
        """Record a request that nearly matches, with the reason why it does not."""
        is_op = self._ops is None or request.opcode in self._ops
        is_path = self._matches is None or any(map(self._matches, request.paths))
        why = None
        if is_op and is_path:
            is_client = self._session is None or self._session() == request.session
            why = "when() was false" if is_client else "sent by a different client"
        elif is_op and self._matches is not None:
            why = _near_miss_reason(self._matches, request.paths, str(self._path))
        elif is_path and self._path is not None:
            advice = "; use op='multi', or leave op out" if request.view.parts else ""
            why = f"the op is {operation_name(request.opcode)}{advice}"
        if why is not None and (line := f"{request.view.title}: {why}") not in self._near_misses:
            self._near_misses.append(line)


def _near_miss_reason(matches: Callable[[str], bool], paths: tuple[str, ...], glob: str) -> str | None:
    """Return the reason why a path narrowly misses a glob, or None if all paths are quite different."""
    for path in paths:
        if sequence_number(path) is not None and (matches(path[:-10]) or matches(path[:-11])):
            return f"the name has a sequence number; use {glob}*"
        places = [place for place, letter in enumerate(path) if letter == "/" and place]
        if any(matches(path[place:]) for place in places):
            return f"the path includes the client's chroot; use *{glob}"
        if matches(path.rpartition("/")[0] or "/"):
            return f"the path is a child; use {glob.rstrip('/')}/*"
        if get_close_matches(path, (glob.rstrip("/*"),)):
            return f"the path differs slightly from {glob}"
    return None

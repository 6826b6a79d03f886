"""Hooks that are called for each request, for metrics and traces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...protocol.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NoWatcherError,
    ThrottledOpError,
)
from .call import Call

_log = logging.getLogger("zoolet.client")
LOG_INTERVAL: Final = 60.0
"""Minimum time in seconds between two logged errors of a hook."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request, as a hook receives it.

    Args:
        operation: ZooKeeper's name of the operation, such as ``getData``, ``create2`` or ``multi``.
        path: Path of the node, without the chroot; None for a request with no path or several.
        expected: Error classes that are not failures, because a recipe or a call with several requests handles them.
            An example is the NoNodeError of the first lock at a path.
    """

    operation: str
    path: str | None
    expected: tuple[type[Exception], ...] = ()


EXPECTED_ERRORS: Final = (
    BadVersionError,
    NoNodeError,
    NodeExistsError,
    NotEmptyError,
    NoWatcherError,
    ThrottledOpError,
)
"""Errors that recipes handle as part of their normal work."""


CompletionHook = Callable[[BaseException | None], None]
"""Function that is called once when a request completes: with None, with its error, or with a CancelledError."""
RequestHook = Callable[[RequestInfo], CompletionHook | None]
"""Function that is called for each request of a client and its recipes, in the context of the caller.

It is not called for pings, credentials and watches that are registered again. It may return a function, which is called
when the request completes. A hook runs in the client's event loop, so it must not block or make requests. Its errors
are logged, at most once per minute, and otherwise ignored.
"""


class GuardedHook:
    """A hook whose errors are logged and otherwise ignored.

    At most one error is logged in :data:`LOG_INTERVAL` seconds.
    """

    def __init__(self, hook: RequestHook) -> None:
        self._hook = hook
        self._next_log = 0.0  # on the loop's clock
        self._unlogged_errors = 0

    def call(self, request: RequestInfo, call: Call[Any]) -> None:
        """Call the hook for a request and, when its call completes, the function that the hook returned."""
        ended = self._call_guarded(call, self._hook, request)
        if ended is not None:
            call.add_done_callback(partial(self._call_completion, ended, call))

    def _call_completion(self, ended: CompletionHook, call: Call[Any], _: object) -> None:
        self._call_guarded(call, ended, call.error())

    def _call_guarded(self, call: Call[Any], function: Callable[..., Any], argument: object) -> Any:
        try:
            return function(argument)
        except Exception:
            now = call.get_loop().time()
            if now >= self._next_log:
                more = f"; {self._unlogged_errors} earlier errors were not logged" if self._unlogged_errors else ""
                _log.exception("the hook on_request %r failed%s", self._hook, more)
                self._next_log, self._unlogged_errors = now + LOG_INTERVAL, -1
            self._unlogged_errors += 1
            return None

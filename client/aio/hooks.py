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


EXPECTED: Final = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError, NoWatcherError, ThrottledOpError)
"""Errors that recipes handle as part of their normal work."""


RequestEnded = Callable[[BaseException | None], None]
"""Called once when a request completes: with None, with its error, or with a CancelledError."""
RequestHook = Callable[[RequestInfo], RequestEnded | None]
"""Called for each request of a client and its recipes, in the context of its caller, but not for pings, credentials and
watches that are registered again. It may return a function, which is called when the request completes. A hook runs in
the client's event loop, so it must not block or make requests. Errors that it raises are logged and otherwise ignored.
"""


def call_hook(hook: RequestHook, request: RequestInfo, call: Call[Any]) -> None:
    """Call a hook for a submitted request, and when the request completes, the function that the hook returned."""
    ended = _guarded(hook, request)
    if ended is not None:
        call.add_done_callback(partial(_end, ended, call))


def _end(ended: RequestEnded, call: Call[Any], _: object) -> None:
    _guarded(ended, call.error())


def _guarded(function: Callable[..., Any], argument: object) -> Any:
    try:
        return function(argument)
    except Exception:
        _log.exception("the hook on_request failed")
        return None

"""A hook for each request, for metrics and traces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from zoolet.client.aio.call import Call
from zoolet.protocol.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NoWatcherError,
    ThrottledOpError,
)

_log = logging.getLogger("zoolet.client")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request, for a hook.

    Args:
        operation: Its operation, as ZooKeeper names it: ``getData``, ``create2``, ``multi``.
        path: Its node, as the client names it; None if it has none or several.
        expected: Errors that are no failure, because a recipe, or a call that makes several requests, works with them:
            the NoNodeError of the first lock at a path, for example.
    """

    operation: str
    path: str | None
    expected: tuple[type[Exception], ...] = ()


EXPECTED: Final = (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError, NoWatcherError, ThrottledOpError)
"""Errors with which recipes work."""


RequestEnded = Callable[[BaseException | None], None]
"""Called once when a request is done: with None, with its error, or with a CancelledError."""
RequestHook = Callable[[RequestInfo], RequestEnded | None]
"""Called for each request that a client makes, its recipes' too, in the context of its caller; not for pings,
credentials and watches that are registered again. Returns what is to be called when the request is done, or None. It
runs inside the client's loop: it must not block, nor make requests. Errors that it raises are logged, and harm nothing.
"""


def call_hook(hook: RequestHook, request: RequestInfo, call: Call[Any]) -> None:
    """Call a hook for a request that is under way, and what it returns when that is done."""
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

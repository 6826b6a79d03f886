"""A hook for each request, for metrics and traces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from zoolet.client.call import Call

_log = logging.getLogger("zoolet.client")

Ended = Callable[[BaseException | None], None]
"""Called once when a request is done: with None, with its error, or with a CancelledError."""
RequestHook = Callable[[str, str | None], Ended | None]
"""Called for each request that a client makes, its recipes' too, in the context of its caller: with the operation as in
:mod:`zoolet.protocol.operations`, and the path, None if it has none or several. Returns what is to be called when it is
done, or None. It runs inside the client's loop, so it must not block; what it raises is logged, and harms nothing.
"""


def call_hook(hook: RequestHook, operation: str, path: str | None, call: Call[Any]) -> None:
    """Call a hook for a request that is under way, and what it returns when that is done."""
    ended = _guarded(hook, operation, path)
    if ended is not None:
        call.add_done_callback(partial(_end, ended, call))


def _end(ended: Ended, call: Call[Any], _: object) -> None:
    _guarded(ended, call.error())


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception:
        _log.exception("the hook on_request failed")
        return None

"""A pytest plugin, ``-p support.eager_tasks``, that runs each new task immediately, until its first wait."""

from __future__ import annotations

import asyncio
from typing import Any

_create = asyncio.BaseEventLoop.__init__


def _create_with_eager_tasks(self: Any) -> None:
    _create(self)
    self.set_task_factory(asyncio.eager_task_factory)  # from Python 3.12 on


asyncio.BaseEventLoop.__init__ = _create_with_eager_tasks  # type: ignore[method-assign]

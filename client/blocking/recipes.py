"""The recipes for threads: ``Counter(zk, "/n").add()``, with a client of :mod:`zoolet.client.blocking`.

Names, arguments, results and errors are the same as in :mod:`zoolet.client.recipes`.
:mod:`zoolet.client.blocking.proxy` describes how coroutines, iterators and blocks are translated. The default of locks
is ``on_lost="flag"``.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Final

from .. import client as async_client
from .. import recipes
from ..aio.one_shot_event import OneShotEvent
from ..recipes._owned_node import OwnedNode
from ..recipes.multilock import MultiLease
from ..recipes.rwlock import ReadLock, WriteLock
from .proxy import BLOCKING_DEFAULTS, PROXIED_TYPES, Blocking, blocking_class, bound_arguments
from .thread_client import ThreadClient

_LEASES: Final = ("DurableLease", "QueueEntry", "Lease")
"""Classes that recipes return, and that programs do not instantiate."""
RECIPES: Final = tuple(
    name for name in recipes.__all__ if issubclass(getattr(recipes, name), PROXIED_TYPES) and name not in _LEASES
)
"""The names of the recipes."""


class _Recipe:
    """A mixin with the constructor of a blocking recipe."""

    asyncio_class: ClassVar[type]

    def __init__(self, client: ThreadClient[Any], *args: Any, **options: Any) -> None:
        recipe = self.asyncio_class
        signature = inspect.signature(recipe)
        options = {name: value for name, value in BLOCKING_DEFAULTS.items() if name in signature.parameters} | options
        if not isinstance(client, ThreadClient):
            is_async = isinstance(client, async_client.Client)
            hint = "; for an asyncio client use zoolet.client.recipes" if is_async else ""
            raise TypeError(f"a blocking recipe needs a zoolet.client.blocking.Client, not {client!r}{hint}")
        positional = client.asyncio_client, *args
        bound = bound_arguments(client.loop_thread, recipe.__name__, signature, positional, options)

        async def make() -> Any:
            return recipe(*bound.args, **bound.kwargs)

        Blocking.__init__(self, client.loop_thread, client.loop_thread.run(make))  # type: ignore[arg-type] # a Blocking


for _name in recipes.__all__:  # recipes.pyi, which `make faces` writes, has the same names
    _asyncio = getattr(recipes, _name)
    if _name in RECIPES:
        _asyncio = blocking_class(_asyncio, _Recipe)
    elif issubclass(_asyncio, PROXIED_TYPES):
        _asyncio = blocking_class(_asyncio)
    globals()[_name] = _asyncio

for _asyncio in (MultiLease, OneShotEvent, OwnedNode, ReadLock, WriteLock):  # recipes return objects of these classes
    globals()[_asyncio.__name__] = blocking_class(_asyncio)

__all__: list[str] = []
__all__ += recipes.__all__  # type checkers understand only this form


def __dir__() -> list[str]:
    return __all__

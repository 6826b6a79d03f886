"""The recipes for threads: ``Counter(zk, "/n").add()``, with a client of :mod:`zoolet.client.blocking`.

Names, arguments, results and errors are those of :mod:`zoolet.client.recipes`; :mod:`zoolet.client.blocking.proxy` says
what becomes of coroutines, iterators and blocks. Locks are ``on_lost="flag"`` here unless something else is asked for.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Final

from zoolet.client import recipes
from zoolet.client.aio import client as aio
from zoolet.client.aio.one_shot_event import OneShotEvent
from zoolet.client.blocking.proxy import DEFAULTS, WRAPPED, Blocking, bound_arguments, face_of
from zoolet.client.blocking.thread_client import ThreadClient
from zoolet.client.recipes._owned_node import OwnedNode
from zoolet.client.recipes.multilock import MultiLease
from zoolet.client.recipes.rwlock import ReadLock, WriteLock

_LEASES: Final = ("DurableLease", "Entry", "Lease")
"""Classes that recipes return; programs do not make them."""
RECIPES: Final = tuple(
    name for name in recipes.__all__ if issubclass(getattr(recipes, name), WRAPPED) and name not in _LEASES
)
"""The names of the recipes."""


class _Recipe:
    """The constructor of a recipe for threads, before the class that it is an object of."""

    asyncio_class: ClassVar[type]

    def __init__(self, client: ThreadClient, *args: Any, **options: Any) -> None:
        recipe = self.asyncio_class
        signature = inspect.signature(recipe)
        options = {name: value for name, value in DEFAULTS.items() if name in signature.parameters} | options
        if not isinstance(client, ThreadClient):
            hint = ": its recipes are those of zoolet.client.recipes" if isinstance(client, aio.Client) else ""
            raise TypeError(f"a recipe for threads needs a zoolet.client.blocking.Client, not {client!r}{hint}")
        bound = bound_arguments(client.loop_thread, signature, (client.asyncio_client, *args), options)

        async def make() -> Any:
            return recipe(*bound.args, **bound.kwargs)

        Blocking.__init__(self, client.loop_thread, client.loop_thread.run(make))  # type: ignore[arg-type] # it is one


for _name in recipes.__all__:  # recipes.pyi, which `make faces` writes, has the same names
    _asyncio = getattr(recipes, _name)
    if _name in RECIPES:
        _asyncio = face_of(_asyncio, _Recipe)
    elif issubclass(_asyncio, WRAPPED):
        _asyncio = face_of(_asyncio)
    globals()[_name] = _asyncio

for _asyncio in (MultiLease, OneShotEvent, OwnedNode, ReadLock, WriteLock):  # which others return
    globals()[_asyncio.__name__] = face_of(_asyncio)

__all__ = [*recipes.__all__]


def __dir__() -> list[str]:
    return __all__

"""The recipes for threads: ``Counter(zk, "/n").add()``, with a client of :mod:`zoolet.client.blocking`.

Names, arguments, results and errors are those of :mod:`zoolet.client.recipes`; :mod:`zoolet.client.blocking.proxy` says
what becomes of coroutines, iterators and blocks. Locks are ``on_lost="flag"`` here unless something else is asked for.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from zoolet.client import recipes
from zoolet.client.aio import client as aio
from zoolet.client.blocking.client import Client
from zoolet.client.blocking.proxy import Blocking, bound_arguments
from zoolet.client.recipes import DeadlockError, Instance, LockLostError

__all__ = ["DeadlockError", "Instance", "LockLostError"]
_RESULTS = ("DurableLease", "Entry", "Holder", "Lease", "LockEntry", "LockLine", "SharedLine", "Wait")
"""What recipes return, and nobody makes."""


class _Recipe:
    """The constructor of a recipe for threads, before the class that it is an object of."""

    recipe: ClassVar[type]

    def __init__(self, client: Client, *args: Any, **options: Any) -> None:
        recipe = self.recipe
        if "on_lost" in inspect.signature(recipe).parameters:
            options.setdefault("on_lost", "flag")
        if not isinstance(client, Client):
            hint = ": its recipes are those of zoolet.client.recipes" if isinstance(client, aio.Client) else ""
            raise TypeError(f"a recipe for threads needs a zoolet.client.blocking.Client, not {client!r}{hint}")
        signature = inspect.signature(recipe)
        bound = bound_arguments(client.loop_thread, signature, (client.asyncio_client, *args), options)

        async def make() -> Any:
            return recipe(*bound.args, **bound.kwargs)

        super().__init__(client.loop_thread, client.loop_thread.run(make))  # type: ignore[call-arg] # a Blocking's


def _made_blocking(recipe: type) -> type:
    """Return the class for threads of a recipe's."""
    return type(
        recipe.__name__, (_Recipe, Blocking), {"recipe": recipe, "__doc__": recipe.__doc__, "__module__": __name__}
    )


for _name in recipes.__all__:
    _recipe = getattr(recipes, _name)
    if _name not in (*__all__, *_RESULTS):
        globals()[_name] = _made_blocking(_recipe)
        __all__ += [_name]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

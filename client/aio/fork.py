"""Protection of forked processes: using the parent's connection in a child would corrupt it for both.

Every running client is registered here. In a forked child all of them reject calls.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .core import ClientCore

FORKED: Final = "this Client belongs to the parent of this forked process; create a new one after the fork"
"""The error of a client in a forked child."""
_running: weakref.WeakSet[ClientCore] = weakref.WeakSet()


def register(client: ClientCore) -> None:
    """Invalidate a client in every child that is forked later."""
    _running.add(client)


def unregister(client: ClientCore) -> None:
    """Stop tracking a client, because it was closed."""
    _running.discard(client)


def _after_fork() -> None:
    for client in list(_running):
        client.invalidate_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Protection of forked processes: using the parent's connection in a child would corrupt it for both.

Every running client is registered here. In a forked child, all these clients reject calls.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .core import ClientCore

FORKED_MESSAGE: Final = "this Client belongs to the parent of this forked process; create a new one after the fork"
"""The message of the error that a client raises in a forked child."""
_running_clients: weakref.WeakSet[ClientCore] = weakref.WeakSet()


def register(client: ClientCore) -> None:
    """Register a running client, which is then invalidated in every forked child."""
    _running_clients.add(client)


def unregister(client: ClientCore) -> None:
    """Stop tracking a client, because it was closed."""
    _running_clients.discard(client)


def _after_fork() -> None:
    for client in list(_running_clients):
        client.invalidate_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

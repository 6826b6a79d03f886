"""Forked children: a connection is its parent's, and using it in a child would garble both.

Every client that runs is registered here; in a forked child all of them refuse their calls.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Invalidated(Protocol):
    """An object that must not be used in a forked child."""

    def invalidate_after_fork(self) -> None:
        """Refuse all calls from now on."""
        ...


_running: weakref.WeakSet[Invalidated] = weakref.WeakSet()


def register(client: Invalidated) -> None:
    """Invalidate a client in every child that is forked from now on."""
    _running.add(client)


def unregister(client: Invalidated) -> None:
    """Forget a client."""
    _running.discard(client)


def _after_fork() -> None:
    for client in list(_running):
        client.invalidate_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

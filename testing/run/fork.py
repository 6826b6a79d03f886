"""The sockets of a parent's servers, which a forked child process must close.

A socket is closed only when every process has closed it. A child that kept its copies would keep the parent's port in
use, and the parent's clients connected, after the parent has stopped.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class SocketOwner(Protocol):
    """An object that owns sockets."""

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all its sockets."""
        ...


_owners: weakref.WeakSet[SocketOwner] = weakref.WeakSet()


def register(owner: SocketOwner) -> None:
    """Close the sockets of *owner* in every child process that is forked after this call."""
    _owners.add(owner)


def unregister(owner: SocketOwner) -> None:
    """Remove *owner*, if it is registered."""
    _owners.discard(owner)


def _close_sockets_in_child() -> None:
    """Redirect the descriptors to /dev/null. Closing them is not safe, because the child has copies of their owners."""
    owners = list(_owners)
    if not owners:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for owner in owners:
        for number in owner.descriptors():
            os.dup2(nowhere, number)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_sockets_in_child)

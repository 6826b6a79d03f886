"""What a forked child does about the servers of its parent: it closes its copies of their sockets.

A socket is closed only when every process has closed it. A child that kept its copies would keep the parent's port
taken and the parent's clients connected after the parent has stopped.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class SocketOwner(Protocol):
    """What a server has to offer for this."""

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all its sockets."""
        ...


_owners: weakref.WeakSet[SocketOwner] = weakref.WeakSet()


def register(owner: SocketOwner) -> None:
    """Close the sockets of *owner* in every child that is forked from now on."""
    _owners.add(owner)


def unregister(owner: SocketOwner) -> None:
    """Do nothing about *owner* any more; harmless if it was never registered."""
    _owners.discard(owner)


def _close_sockets_in_child() -> None:
    """Point the descriptors to nowhere; they are not closed, because the objects that own them still exist here."""
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

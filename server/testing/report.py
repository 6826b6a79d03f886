"""The reports of the pytest plugin: the state of the server after a failed test, and what a test has left behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from zoolet.server.testing.server import Server
from zoolet.server.testing.views import NodeView

_CONTENDER: Final = re.compile(r"(?:__lock__|__rlock__|__WRIT__|__READ__|lock-|lease-|latch-)-?\d{10}$")
_SHOWN: Final = 20


def describe(server: Server, before: Mapping[str, NodeView]) -> str:
    """Return the changes of the tree since *before*, the sessions, watches and last 20 operations, as text."""
    parts = {
        "tree, as it changed": difference(before, server.tree()),
        "sessions": [
            f"0x{id:x} timeout {view.timeout} s, {view.client or 'not connected'}, {len(view.ephemerals)} ephemerals"
            for id, view in server.sessions().items()
        ],
        "watches": [f"{watch.path} {watch.kind} 0x{watch.session:x}" for watch in server.watches()],
        f"last {_SHOWN} operations": [str(op) for op in server.ops(_SHOWN)],
    }
    lines = [f"seed {server.seed}"]
    for title, entries in parts.items():
        lines += [f"{title}:", *(f"  {entry}" for entry in entries or ["none"])]
    return "\n".join(lines)


def difference(before: Mapping[str, NodeView], after: Mapping[str, NodeView]) -> list[str]:
    """Return a line for each node that was created (+), deleted (-) or has other data (~)."""
    lines = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old is None and new is not None:
            lines.append(f"+ {path} {_data(new)}{' ephemeral' if new.ephemeral_owner else ''}")
        elif new is None:
            lines.append(f"- {path}")
        elif old is not None and old.mzxid != new.mzxid:
            lines.append(f"~ {path} {_data(old)} -> {_data(new)}")
    return lines


def _data(node: NodeView) -> str:
    if node.data is None or len(node.data) <= 40:
        return repr(node.data)
    return f"{node.data[:40]!r}... ({len(node.data)} bytes)"


def leaks(server: Server) -> list[str]:
    """Return a line for each session, ephemeral node, lock contender and watch that remains."""
    lines = []
    for session in server.sessions().values():
        lines.append(f"session 0x{session.id:x} is still open, from {session.client or 'nowhere'}")
        for path in session.ephemerals:
            kind = "lock contender" if _CONTENDER.search(path) else "ephemeral node"
            lines.append(f"{kind} {path} of session 0x{session.id:x}")
    lines += [f"{watch.kind} watch on {watch.path} of session 0x{watch.session:x}" for watch in server.watches()]
    return lines

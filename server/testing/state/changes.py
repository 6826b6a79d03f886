"""Changes that a test makes in a server's state directly, without a client."""

from __future__ import annotations

from zoolet.protocol import paths
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import (
    BadArgumentsError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from zoolet.protocol.paths import QUOTA, ZOOKEEPER
from zoolet.protocol.quotas import LIMITS, STATS
from zoolet.protocol.txns import CreateTxn, DeleteTxn, SetDataTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import int32, is_session
from zoolet.server.core.tree import RESERVED
from zoolet.server.testing.state.populate import populate
from zoolet.server.testing.state.views import check_path


def create(engine: Engine, path: str, data: bytes | str | None, owner: int, *, sequential: bool) -> str:
    """Create a node of a session, 0 for none, with events; return its path.

    Raises:
        ValueError: The path is none, or the data is neither bytes, text nor None.
        NodeExistsError: There is such a node.
        NoChildrenForEphemeralsError: The parent is ephemeral.
    """
    if data is not None and not isinstance(data, bytes | str):
        raise ValueError(f"{path}: the data is {data!r}; it must be bytes, text or None")
    check_path(f"{path}0" if sequential else path)
    above = paths.parent(path) if not sequential else path[: path.rindex("/")] or "/"
    if engine.tree.get(above) is None:
        populate(engine, {above: b""})
    parent = engine.tree.find(above)
    if is_session(parent.owner):
        raise NoChildrenForEphemeralsError(path)
    if sequential:
        path += paths.sequence_suffix(parent.creates)
    if engine.tree.get(path) is not None:
        raise NodeExistsError(path)
    encoded = data.encode() if isinstance(data, str) else data
    engine.zxid += 1
    engine.apply(CreateTxn(path, encoded, OPEN_ACL_UNSAFE, bool(owner), int32(parent.creates + 1)), owner)
    return path


def set_data(engine: Engine, path: str, data: bytes | str | None) -> None:
    """Set a node's data, with events.

    Raises:
        ValueError: The path is none, or the data is neither bytes, text nor None.
        NoNodeError: There is no such node.
    """
    if data is not None and not isinstance(data, bytes | str):
        raise ValueError(f"{path}: the data is {data!r}; it must be bytes, text or None")
    check_path(path)
    node = engine.tree.get(path)
    if node is None:
        raise NoNodeError(path, "there is no such node; populate() creates nodes")
    engine.zxid += 1
    encoded = data.encode() if isinstance(data, str) else data
    engine.apply(SetDataTxn(path, encoded, node.version + 1), 0)


def delete(engine: Engine, path: str, *, recursive: bool) -> None:
    """Delete a node, with events; with *recursive* the nodes below it first.

    Raises:
        ValueError: The path is none.
        NoNodeError: There is no such node.
        NotEmptyError: It has children.
        BadArgumentsError: It is one that every server has.
    """
    check_path(path)
    if path in RESERVED:
        raise BadArgumentsError(path, "every server has this node; it cannot be deleted")
    below = [at for at, _ in engine.tree.walk(path)]
    if len(below) > 1 and not recursive:
        raise NotEmptyError(path, "it has children; delete(path, recursive=True) deletes them, too")
    for at in reversed(below):  # parents come first
        engine.zxid += 1
        engine.apply(DeleteTxn(at), 0)


def set_quota(engine: Engine, path: str, count: int | None, size: int | None, *, hard: bool) -> None:
    """Replace the quota of a node.

    Raises:
        ValueError: The path or a limit is invalid, or both limits are missing.
    """
    if (reason := paths.path_error(path)) is not None or f"{path}/".startswith(("//", f"{ZOOKEEPER}/")):
        raise ValueError(f"{path!r} cannot have a quota: {reason or 'it must be below the root, outside /zookeeper'}")
    for name, limit in (("count", count), ("bytes", size)):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise ValueError(f"{name} is {limit!r}; it must be 0 or more, or None for no limit")
    if count is None and size is None:
        raise ValueError("set_quota() needs count=, bytes= or both")
    soft_count, soft_size = (-1 if hard or limit is None else limit for limit in (count, size))
    limits = f"count={soft_count},bytes={soft_size}"
    if hard:
        hard_count, hard_size = (-1 if limit is None else limit for limit in (count, size))
        limits += f"=;byteHardLimit={hard_size};countHardLimit={hard_count}"
    engine.quota.enforced = True  # otherwise writes are not even compared with limits
    populate(engine, {QUOTA + path + LIMITS: limits})
    if engine.tree.get(QUOTA + path + STATS) is None:
        populate(engine, {QUOTA + path + STATS: "count=0,bytes=0"})


def extend_sessions(engine: Engine, seconds: float) -> None:
    """Extend all sessions to their whole timeout, from a moment that is so many seconds from now."""
    for session in engine.sessions.alive.values():
        engine.sessions.touch(session, engine.monotonic_ms + round(seconds * 1000))

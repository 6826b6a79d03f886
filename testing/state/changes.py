"""Changes that a test makes in a server's state directly, without a client."""

from __future__ import annotations

from ...protocol import paths
from ...protocol.acl import OPEN_ACL_UNSAFE
from ...protocol.errors import (
    BadArgumentsError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from ...protocol.paths import QUOTA, ROOT
from ...protocol.quotas import LIMITS, STATS, Amount
from ...protocol.txns import CreateTxn, DeleteTxn, SetDataTxn
from ...server.core.engine import Engine
from ...server.core.node import int32, is_session
from ...server.core.tree import RESERVED
from .populate import populate
from .views import check_path


def create(engine: Engine, path: str, data: bytes | str | None, owner: int, *, sequential: bool) -> str:
    """Create a node, with events, and return its path. The *owner* is a session id, or 0 for no session.

    Raises:
        ValueError: The path is invalid, or the data is neither bytes, text nor None.
        NodeExistsError: The node exists already.
        NoChildrenForEphemeralsError: The parent is ephemeral.
    """
    _check_data(path, data)
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


def _check_data(path: str, data: object) -> None:
    if data is not None and not isinstance(data, bytes | str):
        raise ValueError(f"{path}: data must be bytes, text or None, not {data!r}")


def set_data(engine: Engine, path: str, data: bytes | str | None) -> None:
    """Set a node's data, with events.

    Raises:
        ValueError: The path is invalid, or the data is neither bytes, text nor None.
        NoNodeError: The node does not exist.
    """
    _check_data(path, data)
    check_path(path)
    node = engine.tree.get(path)
    if node is None:
        raise NoNodeError(path, "the node does not exist; use populate() to create nodes")
    engine.zxid += 1
    encoded = data.encode() if isinstance(data, str) else data
    engine.apply(SetDataTxn(path, encoded, node.version + 1), 0)


def delete(engine: Engine, path: str, *, recursive: bool) -> None:
    """Delete a node, with events. With *recursive*, delete the nodes below it first.

    Raises:
        ValueError: The path is invalid.
        NoNodeError: The node does not exist.
        NotEmptyError: The node has children, and *recursive* is false.
        BadArgumentsError: The node is one that every server has, such as ``/zookeeper``.
    """
    check_path(path)
    if path in RESERVED:
        raise BadArgumentsError(path, "every server has this node, so it cannot be deleted")
    below = [at for at, _ in engine.tree.walk(path)]
    if len(below) > 1 and not recursive:
        raise NotEmptyError(path, "the node has children; use delete(path, recursive=True) to delete them as well")
    for at in reversed(below):  # children first, because walk() yields parents first
        engine.zxid += 1
        engine.apply(DeleteTxn(at), 0)


def set_quota(engine: Engine, path: str, count: int | None, size: int | None, *, hard: bool) -> None:
    """Replace the quota of a node.

    Raises:
        ValueError: The path or a limit is invalid, or both limits are missing.
    """
    if (reason := paths.path_error(path)) is not None or path == ROOT or paths.is_internal(path):
        raise ValueError(
            f"{path!r} cannot have a quota: {reason or 'expected a node below the root and outside /zookeeper'}"
        )
    for name, limit in (("count", count), ("bytes", size)):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise ValueError(f"{name} must be 0 or more, or None for no limit, not {limit!r}")
    if count is None and size is None:
        raise ValueError("set_quota() needs count=, bytes= or both")
    keys = ("countHardLimit", "byteHardLimit") if hard else ("count", "bytes")
    limits = Amount.from_numbers(
        {key: -1 if limit is None else limit for key, limit in zip(keys, (count, size), strict=True)}
    )
    engine.quota.enforced = True  # by default the server does not check quotas at all
    populate(engine, {QUOTA + path + LIMITS: limits.encode()})
    if engine.tree.get(QUOTA + path + STATS) is None:
        populate(engine, {QUOTA + path + STATS: Amount(0, 0).encode()})


def extend_sessions(engine: Engine, seconds: float) -> None:
    """Extend all sessions: their whole timeouts start *seconds* from now."""
    for session in engine.sessions.alive.values():
        engine.sessions.touch(session, engine.monotonic_ms + round(seconds * 1000))

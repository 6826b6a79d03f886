"""The internals of a server that the fuzzers depend on: how to drive it, and its invariants."""

from __future__ import annotations

from collections import Counter
from itertools import chain, count
from math import inf
from random import Random
from typing import Any, Final

from fuzz import frames
from support.engine import make_engine

from zoolet.protocol.paths import QUOTA
from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.core.acls import LARGE_LIST_ENTRIES, _hash
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Children, Node
from zoolet.server.core.quota import LIMITS
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import EngineSettings
from zoolet.server.core.watches import RECURSIVE, weight

START_MS: Final = 1_700_000_000_000
"""The start time of every engine, in milliseconds since the epoch."""
COMMAND_ANSWERS: Final = four_letter_commands("*")
HOSTS: Final = ("127.0.0.1", "127.0.0.1", "10.0.0.7", "::1", "fe80::1%eth0")

VARIANTS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {},
    {"compat": V3_8},
    {"sasl_users": frames.SASL_USERS, "super_users": frozenset({"super"})},
    {"sasl_users": frames.SASL_USERS, "require_auth": frozenset({"sasl"})},
    {"sasl_users": frames.SASL_USERS, "allow_failed_sasl": True, "compat": V3_8},
    {"require_auth": frozenset({"digest"})},
    {"reconfig_enabled": True, "skip_acl": True},
    {"reconfig_enabled": True, "compat": V3_8, "expire_clients_ahead": False},
    {"enforce_quota": True},
    {"enforce_quota": True, "exact_deadlines": True, "min_session_timeout": 0},
    {"max_frame": 600, "max_output_per_turn": 300},
    {"max_output_per_turn": 2000, "extended_types": False},
    {"throttle_tokens": 3, "throttle_fill_time": 50, "sessionless_timeout": 500},
    {"container_never_used": 5000, "container_check_interval": 1000, "container_max_per_minute": 120},
)
"""The settings to try, in turn."""


def engine_for(variant: int) -> Engine:
    """Return a new server with the settings of a variant."""
    settings = EngineSettings(**{"super_digest": frames.SUPER_DIGEST, **VARIANTS[variant % len(VARIANTS)]})
    return make_engine(settings, now=START_MS, monotonic_ms=0, rng=Random(variant))


def connection_to(engine: Engine, host: str) -> ServerConnection:
    """Return a new connection to a server."""
    return ServerConnection(engine, ClientConnection(host, 40_000), COMMAND_ANSWERS)


def receive(connection: ServerConnection, data: bytes) -> bool:
    """Send bytes to a server. Return whether requests remain. With a small output limit, the turn also has a
    well.
    """
    clock = count()
    hurried = connection.engine.settings.max_output_per_turn <= 2000
    return connection.receive_data(data, len(data) % 5 if hurried else inf, lambda: next(clock))


# --- invariants between two calls ---


def fail_unless(claim: bool, *what: object) -> None:
    """Raise AssertionError unless a claim is true, even under ``python -O``."""
    if not claim:
        raise AssertionError(*what)


def check_equal(what: str, kept: object, found: object) -> None:
    """Compare a value that the server maintains with the value from a full scan."""
    if kept != found:
        raise AssertionError(f"{what}: the server keeps {kept!r:.2000}, and there is {found!r:.2000}")


def check_invariants(engine: Engine) -> None:
    """Compare every index and counter of a server with the data that it describes.

    Raises:
        AssertionError: An index or a counter is wrong.
    """
    nodes = dict(engine.tree.walk())
    _check_tree(engine, nodes)
    _check_acls(engine, nodes)
    _check_watches(engine)
    _check_sessions(engine)


def _check_tree(engine: Engine, nodes: dict[str, Node]) -> None:
    tree = engine.tree
    check_equal("size", tree.size, len(nodes))
    size, ephemerals, expiring, children = len(nodes["/"].data or b"") - 1, {}, {}, 0
    for path, node in nodes.items():
        size += len(path) + (len(node.data or b"") if path != "/" else 0)
        if node.owner > 0:
            ephemerals.setdefault(node.owner, set()).add(path)
            fail_unless(node.children is None, "an ephemeral node has children", path)
        elif node.owner:
            expiring[path] = node
        _check_memos(path, node)
        children += len(node.children or ())
    check_equal("nodes that are somebody's children", children, len(nodes) - 1)
    _check_counts_below(engine, nodes)
    check_equal("data_size", tree.data_size, size)
    check_equal("ephemerals", {owner: set(paths) for owner, paths in tree.ephemerals.items() if paths}, ephemerals)
    fail_unless(ephemerals.keys() <= engine.sessions.alive.keys(), "an ephemeral node of a session that is over")
    fail_unless(tree.expiring == expiring, "expiring", list(tree.expiring), list(expiring))
    for path, node in tree.path_cache.items():
        fail_unless(nodes.get(path or "/") is node, "known leads to a node that is not there", path)
    fail_unless(tree._undo is None and not tree._begun, "a transaction is still open")
    limited = {path[len(QUOTA) : -len(LIMITS)] for path in nodes if path.startswith(QUOTA) and path.endswith(LIMITS)}
    check_equal("nodes with a quota", set(engine.quota._limited), limited - {""})
    check_equal("whether there are quotas", engine.quota.active, bool(limited - {""}))
    fail_unless(
        not engine.quota.in_transaction and engine.quota.changes is None, "a transaction is still open in the quotas"
    )


def _check_counts_below(engine: Engine, nodes: dict[str, Node]) -> None:
    if engine.tree._counts_below:
        below = Counter(path[:at] or "/" for path in nodes if path != "/" for at in range(len(path)) if path[at] == "/")
        for path, node in nodes.items():
            if node.children is not None:
                check_equal(f"the count below {path}", node.children.below, below[path])


def _check_memos(path: str, node: Node) -> None:
    if node.encoding is not None:
        kept, node.encoding = node.encoding, None
        check_equal(f"the Stat of {path}", kept, node.stat())
    children = node.children
    if children is not None:
        fail_unless(len(children) > 0, "no children, and a table of them", path)
        if children.encoding is not None:  # the cached encoding lacks later creates and deletes
            fresh = Children()
            fresh.update(children)
            check_equal(f"the names below {path}", children.encoded(), fresh.encoded())


def _check_acls(engine: Engine, nodes: dict[str, Node]) -> None:
    acls = engine.acls
    uses = Counter(node.acl for node in nodes.values())
    check_equal("uses of ACLs", {key: each.uses for key, each in acls._lists.items()}, {**uses, 0: 0})
    check_equal(
        "hashes of ACLs", [_hash(each.acl) for each in acls._lists.values()], [e.hashed for e in acls._lists.values()]
    )
    keys: dict[int, list[int]] = {}
    for key, each in acls._lists.items():
        keys.setdefault(each.hashed, []).append(key)
    check_equal("keys of ACLs", acls._keys, keys)
    check_equal("large ACLs", acls.large, sum(len(each.acl) > LARGE_LIST_ENTRIES for each in acls._lists.values()))
    fail_unless(not acls.in_transaction and acls.changes is None, "a transaction is still open in the ACLs")


def _check_watches(engine: Engine) -> None:
    watches = engine.watches
    watches.sweep(1 << 30)
    active, weights = 0, 0
    recursive: tuple[dict[str, set[ClientConnection]], dict[str, set[ClientConnection]]] = ({}, {})
    stores: tuple[dict[str, set[ClientConnection]], dict[str, set[ClientConnection]]] = ({}, {})
    for client in engine.connections:
        for store, modes in enumerate(client.modes):
            active += len(modes)
            weights += sum(map(weight, modes))
            for path, mode in modes.items():
                fail_unless(0 < mode < 8, "watch modes", path, mode)
                if mode & RECURSIVE:
                    recursive[store].setdefault(path, set()).add(client)
                stores[store].setdefault(path, set()).add(client)
        check_equal("the weight of a connection's watches", client.watch_weight, sum(map(weight, chain(*client.modes))))
    check_equal("active watches", watches.active, active)
    check_equal("the weight of all watches", watches._weight, weights)
    for index, found in zip(watches._recursive, recursive, strict=True):
        check_equal("recursive watches", {path: set(index.get(path) or ()) for path in index}, found)
    for kept, found in zip(watches._stores, stores, strict=True):
        fail_unless({path: set(waiting) for path, waiting in kept.items()} == found, "a store of watches", kept, found)
    fail_unless(watches._held is None, "a transaction is still open in the watches")
    for client in engine.pending_output:
        fail_unless(client in engine.connections or client.closing, "something to send to a connection that is gone")


def _check_sessions(engine: Engine) -> None:
    alive = engine.sessions.alive
    for what, expiry, living in (
        ("sessions", engine.sessions.expiry, set(alive.values())),
        (
            "connections without a session",
            engine._sessionless,
            {one for one in engine.connections if one.session is None},
        ),
    ):
        fail_unless(expiry._buckets.keys() == set(expiry._deadlines), what, "buckets and their hours differ")
        fail_unless(len(expiry._buckets) == len(expiry._deadlines), what, "an hour stands twice")
        members = [(one, hour) for hour, bucket in expiry._buckets.items() for one in bucket]
        fail_unless({one for one, _ in members} == living, what, "those that can expire are not those that live")
        fail_unless(len(members) == len(living), what, "one of them is in two buckets")
        fail_unless(all(one.deadline == hour for one, hour in members), what, "a deadline is not that of its bucket")
    for session_id, session in alive.items():
        fail_unless(session.id == session_id, "a session under another's id", session_id)
        if session.client is not None:
            fail_unless(session.client.session is session, "a session whose connection serves another", session_id)
            fail_unless(session.client in engine.connections, "a session whose connection is gone", session_id)
    for client in engine.connections:
        if client.session is not None:
            fail_unless(alive.get(client.session.id) is client.session, "a connection of a session that is over")
            fail_unless(client.session.client is client, "a connection whose session has another")


def check_gone(engine: Engine, client: ClientConnection) -> None:
    """Check that a server keeps nothing of a lost connection."""
    fail_unless(client not in engine.connections and client not in engine.pending_output, "a lost connection is kept")
    fail_unless(client.session is None, "a lost connection has a session")
    fail_unless(engine.watches.unswept or not any(client.modes), "a lost connection has watches")

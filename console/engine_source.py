"""The source of the console for a server in this process.

Short answers, such as the details of a node, are read from the engine in one step. Long work runs in time slices of a
millisecond (:class:`Pace`): a search, the sorting of children, the list of locks, the rows of the history. All slices
of the console share one lock, which is held during each pause. So clients of the server get at least every second
millisecond, however many users the console has. The tree can change between two slices. An answer therefore shows each
node as it was when its slice ran, not the whole tree at one zxid.

Users without the token are *untrusted*: they see the data of a node only if its ACL list lets everyone read it, and
never a password hash. Concurrent requests for the locks share one reading, but untrusted users have their own.

The source of each answer::

    engine           tree, sessions, watches, ACL lists, counters
    samples          one row per second of the last hour, one per minute of the last day
    history          the last transactions, in memory (``zoolet.history``)
    log files        older transactions, read in a thread by one request at a time

A change is an ordinary request of the super user ``console``, so it is checked, logged and audited like a request of a
client. It names the ``czxid`` of the node that the user saw: a new node with the same path is not changed.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any, Final

from ..client.recipes._shared import SharedRecipe, read_shared_recipes
from ..protocol import records as r
from ..protocol.acl import OPEN_ACL_UNSAFE
from ..protocol.deadlocks import LockEntry, Wait
from ..protocol.enums import CreateMode, Perm
from ..protocol.hexadecimal import hexadecimal
from ..protocol.node_json import JsonNode
from ..protocol.operations import OpCode
from ..protocol.paths import QUOTA, parent, sequence_number
from ..protocol.quotas import LIMITS, STATS
from ..protocol.records import Stat
from ..server.admin.audit import audit_line
from ..server.admin.history import CONSOLE_XID, HistoryEntry, TransactionHistory, entry_of_log
from ..server.admin.observed import MonitoredServer, ready
from ..server.admin.samples import COLUMNS, Samples, resident_bytes
from ..server.core.client_connection import ClientConnection, Session
from ..server.core.engine import Engine
from ..server.core.node import Node
from ..server.core.watches import CHILD, DATA, watch_kinds
from .local_locks import LocalLockReader
from .local_sessions import LocalSessions, client_address
from .local_tree import NODES_PER_CHECK, Deletion, count, export, walk
from .source import (
    CHANGED_NODE,
    MAX_FOUND,
    MAX_LISTED,
    MAX_NAME,
    Answer,
    DataPreview,
    Pace,
    RequestRefusedError,
    acl_json,
    filter_by_session,
    locks_json,
    matcher,
    quota_json,
    sorted_in_slices,
    stat_json,
    subtree_json,
    truncated_text,
)
from .transactions import HistoryRows
from .wanted import HistoryFilter

_audit = logging.getLogger("zoolet.audit")
_log = logging.getLogger("zoolet.server")
_Locks = tuple[list[SharedRecipe], list[list[Wait]], dict[str, tuple[list[int], list[int]]], int]
"""The result of reading the locks:

- locks and similar recipes,
- deadlocks,
- for each parent, the sorted numbers of deleted children, and for each number the latest deletion time of a lower one,
- number of nodes that were omitted.
"""
ReadLogFiles = Callable[[str | None, int | None, int, int, Callable[[Any], object]], list[Any]]
"""Function that returns transactions from log files. Its arguments are a path, a session, an upper limit for zxids, a
maximum number of transactions, and a predicate.
"""
SORT_CACHE_SECONDS: Final = 5.0
"""Seconds that the list of a large node's children is reused if it is sorted by time or size."""
MAX_FAST_MATCH_CHARACTERS: Final = 64
"""Maximum length of a path that is compared with a glob in less than 20 microseconds."""
ACTIONS: Final = ("create", "set", "delete", "delete_all", "set_acl", "expire", "drop")
"""The actions that :meth:`EngineSource.change` supports."""


class EngineSource:
    """The source of the console for an engine in this process.

    Args:
        observed: The server.
        set_time: Function that sets the engine's time, called before a change.
        deliver: Function that sends the events of a change.
        history: The last transactions; None if they are not kept.
        samples: The samples of the last hour.
        name: Name of the server, such as its address.
        kind: ``daemon`` or ``test``.
        past: Function that returns transactions from the log files, called in a thread; None if there are none.
        cluster: Function that returns additional facts about a member of a cluster; None for a single server. The
            console cannot change a member.
    """

    def __init__(
        self,
        observed: MonitoredServer,
        set_time: Callable[[], None],
        deliver: Callable[[], None],
        history: TransactionHistory | None,
        samples: Samples,
        name: str,
        kind: str = "daemon",
        past: ReadLogFiles | None = None,
        cluster: Callable[[], Answer] | None = None,
    ) -> None:
        self._past = past
        self._cluster = cluster
        self._is_reading_files = False
        self._observed = observed
        self._set_time = set_time
        self._deliver = deliver
        self._history = history
        self._samples = samples
        self._name = name
        self._kind = kind
        # The last sorted list of a large node's children: node, version, order, time until when it is valid, and names.
        self._sorted: tuple[Node, int, str, float, list[str]] | None = None
        self._sessions = LocalSessions(observed.engine, history)
        self._anonymous_client = ClientConnection("console")
        self._turn = asyncio.Lock()  # held during each pause, so the slices of concurrent requests do not add up
        self._locks: dict[bool, asyncio.Task[_Locks]] = {}  # tasks that read the locks, by *trusted*

    @property
    def _engine(self) -> Engine:
        return self._observed.engine

    async def about(self) -> Answer:
        """Return a description of the server."""
        views = ["overview", "tree", "sessions", "locks", *(["history"] if self._history is not None else [])]
        views += ["tests"] if self._kind == "test" else []
        return {
            "kind": self._kind,
            "name": self._name,
            "version": self._observed.version(),
            "views": views,
            "changes": [] if self._cluster is not None or self._observed.observing is not None else list(ACTIONS),
            "columns": COLUMNS,
            "orders": self._sessions.orders(),
            "files": self._past is not None,
            **(self._cluster() if self._cluster is not None else {}),
        }

    # --- overview ---

    async def overview(self) -> Answer:
        """Return the state of the server."""
        observed, engine = self._observed, self._engine
        self._set_time()
        return {
            "health": ready(observed),
            "now": engine.now,
            "mode": observed.mode(),
            "uptime": observed.uptime_ms() / 1000,
            "zxid": hexadecimal(engine.zxid),
            "sessions": len(engine.sessions.alive),
            "connections": len(engine.connections),
            "watches": engine.watches.active,
            "nodes": observed.node_count(),
            "ephemerals": engine.tree.ephemeral_count,
            "data_bytes": engine.tree.reported_bytes,
            "memory": resident_bytes(),
            "disk": await self._disk(),
            "expired": engine.metrics.sessions_expired,
            "refused": sum(engine.metrics.refused.values()),
            "paths": self._busiest_paths(),
            "clients": self._sessions.busiest(),
            "sample": self._samples.rows.hour[-1] if self._samples.rows.hour else self._samples.add(),
            **(self._cluster() if self._cluster is not None else {}),
        }

    async def _disk(self) -> Answer | None:
        space = await self._observed.disk()
        return None if space is None else {"folder": self._observed.data_dir, "free": space[0], "total": space[1]}

    def _busiest_paths(self) -> list[Answer]:
        """Return the ten paths with the most requests in the sampled batches."""
        summaries = self._observed.samples.get("path", {})
        most = sorted(summaries.items(), key=lambda item: -item[1].count)[:10]
        return [
            {"path": truncated_text(path), "requests": each.count, "ms": round(each.average(), 3)}
            for path, each in most
        ]

    def samples(self, *, day: bool) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the samples of the last hour, or one per minute of the last day."""
        return COLUMNS, list(self._samples.rows.day if day else self._samples.rows.hour)

    # --- the tree ---

    async def children(self, path: str, offset: int, limit: int, sort: str = "name", name: str = "") -> Answer:
        """Return some children of a node, sorted by name, time or size."""
        node = self._engine.tree.find(path)
        children = node.children
        facts: Answer = {"total": len(children or ()), "version": hexadecimal(node.pzxid)}
        if not limit and not name:
            return {**facts, "at": None, "rows": []}
        names = await self._sorted_names(node, sort)
        found = ((name, children.node(name)) for name in names[offset : offset + limit]) if children else ()
        rows = (
            (truncated_text(name), len(child.children or ()), len(child.data or b""), _kind(child), child.mtime)
            for name, child in found
            if child is not None
        )
        at = await _find_index(names, name, Pace(self._turn)) if children and name in children else None
        return {**facts, "at": at, "rows": rows}

    async def _sorted_names(self, node: Node, sort: str) -> list[str]:
        children = node.children
        if not children:
            return []
        version, now = node.creates * 2 - len(children), perf_counter()
        if self._sorted is not None and self._sorted[:3] == (node, version, sort) and now < self._sorted[3]:
            return self._sorted[4]

        def key(name: str) -> tuple[int, str]:
            child = children.node(name)
            value = 0 if child is None else child.mzxid if sort == "time" else len(child.data or b"")
            return -value, name[:MAX_NAME]

        names = await sorted_in_slices(list(children), Pace(self._turn), *([] if sort == "name" else [key]))
        if len(names) > 1000:
            self._sorted = node, version, sort, inf if sort == "name" else now + SORT_CACHE_SECONDS, names
        return names

    async def subtree(self, path: str, *, trusted: bool) -> Answer:
        """Return the counts of a subtree's nodes, and the locks in it that clients hold."""
        pace = Pace(self._turn)
        nodes, size, ephemerals = await count(self._engine, path, pace)
        lines, *_ = await self._shared_locks(trusted=trusted)
        return await subtree_json(path, nodes, size, ephemerals, lines, pace)

    def export(self, path: str) -> AsyncIterator[tuple[str, JsonNode]]:
        """Yield the nodes of a subtree, except ephemeral nodes."""
        return export(self._engine, path, Pace(self._turn))

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all details of a node."""
        engine = self._engine
        node = engine.tree.find(path)
        stat, acl = Stat.decode(node.stat()), engine.acls.list(node.acl)
        answer: Answer = {
            "path": path,
            "stat": stat_json(stat, _kind(node), node.creates),
            "ttl": node.ttl(),
            "acl": iter(acl_json(acl, trusted=trusted)),
            "acl_size": len(acl),
            "quota": self._quota(path),
            "watches": self._watches_on(path),
        }
        if stat.ephemeralOwner and self._history is not None:
            answer["owner_address"] = self._history.address(stat.ephemeralOwner)
        if self._may_read(node, trusted=trusted):
            answer["data"] = DataPreview(node.data, whole)
        else:
            answer["secret"] = len(node.data or b"")
        return answer

    def _may_read(self, node: Node, *, trusted: bool) -> bool:
        return trusted or self._engine.acls.allows(node.acl, self._anonymous_client, Perm.READ)

    def _quota(self, path: str) -> Answer | None:
        limits, stats = (self._engine.tree.get(QUOTA + path.rstrip("/") + name) for name in (LIMITS, STATS))
        return None if limits is None else quota_json(limits.data, stats.data if stats is not None else None)

    def _watches_on(self, path: str) -> list[Answer]:
        """Return the watches on a path, without recursive watches on its ancestors."""
        found: dict[tuple[str, str, str], None] = {}  # an ordered set, because a persistent watch is in both stores
        for store in (DATA, CHILD):
            for client in islice(self._engine.watches.watching(store, path), MAX_LISTED):
                who, kinds = hexadecimal(client.session_id), watch_kinds(store, client.modes[store].get(path, 0))
                found |= dict.fromkeys((who, client.address, kind) for kind in kinds)
        return [{"session": who, "address": address, "kind": kind} for who, address, kind in found]

    async def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the matching nodes. After each time slice, yield the number of searched nodes."""
        matches = matcher(name)
        pace, searched, found = Pace(self._turn), 0, 0
        async with self._turn:  # pause first, because copying the names of many children takes longer than a slice
            await asyncio.sleep(0)
        for path, node in walk(self._engine, below):
            searched += 1
            is_slow = text or (name and len(path) > MAX_FAST_MATCH_CHARACTERS) or len(path) > MAX_NAME
            if (is_slow or not searched % NODES_PER_CHECK) and await pace.rest():
                yield {"searched": searched}
            if not matches(path):
                continue
            if text and not (node.data and text in node.data and self._may_read(node, trusted=trusted)):
                continue
            found += 1
            yield {"path": truncated_text(path), "kind": _kind(node), "bytes": len(node.data or b"")}
            if found == MAX_FOUND:
                break
        yield {"searched": searched, "done": True, "more": found == MAX_FOUND}

    # --- sessions ---

    async def sessions(self, text: str, order: str, offset: int, limit: int, *, trusted: bool) -> Answer:
        """Return the sessions whose id, address or name contains a text, in an order that :meth:`about` lists."""
        readable = partial(self._may_read, trusted=trusted)
        return await self._sessions.listed(text, order, offset, limit, Pace(self._turn), readable)

    async def session(self, session_id: int) -> Answer:
        """Return all details of a session."""
        return self._sessions.details(session_id)

    # --- locks and history ---

    async def locks(self, session_id: int | None, *, trusted: bool) -> Answer:
        """Return locks and similar recipes: all, or those that a session holds or waits for."""
        lines, circles, gone, left_out = await self._shared_locks(trusted=trusted)
        pace = Pace(self._turn)
        if session_id is not None:
            lines, circles = await filter_by_session(lines, circles, session_id, pace)

        def more(entry: LockEntry) -> Answer:
            facts: Answer = {"address": self._address_of(entry.session_id) if entry.session_id else ""}
            if entry.holds and self._history is not None:  # the lock was acquired when the last predecessor was deleted
                numbers, times = gone.get(parent(entry.path), ((), (0,)))
                number = sequence_number(entry.path)
                ahead = times[bisect_left(numbers, number)] if number is not None else 0
                facts["held_since"] = max(entry.since, ahead / 1000)
            return facts

        self._set_time()
        shown = await locks_json(lines, circles, more, self._engine.now / 1000, pace, session_id)
        return {**shown, "left_out": left_out}

    async def _shared_locks(self, *, trusted: bool) -> _Locks:
        """Return locks and similar recipes. Concurrent requests share one reading, but get separate lists."""
        task = self._locks.get(trusted)
        if task is None or task.done():
            task = self._locks[trusted] = asyncio.get_running_loop().create_task(self._read_locks(trusted=trusted))
            task.add_done_callback(lambda _: self._locks.pop(trusted))
        lines, circles, gone, left_out = await asyncio.shield(task)
        return list(lines), circles, gone, left_out

    async def _read_locks(self, *, trusted: bool) -> _Locks:
        pace = Pace(self._turn)
        reader = LocalLockReader(self._engine, pace, lambda node: self._may_read(node, trusted=trusted))
        lines, circles = await read_shared_recipes(reader)
        deletions: dict[str, list[tuple[int, int]]] = {}
        held = {line.path for line in lines if line.holders}
        await self._catch_up_history(pace)
        for deleted in self._history.deleted_children(held) if self._history is not None else ():
            await pace.rest()
            for path, number, time in deleted:
                deletions.setdefault(path, []).append((number, time))
        gone: dict[str, tuple[list[int], list[int]]] = {}
        for path, found in deletions.items():
            numbers, times = gone[path] = [], [0]
            for number, time in await sorted_in_slices(found, pace, lambda deletion: deletion):
                await pace.rest()
                numbers.append(number)
                times.append(max(times[-1], time))
        return lines, circles, gone, reader.left_out

    async def _catch_up_history(self, pace: Pace) -> None:
        """Turn new transactions into entries of the history, in time slices."""
        for _ in self._history.catch_up_in_steps() if self._history is not None else ():
            await pace.rest()

    def _address_of(self, session_id: int) -> str:
        if self._history is not None:
            return self._history.address(session_id)
        session = self._engine.sessions.alive.get(session_id)
        return client_address(session) if session is not None else ""

    async def history(
        self, wanted: HistoryFilter, before: int, limit: int, *, files: bool = False, fold: bool = False
    ) -> Answer:
        """Return the last transactions from memory, or with *files* from the log files."""
        if files:
            return await self._read_history_files(wanted, before, limit, fold=fold)
        history = self._history
        if history is None:
            raise RequestRefusedError("history is disabled: set zoolet.history to the number of transactions to keep")
        await self._catch_up_history(Pace(self._turn))
        rows, oldest = HistoryRows(wanted, limit, fold=fold), history.oldest()
        await rows.fill(history.entries(wanted.path, before), Pace(self._turn))
        last = rows.last if rows.is_full else None
        in_files = last if last is not None and oldest is not None and last.number >= oldest.number else oldest
        log_zxid = in_files.zxid + (in_files.kind == "resumed") if in_files is not None else 0
        return {
            "entries": iter(rows.rows),
            "kept": len(history),
            "since": oldest.time if oldest is not None else None,
            "lasting": len(history.lasting),
            "next": hexadecimal(last.number) if last is not None else None,
            "files": hexadecimal(log_zxid) if self._past is not None else None,
        }

    async def _read_history_files(self, wanted: HistoryFilter, before: int, limit: int, *, fold: bool) -> Answer:
        if self._past is None:
            raise RequestRefusedError("no log files: the server has no data directory")
        if self._is_reading_files:
            raise RequestRefusedError("another request is already reading the log files; try again")

        def read(past: ReadLogFiles) -> list[HistoryEntry]:
            path = wanted.path if wanted.path and not wanted.below else None
            found = past(path, wanted.session_id, before, limit, lambda each: wanted.matches(entry_of_log(each)))
            return [entry_of_log(each) for each in found]

        self._is_reading_files = True
        try:
            found = await asyncio.to_thread(read, self._past)
        finally:
            self._is_reading_files = False
        rows = HistoryRows(wanted, limit, fold=fold)
        await rows.fill(found, Pace(self._turn))
        last = rows.last
        return {"entries": iter(rows.rows), "files": hexadecimal(last.zxid) if last is not None else None}

    # --- changes ---

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Execute a change as the super user. The change appears in the history and in the audit log."""
        engine = self._engine
        self._set_time()
        try:
            if action in ("expire", "drop"):
                return self._end_session(action, arguments["session"])
            path, version, czxid = arguments["path"], arguments["version"], arguments.get("czxid")
            if czxid is not None and engine.tree.find(path).czxid != czxid:  # a new node may have the same version
                raise RequestRefusedError(f"{path}: {CHANGED_NODE}")
            if action == "delete_all":
                deletion = Deletion(engine, _console_connection(), CONSOLE_XID, arguments["nodes"])
                async for _ in deletion.run(path, Pace(self._turn)):
                    self._deliver()
                    self._set_time()
                return {"zxid": hexadecimal(engine.zxid), "deleted": deletion.deleted}
            if action == "create":
                flags = CreateMode[arguments["mode"]]
                request: Any = r.CreateRequest(path, arguments["data"], OPEN_ACL_UNSAFE, flags)
                op = OpCode.CREATE
            elif action == "set":
                op, request = OpCode.SET_DATA, r.SetDataRequest(path, arguments["data"], version)
            elif action == "delete":
                op, request = OpCode.DELETE, r.DeleteRequest(path, version)
            else:
                op, request = OpCode.SET_ACL, r.SetACLRequest(path, arguments["acl"], version)
            engine.execute(_console_connection(), CONSOLE_XID, op, request.encode())
            return {"zxid": hexadecimal(engine.zxid)}
        finally:
            self._deliver()

    def _end_session(self, action: str, session_id: int) -> Answer:
        engine = self._engine
        if action == "expire" and (refusal := self._observed.refusal()):  # an expiry must be logged first
            raise RequestRefusedError(f"cannot expire session {hexadecimal(session_id)}: {refusal}")
        session = engine.sessions.alive.get(session_id)
        if session is None:
            raise RequestRefusedError(f"session {hexadecimal(session_id)} no longer exists")
        _log.warning("console: %s of session %s (%s)", action, hexadecimal(session_id), client_address(session))
        if _audit.level:  # only audit.enable sets the level of this logger
            fields = {"operation": action, "znode": hexadecimal(session_id), "result": "success"}
            _audit.info("%s", audit_line(_console_connection(), fields))
        if action == "expire":
            engine.expire(session)
            if self._history is not None:
                self._history.explain(session_id, "a user expired the session in the console")
        elif session.client is not None:
            engine.close_connection(session.client)
        return {"zxid": hexadecimal(engine.zxid)}


def _console_connection() -> ClientConnection:
    """Return a connection for changes in the console. It has the identity ``super:console``, but no socket."""
    person = ClientConnection("console")
    person.add_id("super", "console")
    person.session = Session(0, 0)
    return person


def _kind(node: Node) -> str:
    """Return the kind of a node: ``persistent``, ``ephemeral``, ``container`` or ``TTL``."""
    if node.is_container():
        return "container"
    if node.ttl() is not None:
        return "TTL"
    return "ephemeral" if node.owner else "persistent"


async def _find_index(names: list[str], name: str, pace: Pace) -> int | None:
    """Find the index of a name in time slices. Return None if the name is missing."""
    for start in range(0, len(names), MAX_FOUND):
        await pace.rest()
        if name in (some := names[start : start + MAX_FOUND]):
            return start + some.index(name)
    return None

"""The server that runs in this process, as the console sees it: everything that there is to know.

What takes long, a search and the list of locks, is done in slices of a millisecond, with a pause as long in between, so
that the server's clients wait no longer for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import islice
from time import perf_counter
from typing import Any, Final

from zoolet.client.recipes.overview import described
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode, Perm
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OpCode
from zoolet.protocol.paths import QUOTA
from zoolet.protocol.quotas import LIMITS, STATS
from zoolet.protocol.records import Stat
from zoolet.server.admin.audit import audit_line
from zoolet.server.admin.facts import host_and_port, last_operation, path_shown
from zoolet.server.admin.history import CONSOLE_XID, Entry, History, entry_of_log, sequence_of
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.pages import ready
from zoolet.server.admin.samples import COLUMNS, Samples, memory
from zoolet.server.console.local_locks import LocalOverview, LockReader, Pace
from zoolet.server.console.source import (
    MAX_FOUND,
    Answer,
    NotOffered,
    acl_shown,
    data_shown,
    matcher,
    name_without_hash,
    stat_shown,
)
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Children, Node
from zoolet.server.core.watches import CHILD, DATA, PERSISTENT, RECURSIVE

_audit = logging.getLogger("zoolet.audit")
_log = logging.getLogger("zoolet.server")
MAX_WATCHES: Final = 200
"""Watches and other details of one node or session that are shown."""
CHECKED_EVERY: Final = 128
"""Nodes of a search between two looks at the clock."""
BUSY_SECONDS: Final = 10.0
"""Over how long at least requests are counted for the busiest clients."""
MAX_CHANGES: Final = 200
"""Changes of one transaction that are shown."""
PastOf = Callable[[str | None, int | None, int, int], list[Any]]
"""Returns transactions of log files."""
CHANGES: Final = ("create", "set", "delete", "set_acl", "expire", "drop")
"""What can be changed."""


class EngineSource:
    """The server of an engine.

    Args:
        observed: The server.
        set_time: Sets the engine's time, before a change.
        deliver: Sends the events that a change has caused.
        history: Its last transactions; None if they are not kept.
        samples: What it did in the last hour.
        name: What it is called, such as its address.
        kind: ``daemon`` or ``test``.
        past: Returns transactions of the log files, for a path, a session, below a zxid, and how many at most; it is
            called in a thread. None without files.
        cluster: Returns what is shown of the cluster that it is a member of, which changes what it has; None for none.
    """

    def __init__(
        self,
        observed: Observed,
        set_time: Callable[[], None],
        deliver: Callable[[], None],
        history: History | None,
        samples: Samples,
        name: str,
        kind: str = "daemon",
        past: PastOf | None = None,
        cluster: Callable[[], Answer] | None = None,
    ) -> None:
        self._past = past
        self._cluster = cluster
        self._is_reading = False
        self._observed = observed
        self._set_time = set_time
        self._deliver = deliver
        self._history = history
        self._samples = samples
        self._name = name
        self._kind = kind
        self._sorted: tuple[Node, int, list[str]] | None = None  # the names of a large node's children
        self._counted: tuple[float, dict[ClientConnection, int]] = (perf_counter(), {})
        self._busiest: list[Answer] = []
        self._anyone = ClientConnection("console")
        self._turn = asyncio.Lock()  # slices of all searches follow each other
        self._locks: dict[bool, asyncio.Task[Answer]] = {}  # by whether those who ask have the token

    @property
    def _engine(self) -> Engine:
        return self._observed.engine

    async def about(self) -> Answer:
        """Return what is shown of it."""
        views = ["overview", "tree", "sessions", "locks", *(["history"] if self._history is not None else [])]
        views += ["tests"] if self._kind == "test" else []
        return {
            "kind": self._kind,
            "name": self._name,
            "version": self._observed.version(),
            "views": views,
            "changes": [] if self._cluster is not None else list(CHANGES),
            "columns": COLUMNS,
            "files": self._past is not None,
            **(self._cluster() if self._cluster is not None else {}),
        }

    # --- overview ---

    async def overview(self) -> Answer:
        """Return how it is."""
        observed, engine = self._observed, self._engine
        return {
            "health": ready(observed),
            "mode": observed.mode(),
            "uptime": observed.running_ms() / 1000,
            "zxid": hexadecimal(engine.zxid),
            "sessions": len(engine.sessions.alive),
            "connections": len(engine.connections),
            "watches": engine.watches.active,
            "nodes": observed.node_count() - 1,
            "ephemerals": sum(map(len, engine.tree.ephemerals.values())),
            "data_bytes": engine.tree.data_size,
            "memory": memory(),
            "disk": await self._disk(),
            "expired": engine.metrics.sessions_expired,
            "refused": sum(engine.metrics.refused.values()),
            "paths": self._busiest_paths(),
            "clients": self._busiest_clients(),
            "sample": self._samples.rows[-1] if self._samples.rows else self._samples.add(),
            **(self._cluster() if self._cluster is not None else {}),
        }

    async def _disk(self) -> Answer | None:
        folder = self._observed.data_dir
        if folder is None:
            return None
        space = await asyncio.to_thread(os.statvfs, folder)
        return {
            "folder": folder,
            "free": space.f_bavail * space.f_frsize,
            "total": space.f_blocks * space.f_frsize,
        }

    def _busiest_paths(self) -> list[Answer]:
        """Return the paths that were asked for most, as far as batches of requests were looked at."""
        summaries = self._observed.samples.get("path", {})
        most = sorted(summaries.items(), key=lambda item: -item[1].count)[:10]
        return [{"path": path, "requests": each.count, "ms": round(each.average(), 3)} for path, each in most]

    def _busiest_clients(self) -> list[Answer]:
        """Return the clients that have sent most requests a second, over the last ten seconds or more."""
        counted_at, before = self._counted
        seconds = perf_counter() - counted_at
        if seconds < BUSY_SECONDS and self._busiest and before:
            return self._busiest
        received = {client: client.received for client in self._engine.connections}
        now = self._engine.now
        rates = {
            client: (count - before.get(client, 0)) / max(min(seconds, (now - client.since) / 1000), 1.0)
            for client, count in received.items()
        }
        most = sorted(rates, key=lambda client: -rates[client])[:10]
        if seconds >= BUSY_SECONDS or not before:
            self._counted = (perf_counter(), received)
        self._busiest = [
            {
                "address": host_and_port(client),
                "session": hexadecimal(client.session_id) if client.session_id else None,
                "requests": client.received,
                "rate": round(rates[client], 1),
                "last": last_operation(client),
            }
            for client in most
        ]
        return self._busiest

    def samples(self) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the samples of the last hour."""
        return COLUMNS, list(self._samples.rows)

    # --- the tree ---

    async def children(self, path: str, offset: int, limit: int) -> Answer:
        """Return some children of a node by name."""
        node = self._engine.tree.find(path)
        children = node.children
        names = self._names(node)
        rows = []
        for name in names[offset : offset + limit]:
            child = children.get(name) if children else None
            if child is not None:
                below = len(child.children) if child.children else 0
                rows.append((name, below, len(child.data or b""), _kind(child)))
        return {"total": len(names), "rows": rows}

    def _names(self, node: Node) -> list[str]:
        children = node.children
        if not children:
            return []
        version = node.creates * 2 - len(children)
        if self._sorted is not None and self._sorted[0] is node and self._sorted[1] == version:
            return self._sorted[2]
        names = sorted(children)
        if len(names) > 1000:
            self._sorted = node, version, names
        return names

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all about a node."""
        engine = self._engine
        node = engine.tree.find(path)
        stat = Stat.decode(node.stat())
        answer: Answer = {
            "path": path,
            "stat": stat_shown(stat, _kind(node)),
            "ttl": node.ttl(),
            "acl": acl_shown(engine.acls.list(node.acl), trusted=trusted),
            "quota": self._quota(path),
            "watches": self._watches_on(path),
        }
        if stat.ephemeralOwner and self._history is not None:
            answer["owner_address"] = self._history.address(stat.ephemeralOwner)
        if self._may_read(node, trusted=trusted):
            answer["data"] = data_shown(node.data, whole=whole)
        else:
            answer["secret"] = len(node.data or b"")
        return answer

    def _may_read(self, node: Node, *, trusted: bool) -> bool:
        return trusted or self._engine.acls.allows(node.acl, self._anyone, Perm.READ)

    def _quota(self, path: str) -> Answer | None:
        limits, stats = (self._engine.tree.get(QUOTA + path.rstrip("/") + name) for name in (LIMITS, STATS))
        if limits is None:
            return None
        texts = [(node.data or b"").decode("utf-8", "replace") if node is not None else "" for node in (limits, stats)]
        return {"limits": texts[0], "used": texts[1]}

    def _watches_on(self, path: str) -> list[Answer]:
        watches, found = self._engine.watches, []
        for store, name in ((DATA, "data"), (CHILD, "children")):
            for client in islice(watches.watching(store, path), MAX_WATCHES):
                mode = client.modes[store].get(path, 0)
                kind = "recursive" if mode & RECURSIVE else "persistent" if mode & PERSISTENT else name
                found.append(
                    {"session": hexadecimal(client.session_id), "address": host_and_port(client), "kind": kind}
                )
        return [each for number, each in enumerate(found) if each not in found[:number]]

    async def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the nodes that match, and now and then how many were searched."""
        matches = matcher(name)
        pace, searched, found = Pace(self._turn), 0, 0
        async with self._turn:  # the names of a large node are copied at the beginning
            await asyncio.sleep(0)
        for path, node in self._walk(below):
            searched += 1
            if not searched % CHECKED_EVERY and await pace.rest():
                yield {"searched": searched}
            if not matches(path):
                continue
            if text and not (node.data and text in node.data and self._may_read(node, trusted=trusted)):
                continue
            found += 1
            yield {"path": path, "kind": _kind(node), "bytes": len(node.data or b"")}
            if found == MAX_FOUND:
                break
        yield {"searched": searched, "done": True, "more": found == MAX_FOUND}

    def _walk(self, top: str) -> Any:
        """Yield paths and nodes while the tree may change: of each node those children that it had when it was met."""
        node = self._engine.tree.find(top)
        yield top, node
        # Names only: a tuple for each of many children is what the garbage collector would look at, for 80 ms.
        below: Children = node.children if node.children is not None else Children()
        pending = [(top.rstrip("/") + "/", below, iter(list(below)))]
        while pending:
            prefix, children, names = pending[-1]
            for name in names:
                child = children.get(name)
                if child is None:
                    continue
                yield prefix + name, child
                if child.children:
                    pending.append((f"{prefix}{name}/", child.children, iter(list(child.children))))
                    break
            else:
                pending.pop()

    # --- sessions ---

    async def sessions(self, text: str, offset: int, limit: int) -> Answer:
        """Return some sessions."""
        alive = self._engine.sessions.alive
        found = [each for each in alive.values() if not text or text in hexadecimal(each.id) or text in _address(each)]
        return {"total": len(found), "rows": [self._row(session) for session in found[offset : offset + limit]]}

    def _row(self, session: Session) -> Answer:
        engine, client = self._engine, session.client
        return {
            "id": hexadecimal(session.id),
            "address": _address(session),
            "timeout": session.timeout_ms / 1000,
            "heard": (engine.monotonic_ms - session.heard) / 1000,
            "expires": max(0, session.deadline - engine.monotonic_ms) / 1000,
            "ephemerals": len(engine.tree.ephemerals.get(session.id, ())),
            "watches": sum(map(len, client.modes)) if client is not None else 0,
            "requests": client.received if client is not None else 0,
            "last": last_operation(client) if client is not None else "",
        }

    async def session(self, session_id: int) -> Answer:
        """Return all about a session."""
        engine = self._engine
        session = engine.sessions.alive.get(session_id)
        if session is None:
            return {"id": hexadecimal(session_id), "alive": False}
        client = session.client
        watched: list[Answer] = []
        if client is not None:
            for store, kind in ((DATA, "data"), (CHILD, "children")):
                watched += [
                    {"path": path_shown(path), "kind": kind} for path in islice(client.modes[store], MAX_WATCHES)
                ]
        identities = list(client.ids) if client is not None else []
        return {
            **self._row(session),
            "alive": True,
            "since": client.since if client is not None else None,
            "identities": [f"{each.scheme}:{name_without_hash(each)}" for each in identities],
            "owned": list(islice(engine.tree.ephemerals.get(session_id, ()), MAX_WATCHES)),
            "watched": watched,
        }

    # --- locks and history ---

    async def locks(self, *, trusted: bool) -> Answer:
        """Return what clients share; those who ask at the same time get the same answer."""
        task = self._locks.get(trusted)
        if task is None or task.done():
            task = self._locks[trusted] = asyncio.get_running_loop().create_task(self._look(trusted=trusted))
        return await asyncio.shield(task)

    async def _look(self, *, trusted: bool) -> Answer:
        reader = LockReader(self._engine, Pace(self._turn), lambda node: self._may_read(node, trusted=trusted))
        lines, circles = await LocalOverview.over(reader, "/").look()
        sessions = {entry.session_id for line in lines for entry in (*line.holders, *line.waiters)}
        addresses = {hexadecimal(each): self._address_of(each) for each in sessions if each}
        answer = {**described(lines, circles), "addresses": addresses, "left_out": reader.left_out}
        self._add_held_since(answer["shared"])
        return answer

    def _add_held_since(self, lines: list[Answer]) -> None:
        """Add to each holder when it became one, as far as the history tells: when the last one ahead of it went."""
        if self._history is None:
            return
        gone = self._history.last_gone({line["path"] for line in lines if line["holders"]})
        for line in lines:
            for holder in line["holders"]:
                number = sequence_of(holder["node"])
                ahead = [time for other, time in gone.get(line["path"], ()) if other < number]
                holder["held_since"] = max([holder["since"], *(time / 1000 for time in ahead)])

    def _address_of(self, session_id: int) -> str:
        if self._history is not None:
            return self._history.address(session_id)
        session = self._engine.sessions.alive.get(session_id)
        return _address(session) if session is not None else ""

    async def history(
        self, path: str | None, session_id: int | None, before: int, limit: int, *, files: bool = False
    ) -> Answer:
        """Return the last transactions, or those of the log files."""
        if files:
            return await self._history_of_files(path, session_id, before, limit)
        if self._history is None:
            raise NotOffered("transactions are not kept: zoolet.history says how many")
        found = list(islice(self._history.entries(path, session_id, before), limit))
        return {"entries": [_entry(each, path) for each in found], "kept": len(self._history)}

    async def _history_of_files(self, path: str | None, session_id: int | None, before: int, limit: int) -> Answer:
        if self._past is None:
            raise NotOffered("there are no log files: the server has no data directory")
        if self._is_reading:
            raise NotOffered("the log files are being read for somebody else; try again")
        self._is_reading = True
        try:
            found = await asyncio.to_thread(self._past, path, session_id, before, limit)
        finally:
            self._is_reading = False
        return {"entries": [_entry(entry_of_log(*each), path) for each in found], "kept": 0}

    # --- changes ---

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Change something, as the super user; it is in the history, and in the audit log."""
        engine = self._engine
        self._set_time()
        try:
            if action in ("expire", "drop"):
                return self._end(action, arguments["session"])
            path, version = arguments["path"], arguments["version"]
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
            decode, handle, _ = engine.dispatch[op]
            body = request.encode()
            handle(engine, _person(), decode(body, 0, len(body)))
            return {"zxid": hexadecimal(engine.zxid)}
        except ZooKeeperError as error:
            engine.log_failure(0, CONSOLE_XID, error.code)
            raise
        finally:
            self._deliver()

    def _end(self, action: str, session_id: int) -> Answer:
        engine = self._engine
        if action == "expire" and (refusal := self._observed.refusal()):  # nobody may see an end that is not logged
            raise NotOffered(f"no session can end now: {refusal}")
        session = engine.sessions.alive.get(session_id)
        if session is None:
            raise NotOffered(f"there is no session {hexadecimal(session_id)} any more")
        _log.warning("console: %s of session %s (%s)", action, hexadecimal(session_id), _address(session))
        if _audit.level:  # it has one with audit.enable
            fields = {"operation": action, "znode": hexadecimal(session_id), "result": "success"}
            _audit.info("%s", audit_line(_person(), fields))
        if action == "expire":
            engine.expire(session)
            if self._history is not None:
                self._history.explain(session_id, "a person ended it, in the console")
        elif session.client is not None:
            engine.close_connection(session.client)
        return {"zxid": hexadecimal(engine.zxid)}


def _person() -> ClientConnection:
    """Return the connection in whose name a person changes something: nobody is connected by it."""
    person = ClientConnection("console")
    person.add_id("super", "console")
    person.session = Session(0, 0)
    person.last_xid = CONSOLE_XID
    return person


def _entry(entry: Entry, path: str | None) -> Answer:
    changes = entry.changes[:MAX_CHANGES]
    if path is not None and len(changes) < len(entry.changes):  # the one that was asked for is among them
        changes = tuple(each for each in entry.changes if each.path == path)[:MAX_CHANGES] + changes
    return {
        "number": entry.number,
        "zxid": hexadecimal(entry.zxid) if entry.zxid else None,
        "time": entry.time,
        "session": hexadecimal(entry.session_id) if entry.session_id else None,
        "address": entry.address,
        "kind": entry.kind,
        "changes": changes,
        "left_out": entry.left_out + max(0, len(entry.changes) - MAX_CHANGES),
        "why": entry.why,
    }


def _address(session: Session) -> str:
    return host_and_port(session.client) if session.client is not None else ""


def _kind(node: Node) -> str:
    """Return what kind a node is: ``persistent``, ``ephemeral``, ``container`` or ``TTL``."""
    if node.is_container():
        return "container"
    if node.ttl() is not None:
        return "TTL"
    return "ephemeral" if node.owner else "persistent"

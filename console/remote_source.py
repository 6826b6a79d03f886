"""The source of the console for any ZooKeeper server, by the ZooKeeper protocol and four-letter commands."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from itertools import chain
from typing import Any, Final

from ..client import Client
from ..client.aio.subtree import child_names, request_each, walk_subtree
from ..client.four_letters import NotExecutedError, Sample, cons_number, measure_traffic, packet_rates, send_command
from ..client.four_letters import take_sample as read_sample
from ..client.recipes._shared import SharedRecipe
from ..client.recipes.overview import Overview
from ..client.wire.diagnosis import OLD_DATA_WARNING
from ..client.wire.hosts import Address
from ..client.wire.states import State
from ..protocol.deadlocks import LockEntry, Wait
from ..protocol.errors import ConnectionLossError, NoAuthError, NoNodeError
from ..protocol.hexadecimal import hexadecimal
from ..protocol.node_json import JsonNode
from ..protocol.operations import OPERATIONS
from ..protocol.paths import QUOTA
from ..protocol.quotas import LIMITS, STATS
from ..protocol.records import Stat, children_created
from ..server.admin.samples import SampleBuffer
from .remote_clocks import Clocks
from .source import (
    CHANGED_NODE,
    MAX_FOUND,
    MAX_LISTED,
    MAX_SUBTREE,
    Answer,
    DataPreview,
    Pace,
    RequestRefusedError,
    acl_json,
    filter_by_session,
    locks_json,
    matcher,
    quota_json,
    stat_json,
    subtree_json,
    truncated_text,
)
from .wanted import HistoryFilter

COLUMNS: Final = ("time", "requests", "sessions", "watches", "nodes")
"""Columns of the samples: time, requests per second since the previous sample, and counts."""
ORDERS: Final = {"oldest": ("est", 1), "requests": ("recved", -1), "silent": ("lresp", 1)}
"""The orders of sessions: the field of ``cons`` that is compared, and -1 for descending order."""
MAX_SORTED: Final = 10_000
"""Maximum number of children that are sorted by time or size."""
LOCK_SECONDS: Final = 20.0
"""Maximum number of seconds for reading all locks."""
WRITABLE_MODES: Final = ("leader", "standalone")
"""Modes of servers that execute writes. Their clocks set the times of nodes."""
OPERATION_NAMES: Final = {row.short: row.name for row in reversed(OPERATIONS.values()) if row.short}
"""The names of operations by the abbreviations that ``cons`` reports. For shared ones, the first operation counts."""
_UNKNOWN_SIZES: Final = {"memory": None, "disk": None}


class RemoteSource:
    """The source of the console for the servers that a client connects to.

    Args:
        client: The connected client.
        addresses: The servers. Four-letter commands are sent to each of them.
        tls: The TLS context; None for plain connections.
        timeout: Time limit for a four-letter command, in seconds.
    """

    def __init__(self, client: Client, addresses: tuple[Address, ...], tls: ssl.SSLContext | None, timeout: float):
        self._client = client
        self._addresses = addresses
        self._tls = tls
        self._timeout = timeout
        self._rows = SampleBuffer()
        self._is_reading_locks = False
        self._previous_samples: tuple[Sample | None, ...] = (None,) * len(addresses)
        self._samples: tuple[Sample, ...] = ()
        self._clocks = tuple(Clocks() for _ in addresses)

    async def sample(self) -> None:
        """Query the metrics of all servers, for the next overview and the charts."""
        asked = (read_sample(address, self._timeout, self._tls) for address in self._addresses)
        self._previous_samples, self._samples = (
            self._samples or self._previous_samples,
            tuple(await asyncio.gather(*asked)),
        )
        for clocks, each in zip(self._clocks, self._samples, strict=True):
            clocks.add(each, hexadecimal(self._client.session_id))
        sessions = self._highest("global_sessions") or self._sum("num_alive_connections")
        counts = sessions, self._sum("watch_count"), self._highest("znode_count")
        self._rows.add((round(time.time(), 3), sum(self._rates()), *counts))

    def _now(self) -> float:
        """Return the estimated time of the server that executes writes, in seconds since the epoch."""
        pairs = zip(self._samples, self._clocks, strict=True)
        return time.time() + next((clocks.ahead for each, clocks in pairs if each.state in WRITABLE_MODES), 0.0)

    def _idle_seconds(self, client: str, facts: Mapping[str, str]) -> float:
        """Return the number of seconds since a server heard from a client."""
        pairs = zip(self._samples, self._clocks, strict=True)
        return next((clocks.since(facts) for each, clocks in pairs if client in each.connections), 0.0)

    def _rates(self) -> list[float]:
        """Return the requests per second of each server."""
        pairs = zip(self._samples, self._previous_samples, strict=True)
        return [packet_rates(now, before).get("packets_received_per_second", 0.0) for now, before in pairs]

    def _sum(self, name: str) -> float:
        return sum(each.numbers.get(name, 0.0) for each in self._samples)

    def _highest(self, name: str) -> float:
        """Return the highest value of a metric that is equal on all servers, except while some servers lag."""
        return max((each.numbers.get(name, 0.0) for each in self._samples), default=0.0)

    async def about(self) -> Answer:
        """Return a description of the servers."""
        views = ["overview", "tree", *(["sessions"] if self._connections() else []), "locks"]
        return {
            "kind": "remote",
            "name": ",".join(map(str, self._addresses)),
            "version": await self._version(),
            "views": views,
            "changes": ["create", "set", "delete", "delete_all", "set_acl"],
            "columns": COLUMNS,
            "orders": list(ORDERS),
        }

    async def _version(self) -> str:
        match = re.search(r"version: ([\w.-]+)", await self._query_first("srvr"))
        return f"ZooKeeper {match[1]}" if match else ""

    async def _query_first(self, command: str) -> str:
        """Return the answer of the first server that executes a four-letter command, or an empty text."""
        for address in self._addresses:
            try:
                return await send_command(address, command, self._timeout, self._tls)
            except (OSError, NotExecutedError):
                continue
        return ""

    def _connections(self) -> Mapping[str, Mapping[str, str]]:
        found = chain.from_iterable(each.connections.items() for each in self._samples)
        return {address: facts for address, facts in found if "sid" in facts}

    async def overview(self) -> Answer:
        """Return the state of the servers."""
        if not self._samples:
            await self.sample()
        serving = [each for each in self._samples if each.numbers]
        health = "" if serving else self._samples[0].state
        if self._client.state is State.READ_ONLY:
            health = OLD_DATA_WARNING
        elif self._client.state is not State.CONNECTED:
            health = f"the console is not connected: the server {health or 'does not answer'}"
        return {
            "health": health,
            "now": round(self._now() * 1000),
            "mode": serving[0].state if serving else "",
            "uptime": self._highest("uptime") / 1000,
            "zxid": hexadecimal(self._client.last_zxid),
            "sessions": self._highest("global_sessions") or len(self._connections()),
            "connections": self._sum("num_alive_connections"),
            "watches": self._sum("watch_count"),
            "nodes": self._highest("znode_count"),
            "ephemerals": self._highest("ephemerals_count"),
            "data_bytes": self._highest("approximate_data_size"),
            **_UNKNOWN_SIZES,
            "expired": self._sum("stale_sessions_expired"),
            "refused": 0,
            "paths": [],
            "clients": self._clients()[:10],
            "sample": self._rows.hour[-1],
            **({"servers": self._servers()} if len(self._addresses) > 1 else {}),
        }

    def _clients(self) -> list[Answer]:
        """Return the clients of all servers, the busiest first."""
        clients: list[Answer] = []
        for now, before in zip(self._samples, self._previous_samples, strict=True):
            seconds = now.at - before.at if before is not None else 0.0
            clients += [
                {
                    "address": address,
                    "session": facts.get("sid"),
                    "requests": requests,
                    "rate": round(lately / seconds, 1) if seconds else 0.0,
                    "last": _last_operation(facts),
                }
                for lately, requests, address, facts in measure_traffic(now, before)
            ]
        return sorted(clients, key=lambda each: (-each["rate"], -each["requests"]))

    def _servers(self) -> list[Answer]:
        """Return the state of each server; ``problem`` is the reason why it is not serving."""
        return [
            {
                "address": str(address),
                "mode": each.state if each.numbers else "",
                "problem": "" if each.numbers else each.state,
                "connections": each.numbers.get("num_alive_connections", 0),
                "nodes": each.numbers.get("znode_count", 0),
                "rate": rate,
                "ms": each.numbers.get("avg_latency", 0),
                "outstanding": each.numbers.get("outstanding_requests", 0),
            }
            for address, each, rate in zip(self._addresses, self._samples, self._rates(), strict=True)
        ]

    def samples(self, *, day: bool) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the samples of the last hour, or one per minute of the last day, from the start of this process."""
        return COLUMNS, list(self._rows.day if day else self._rows.hour)

    # --- the tree ---

    async def children(self, path: str, offset: int, limit: int, sort: str, name: str) -> Answer:
        """Return some children of a node, sorted by name, time or size."""
        if (parent := await self._client.exists(path)) is None:
            raise NoNodeError(path)
        facts: Answer = {"total": parent.numChildren, "version": hexadecimal(parent.pzxid)}
        if sort != "name" and parent.numChildren > MAX_SORTED:
            reason = f"cannot sort by {sort}: that reads every child, and the node has more than {MAX_SORTED:,}"
            raise RequestRefusedError(reason)
        if not limit and not name:
            return {**facts, "at": None, "rows": []}
        (listed,) = await child_names(self._client, [path])
        if not isinstance(listed, list):
            raise listed
        names, prefix = sorted(listed), path.rstrip("/") + "/"
        known: dict[str, Stat] = {}
        if sort != "name":
            known = await self._stats(prefix, names)
            names = [each for each in names if each in known]
            names.sort(key=lambda each: -(known[each].mzxid if sort == "time" else known[each].dataLength))
        shown = names[offset : offset + limit]
        stats = known or await self._stats(prefix, shown)
        rows = (
            (truncated_text(each), stat.numChildren, stat.dataLength, _kind(stat), stat.mtime)
            if (stat := stats.get(each)) is not None
            else (truncated_text(each), 0, 0, "persistent", 0)
            for each in shown
        )
        return {**facts, "at": names.index(name) if name in names else None, "rows": rows}

    async def _stats(self, prefix: str, names: list[str]) -> dict[str, Stat]:
        found = await request_each(self._client.exists, [prefix + name for name in names], NoNodeError, NoAuthError)
        return {name: stat for name, stat in zip(names, found, strict=True) if isinstance(stat, Stat)}

    async def subtree(self, path: str, *, trusted: bool) -> Answer:
        """Return the counts of the nodes that the console's client may read, and the locks in the subtree."""
        found = []
        async for at, _ in walk_subtree(self._client, path):
            found.append(at)
            if len(found) > MAX_SUBTREE:
                break
        stats = [each for each in await request_each(self._client.exists, found) if isinstance(each, Stat)]
        size, ephemerals = sum(each.dataLength for each in stats), sum(bool(each.ephemeralOwner) for each in stats)
        lines, _ = await self._read_locks(path)
        return await subtree_json(path, len(found), size, ephemerals, lines, Pace(asyncio.Lock()))

    async def export(self, path: str) -> AsyncIterator[tuple[str, JsonNode]]:
        """Yield the nodes of a subtree, except ephemeral nodes."""
        async for at, _ in walk_subtree(self._client, path):
            try:
                (data, stat), (acl, _) = await asyncio.gather(self._client.get(at), self._client.get_acl(at))
            except NoNodeError:
                continue
            if not stat.ephemeralOwner:  # a Stat shows neither containers nor TTLs
                yield at, JsonNode(data, acl, children_created=children_created(stat))

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all details of a node that the console's client may read."""
        stat = await self._client.exists(path)
        if stat is None:
            raise NoNodeError(path)
        answer: Answer = {
            "path": path,
            "stat": stat_json(stat, _kind(stat), children_created(stat)),
            "ttl": None,
            "quota": await self._quota(path),
        }
        try:
            data, stat = await self._client.get(path)
            answer |= {"data": DataPreview(data, whole), "stat": stat_json(stat, _kind(stat), children_created(stat))}
        except NoAuthError:
            answer["secret"] = stat.dataLength
        try:
            acl, _ = await self._client.get_acl(path)
        except NoAuthError:
            acl = ()
        answer |= {"acl": acl_json(acl, trusted=trusted), "acl_size": len(acl)}
        answer["watches"] = []
        if (owner := answer["stat"]["owner"]) is not None:
            answer["owner_address"] = self._address_of(owner)
        return answer

    async def _quota(self, path: str) -> Answer | None:
        nodes = [QUOTA + path.rstrip("/") + name for name in (LIMITS, STATS)]
        limits, stats = await request_each(self._client.get, nodes, NoNodeError, NoAuthError)
        if not isinstance(limits, tuple):
            return None
        return quota_json(limits[0], stats[0] if isinstance(stats, tuple) else None)

    async def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the matching nodes. After every 100 nodes, yield the number of searched nodes."""
        matches = matcher(name)
        searched = found = 0
        async for path, _ in walk_subtree(self._client, below):
            searched += 1
            if not searched % 100:
                yield {"searched": searched}
            if not matches(path):
                continue
            try:
                data, stat = await self._client.get(path)
            except (NoNodeError, NoAuthError):
                continue
            if text and text not in data:
                continue
            found += 1
            yield {"path": truncated_text(path), "kind": _kind(stat), "bytes": stat.dataLength}
            if found == MAX_FOUND:
                break
        yield {"searched": searched, "done": True, "more": found == MAX_FOUND}

    # --- sessions ---

    async def sessions(self, text: str, order: str, offset: int, limit: int, *, trusted: bool) -> Answer:
        """Return the sessions with connected clients whose id or address contains a text, sorted in an order."""
        found = [each for each in self._connections().items() if text in each[0] or text in each[1]["sid"]]
        fact, sign = ORDERS[order]
        found.sort(key=lambda each: sign * cons_number(each[1], fact))
        return {"total": len(found), "rows": (self._row(*each, None) for each in found[offset : offset + limit])}

    def _row(self, address: str, facts: Mapping[str, str], owned: Mapping[str, list[str]] | None) -> Answer:
        heard = self._idle_seconds(address, facts)
        return {
            "id": facts["sid"],
            "address": address,
            "since": cons_number(facts, "est"),
            "timeout": cons_number(facts, "to") / 1000,
            "heard": heard,
            "expires": max(0.0, cons_number(facts, "to") / 1000 - heard),
            "ephemerals": len(owned.get(facts["sid"], ())) if owned is not None else None,
            "watches": None,
            "requests": cons_number(facts, "recved"),
            "last": _last_operation(facts),
        }

    async def session(self, session_id: int) -> Answer:
        """Return the facts that cons and dump report about a session."""
        wanted, owned = hexadecimal(session_id), await self._owned()
        for address, facts in self._connections().items():
            if facts["sid"] == wanted:
                return {
                    **self._row(address, facts, owned),
                    "alive": True,
                    "owned": list(map(truncated_text, owned.get(wanted, [])[:MAX_LISTED])),
                }
        if wanted in owned:
            row = self._row("", {"sid": wanted}, owned)
            return {**row, "alive": True, "owned": list(map(truncated_text, owned[wanted][:MAX_LISTED])), "timeout": 0}
        return {"id": wanted, "alive": False}

    async def _owned(self) -> dict[str, list[str]]:
        """Return the ephemeral nodes of each session from ``dump``, or nothing if no server executes the command."""
        text = await self._query_first("dump")
        owned: dict[str, list[str]] = {}
        paths: list[str] = []
        for line in text.split("\n"):
            if match := re.fullmatch(r"(0x[0-9a-f]+):", line.strip()):
                paths = owned.setdefault(match[1], [])
            elif line.startswith("\t/"):
                paths.append(line.strip())
        return owned

    def _address_of(self, session: str) -> str:
        return next((address for address, facts in self._connections().items() if facts["sid"] == session), "")

    # --- locks, history and changes ---

    async def locks(self, session_id: int | None, *, trusted: bool) -> Answer:
        """Return locks and similar recipes: all, or those that a session holds or waits for."""
        lines, circles = await self._read_locks("/")
        pace = Pace(asyncio.Lock())
        if session_id is not None:
            lines, circles = await filter_by_session(lines, circles, session_id, pace)
        addresses = {facts["sid"]: address for address, facts in self._connections().items()}

        def more(entry: LockEntry) -> Answer:
            return {"address": addresses.get(hexadecimal(entry.session_id), "")}

        return await locks_json(lines, circles, more, self._now(), pace, session_id)

    async def _read_locks(self, path: str) -> tuple[list[SharedRecipe], list[list[Wait]]]:
        if self._is_reading_locks:
            raise RequestRefusedError("another request is already reading the locks; try again")
        self._is_reading_locks = True
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                return await Overview(self._client, path).read()
        except TimeoutError:
            raise RequestRefusedError(
                f"reading the locks took longer than {LOCK_SECONDS:g} s: the tree is too large"
            ) from None
        finally:
            self._is_reading_locks = False

    async def history(self, wanted: HistoryFilter, before: int, limit: int, *, files: bool, fold: bool) -> Answer:
        """Refuse the request, because the ZooKeeper protocol has no history.

        Raises:
            RequestRefusedError: Always.
        """
        raise RequestRefusedError("no history: the ZooKeeper protocol only exposes the current state")

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Change a node with the console's client."""
        client, path, version, czxid = self._client, arguments["path"], arguments["version"], arguments.get("czxid")
        try:
            if czxid is not None and (stat := await client.exists(path)) is not None and stat.czxid != czxid:
                raise RequestRefusedError(f"{path}: {CHANGED_NODE}")
            if action == "create":
                is_sequential = arguments["mode"] == "PERSISTENT_SEQUENTIAL"
                await client.create(path, arguments["data"], sequential=is_sequential)
            elif action == "set":
                await client.set(path, arguments["data"], version=version)
            elif action == "delete_all":
                await client.delete(path, recursive=True)
            elif action == "delete":
                await client.delete(path, version=version)
            else:
                await client.set_acl(path, arguments["acl"], version=version)
        except ConnectionLossError as error:
            raise RequestRefusedError(
                f"connection lost; the change may or may not have been applied: {error}"
            ) from None
        return {}


def _last_operation(facts: Mapping[str, str]) -> str:
    return OPERATION_NAMES.get(abbreviation := facts.get("lop", ""), abbreviation)


def _kind(stat: Stat) -> str:
    return "ephemeral" if stat.ephemeralOwner else "persistent"


async def keep_sampling(source: RemoteSource) -> None:
    """Query the metrics of a source's servers each second, until the task is cancelled."""
    while True:
        await source.sample()
        await asyncio.sleep(1)

"""Any ZooKeeper server, as the console sees it: what its protocol and its four-letter commands can tell."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from zoolet.client import Client
from zoolet.client.aio.subtree import answers, subtree
from zoolet.client.cli.four_letters import NotExecutedError, ask
from zoolet.client.cli.top import Sample, number_of, rates
from zoolet.client.cli.top import sample as ask_sample
from zoolet.client.recipes.overview import Overview, described
from zoolet.client.wire.hosts import Address
from zoolet.client.wire.states import State
from zoolet.protocol.errors import ConnectionLossError, NoAuthError, NoNodeError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.paths import QUOTA
from zoolet.protocol.quotas import LIMITS, STATS
from zoolet.protocol.records import Stat
from zoolet.server.admin.samples import HOUR
from zoolet.server.console.source import MAX_FOUND, Answer, NotOffered, acl_shown, data_shown, matcher, stat_shown

COLUMNS: Final = ("time", "requests", "sessions", "watches", "nodes")
"""What samples have: requests a second since the one before, and counts."""
LOCK_SECONDS: Final = 20.0
"""Seconds for reading all locks."""
MAX_LISTED: Final = 200
"""Ephemeral nodes of a session that are shown."""
_SIZES: Final = {"memory": None, "disk": None}


class RemoteSource:
    """Servers that a client is connected to.

    Args:
        client: The client, connected.
        addresses: The servers; the first one is asked with four-letter commands.
        tls: The TLS context; None for plain connections.
        timeout: Seconds for an answer to a four-letter command.
    """

    def __init__(self, client: Client, addresses: tuple[Address, ...], tls: ssl.SSLContext | None, timeout: float):
        self._client = client
        self._addresses = addresses
        self._tls = tls
        self._timeout = timeout
        self._rows: deque[tuple[float, ...]] = deque(maxlen=HOUR)
        self._is_looking = False
        self._last: Sample | None = None
        self._sample: Sample | None = None

    async def sample(self) -> None:
        """Ask the server what it does, for the next overview and the charts."""
        self._last, self._sample = self._sample, await ask_sample(self._addresses[0], self._timeout, self._tls)
        numbers, rate = self._sample.numbers, rates(self._sample, self._last)
        names = ("global_sessions", "watch_count", "znode_count")
        counts = [numbers.get(name, 0.0) for name in names]
        counts[0] = counts[0] or numbers.get("num_alive_connections", 0.0)
        self._rows.append((round(time.time(), 3), rate.get("packets_received_per_second", 0.0), *counts))

    async def about(self) -> Answer:
        """Return what is shown of it."""
        views = ["overview", "tree", *(["sessions"] if self._connections() else []), "locks"]
        return {
            "kind": "remote",
            "name": ",".join(map(str, self._addresses)),
            "version": await self._version(),
            "views": views,
            "changes": ["create", "set", "delete", "set_acl"],
            "columns": COLUMNS,
        }

    async def _version(self) -> str:
        try:
            text = await ask(self._addresses[0], "srvr", self._timeout, self._tls)
        except (OSError, NotExecutedError):
            return ""
        match = re.search(r"version: ([\w.-]+)", text)
        return f"ZooKeeper {match[1]}" if match else ""

    def _connections(self) -> Mapping[str, Mapping[str, str]]:
        found = self._sample.connections if self._sample is not None else {}
        return {address: facts for address, facts in found.items() if "sid" in facts}

    async def overview(self) -> Answer:
        """Return how it is."""
        if self._sample is None:
            await self.sample()
        now = self._sample
        assert now is not None
        number = now.numbers.get
        health = "" if now.numbers else now.state
        if self._client.state is not State.CONNECTED:
            health = f"the console is not connected: {health or 'the server does not answer'}"
        before = self._last.connections if self._last is not None else {}
        seconds = now.at - self._last.at if self._last is not None else 0.0
        clients: list[Answer] = []
        for address, facts in self._connections().items():
            received = number_of(facts, "recved")
            lately = received - number_of(before[address], "recved") if address in before and seconds else 0
            clients.append(
                {
                    "address": address,
                    "session": facts["sid"],
                    "requests": received,
                    "rate": round(lately / seconds, 1) if seconds else 0.0,
                    "last": facts.get("lop", ""),
                }
            )
        clients.sort(key=lambda each: (-each["rate"], -each["requests"]))
        return {
            "health": health,
            "mode": now.state,
            "uptime": number("uptime", 0.0) / 1000,
            "zxid": hexadecimal(self._client.last_zxid),
            "sessions": number("global_sessions") or len(self._connections()),
            "connections": number("num_alive_connections", 0),
            "watches": number("watch_count", 0),
            "nodes": number("znode_count", 0),
            "ephemerals": number("ephemerals_count", 0),
            "data_bytes": number("approximate_data_size", 0),
            **_SIZES,
            "expired": number("stale_sessions_expired", 0),
            "refused": 0,
            "paths": [],
            "clients": clients[:10],
            "sample": self._rows[-1],
        }

    def samples(self) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
        """Return the samples since this process was started."""
        return COLUMNS, list(self._rows)

    # --- the tree ---

    async def children(self, path: str, offset: int, limit: int) -> Answer:
        """Return some children of a node by name."""
        names = sorted(await self._client.children(path))
        shown = names[offset : offset + limit]
        prefix = path.rstrip("/") + "/"
        stats = await answers(map(self._client.exists, [prefix + name for name in shown]), NoNodeError, NoAuthError)
        rows = [
            (name, stat.numChildren, stat.dataLength, _kind(stat))
            if isinstance(stat, Stat)
            else (name, 0, 0, "persistent")
            for name, stat in zip(shown, stats, strict=True)
        ]
        return {"total": len(names), "rows": rows}

    async def node(self, path: str, *, trusted: bool, whole: bool) -> Answer:
        """Return all about a node, as far as the console's own client may read it."""
        stat = await self._client.exists(path)
        if stat is None:
            raise NoNodeError(path)
        answer: Answer = {
            "path": path,
            "stat": stat_shown(stat, _kind(stat)),
            "ttl": None,
            "quota": await self._quota(path),
        }
        try:
            data, stat = await self._client.get(path)
            answer |= {"data": data_shown(data, whole=whole), "stat": stat_shown(stat, _kind(stat))}
        except NoAuthError:
            answer["secret"] = stat.dataLength
        try:
            answer["acl"] = acl_shown((await self._client.get_acl(path))[0], trusted=trusted)
        except NoAuthError:
            answer["acl"] = []
        answer["watches"] = []
        if (owner := answer["stat"]["owner"]) is not None:
            answer["owner_address"] = self._address_of(owner)
        return answer

    async def _quota(self, path: str) -> Answer | None:
        texts = []
        for name in (LIMITS, STATS):
            try:
                data, _ = await self._client.get(QUOTA + path.rstrip("/") + name)
            except (NoNodeError, NoAuthError):
                return None
            texts.append(data.decode("utf-8", "replace"))
        return {"limits": texts[0], "used": texts[1]}

    async def search(self, name: str, text: bytes, below: str, *, trusted: bool) -> AsyncIterator[Answer]:
        """Yield the nodes that match, and now and then how many were searched."""
        matches = matcher(name)
        searched = found = 0
        async for path, _ in subtree(self._client, below):
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
            yield {"path": path, "kind": _kind(stat), "bytes": stat.dataLength}
            if found == MAX_FOUND:
                break
        yield {"searched": searched, "done": True, "more": found == MAX_FOUND}

    # --- sessions ---

    async def sessions(self, text: str, offset: int, limit: int) -> Answer:
        """Return the sessions whose clients are connected to the first server."""
        rows = [
            await self._row(address, facts, {})
            for address, facts in self._connections().items()
            if text in address or text in facts["sid"]
        ]
        return {"total": len(rows), "rows": rows[offset : offset + limit]}

    async def _row(self, address: str, facts: Mapping[str, str], owned: Mapping[str, list[str]]) -> Answer:
        heard = max(0.0, time.time() - number_of(facts, "lresp") / 1000) if number_of(facts, "lresp") else 0.0
        return {
            "id": facts["sid"],
            "address": address,
            "timeout": number_of(facts, "to") / 1000,
            "heard": heard,
            "expires": max(0.0, number_of(facts, "to") / 1000 - heard),
            "ephemerals": len(owned.get(facts["sid"], ())),
            "watches": 0,
            "requests": number_of(facts, "recved"),
            "last": facts.get("lop", ""),
        }

    async def session(self, session_id: int) -> Answer:
        """Return what cons and dump say of a session."""
        wanted, owned = hexadecimal(session_id), await self._owned()
        for address, facts in self._connections().items():
            if facts["sid"] == wanted:
                row = await self._row(address, facts, owned)
                return {
                    **row,
                    "alive": True,
                    "since": number_of(facts, "est"),
                    "owned": owned.get(wanted, [])[:MAX_LISTED],
                }
        if wanted in owned:
            row = await self._row("", {"sid": wanted}, owned)
            return {**row, "alive": True, "owned": owned[wanted][:MAX_LISTED], "timeout": 0}
        return {"id": wanted, "alive": False}

    async def _owned(self) -> dict[str, list[str]]:
        """Return the ephemeral nodes by session, as ``dump`` has them; none if the server does not answer it."""
        try:
            text = await ask(self._addresses[0], "dump", self._timeout, self._tls)
        except (OSError, NotExecutedError):
            return {}
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

    # --- the rest ---

    async def locks(self, *, trusted: bool) -> Answer:
        """Return what clients share."""
        if self._is_looking:
            raise NotOffered("the locks are being read for somebody else; try again")
        self._is_looking = True
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                lines, circles = await Overview(self._client, "/").look()
        except TimeoutError:
            raise NotOffered(f"the tree is so large that its locks were not read in {LOCK_SECONDS:g} s") from None
        finally:
            self._is_looking = False
        addresses = {facts["sid"]: address for address, facts in self._connections().items()}
        return {**described(lines, circles), "addresses": addresses}

    async def history(
        self, path: str | None, session_id: int | None, before: int, limit: int, *, files: bool
    ) -> Answer:
        """Refuse: a protocol has no past."""
        raise NotOffered("the protocol of ZooKeeper does not tell what was")

    async def change(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """Change a node, as the console's own client."""
        client, path, version = self._client, arguments["path"], arguments["version"]
        try:
            if action == "create":
                is_sequential = arguments["mode"] == "PERSISTENT_SEQUENTIAL"
                await client.create(path, arguments["data"], sequential=is_sequential)
            elif action == "set":
                await client.set(path, arguments["data"], version=version)
            elif action == "delete":
                await client.delete(path, version=version)
            else:
                await client.set_acl(path, arguments["acl"], version=version)
        except ConnectionLossError as error:
            raise NotOffered(f"the connection was lost, so that it may or may not have been done: {error}") from None
        return {}


def _kind(stat: Stat) -> str:
    return "ephemeral" if stat.ephemeralOwner else "persistent"


async def keep_sampling(source: RemoteSource, seconds: float = 1.0) -> None:
    """Sample it each second, until it is cancelled."""
    while True:
        await source.sample()
        await asyncio.sleep(seconds)

"""Recipes when a server restarts without its data: tokens still grow, and recipes adopt the new tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from support.crew import double
from support.daemon import DaemonProcess
from support.simulation import eventually, make_client, run_simulation

from zoolet.client import Client, serializers
from zoolet.client.recipes import (
    ChildrenCache,
    Config,
    Discovery,
    Election,
    Instance,
    LockingQueue,
    Master,
    NodeCache,
    Party,
    Queue,
    TreeCache,
    Worker,
)
from zoolet.testing import Server, Simulation

OLD_ZXID: Final = 100
"""The initial zxid of the first server; the second one starts at 0."""


async def test_lock_tokens_grow_across_daemon_restart() -> None:
    tokens = []
    for _ in range(3):
        with DaemonProcess() as daemon:
            async with Client(daemon.hosts) as zk, zk.lock("/lock") as lease:
                tokens.append(lease.token)

    assert tokens == sorted(set(tokens))


class RestartableServer:
    """A server, and its replacement with lower zxids."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.server: Server

    async def open(self, zxid: int) -> None:
        """Start a server with this initial zxid."""
        self.server = self.sim.server(port=2181, initial_zxid=zxid)
        await self.server.__aenter__()

    async def restart(self, *, downtime: float = 1.0, nodes: dict[str, Any] | None = None) -> None:
        """Replace the server with a new one that has these nodes and starts again at zxid 0."""
        await self.server.__aexit__(None, None, None)
        await asyncio.sleep(downtime)
        await self.open(0)
        self.server.populate(nodes or {})


RestartScenario = Callable[[RestartableServer, Client], Coroutine[Any, Any, None]]


def run_with_restart(main: RestartScenario) -> None:
    """Run *main* with a restartable server and a client."""

    async def run(sim: Simulation) -> None:
        it = RestartableServer(sim)
        await it.open(OLD_ZXID)
        async with make_client(it.server, timeout=6.0) as zk:
            await main(it, zk)
        await it.server.__aexit__(None, None, None)

    run_simulation(run, limit=3600.0)


# --- watches ---


@pytest.mark.parametrize("downtime", [1.0, 60.0])
@pytest.mark.parametrize("kind", ["data", "exists", "children", "persistent", "recursive"])
def test_watch_fires_for_change_on_new_server_with_lower_zxids(kind: str, downtime: float) -> None:
    async def main(it: RestartableServer, zk: Client) -> None:
        it.server.populate({"/a": {"x": b"1"}})
        path = "/b" if kind == "exists" else "/a"
        watches = {
            "data": lambda: zk.watch_data(path),
            "exists": lambda: zk.watch_exists(path),
            "children": lambda: zk.watch_children(path),
            "persistent": lambda: zk.watch(path),
            "recursive": lambda: zk.watch(path, recursive=True),
        }
        async with watches[kind]() as watch:
            await it.restart(downtime=downtime, nodes={"/a": {"x": b"2", "y": b""}, "/b": b""})
            event = await asyncio.wait_for(watch.next(), 60)
            assert event.path.startswith(path)

    run_with_restart(main)


# --- recipes ---

NODES_BEFORE: Final[dict[str, Any]] = {"/a": {"x": b"1", "y": b"1"}}
NODES_AFTER: Final[dict[str, Any]] = {"/a": {"x": b"2", "z": b"2"}}
grown_zxids: Final = pytest.mark.parametrize("grown", [False, True], ids=["lower zxids", "zxids that have caught up"])
FILLER_NODES: Final = {"/fill": {f"{number:03d}": b"" for number in range(2 * OLD_ZXID)}}
"""Enough nodes to raise the zxid above its old value, if they are written after the others."""


@grown_zxids
@pytest.mark.parametrize("kind", ["tree", "children", "node", "config"])
def test_cache_converges_to_tree_of_new_server(kind: str, grown: bool) -> None:
    async def main(it: RestartableServer, zk: Client) -> None:
        it.server.populate(NODES_BEFORE)
        caches: dict[str, Callable[[], Any]] = {
            "tree": lambda: TreeCache(zk, "/a"),
            "children": lambda: ChildrenCache(zk, "/a"),
            "node": lambda: NodeCache(zk, "/a/x"),
            "config": lambda: Config(zk, "/a/x", serializer=serializers.raw),
        }
        shown: dict[str, Callable[[Any], Any]] = {
            "tree": lambda cache: {path: node.value for path, node in cache.nodes.items()},
            "children": lambda cache: dict(cache.values),
            "node": lambda cache: cache.value,
            "config": lambda cache: cache.value,
        }
        wanted: dict[str, Any] = {
            "tree": {"/a": b"", "/a/x": b"2", "/a/z": b"2"},
            "children": {"x": b"2", "z": b"2"},
            "node": b"2",
            "config": b"2",
        }
        async with caches[kind]() as cache:
            await it.restart(nodes=NODES_AFTER | FILLER_NODES if grown else NODES_AFTER)
            await eventually(lambda: shown[kind](cache) == wanted[kind])
            await zk.set("/a/x", b"3")
            await eventually(lambda: b"3" in str(shown[kind](cache)).encode())

    run_with_restart(main)


@pytest.mark.parametrize("kind", ["queue", "locking queue"])
def test_waiting_consumer_gets_entry_of_new_server(kind: str) -> None:
    async def main(it: RestartableServer, zk: Client) -> None:
        async def consume() -> Any:
            if kind == "queue":
                return await Queue(zk, "/queue").get()
            async with await LockingQueue(zk, "/queue").acquire() as entry:
                return entry.value

        taking = asyncio.ensure_future(consume())
        await asyncio.sleep(1)
        nodes = {"queue": {"/queue": {"entry-100-0000000000": b"new"}}}
        nodes["locking queue"] = {"/queue": {"entries": {"entry-100-0000000000": b"new"}}}
        await it.restart(nodes=nodes[kind])

        assert await asyncio.wait_for(taking, 60) == b"new"

    run_with_restart(main)


@pytest.mark.parametrize("kind", ["members", "leader"])
def test_party_observer_sees_members_at_new_server(kind: str) -> None:
    seen: list[Any] = []

    async def main(it: RestartableServer, zk: Client) -> None:
        async def observe() -> None:
            changes = Party(zk, "/p").changes() if kind == "members" else Election(zk, "/p").observe()
            async for change in changes:
                seen.append(change)  # noqa: PERF401

        observing = asyncio.ensure_future(observe())
        await asyncio.sleep(1)
        name = "0__party__" if kind == "members" else "0" * 32 + "__lock__0000000000"
        await it.restart(nodes={"/p": {name: b"other"}})
        await eventually(lambda: seen[-1] == ([b"other"] if kind == "members" else b"other"))
        observing.cancel()

    run_with_restart(main)


@grown_zxids
def test_service_is_found_at_new_server(grown: bool) -> None:
    async def main(it: RestartableServer, zk: Client) -> None:
        async with make_client(it.server, timeout=6.0, seed=6) as other, Discovery(zk, "/s") as discovery:
            await discovery.register(Instance("web", "1"))
            assert [one.id for one in await discovery.instances("web")] == ["1"]
            async with Discovery(other, "/s") as another:
                await another.register(Instance("web", "2"))
                await it.restart(nodes=FILLER_NODES if grown else {})
                await asyncio.sleep(60)
                assert [one.id for one in await discovery.instances("web")] == ["1", "2"]

    run_with_restart(main)


def test_master_and_worker_do_tasks_on_new_server() -> None:
    async def main(it: RestartableServer, zk: Client) -> None:
        async with make_client(it.server, timeout=6.0, seed=6) as other:
            async with Master(zk, "/jobs", "m") as master, Worker(other, "/jobs", "w", double):
                assert await master.result(await master.submit("x"), 60) == {"worker": "w", "result": "xx"}
                await it.restart()
                await asyncio.sleep(30)
                for _ in range(3):
                    assert await master.result(await master.submit("y"), 60) == {"worker": "w", "result": "yy"}

    run_with_restart(main)

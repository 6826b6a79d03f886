"""The types of values: mypy and pyright report every wrong line of these programs, and no other line.

Each program is checked for both clients. The one for threads is the same without ``async`` and ``await``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_origin

import pytest
from support.type_checker import errors_of_both_checkers

from zoolet.client import Client, blocking, recipes
from zoolet.client.blocking import recipes as blocking_recipes
from zoolet.client.serializers import Serializer

VALUES_PROGRAM = """
from typing import Any

from zoolet.client import Client, recipes as r
from zoolet.client.serializers import Serializer, json

ints = Serializer("int", lambda number: str(number).encode(), int)

async def values(hosts: str) -> None:
    zk = Client(hosts)
    numbers = Client(hosts, serializer=ints)
    anything = Client(hosts, serializer=json)
    await zk.set("/a", b"text")
    await zk.set("/a", "text")  # wrong
    await zk.set("/a", {"x": 1})  # wrong
    await zk.create("/a")
    await zk.create("/a", b"x", ephemeral=True)
    await zk.create("/a", "x")  # wrong
    await numbers.create("/a")
    await numbers.create("/a", b"")
    await numbers.create("/a", 5)
    await numbers.create("/a", b"5")  # wrong
    await numbers.set("/a", None)  # wrong
    await anything.set("/a", {"x": 1})
    data, stat = await zk.get("/a")
    data.decode()
    data.encode()  # wrong
    data["x"]  # wrong
    (await numbers.get("/a"))[0] + 1
    (await numbers.get("/a"))[0].decode()  # wrong
    (await anything.get("/a"))[0]["x"]
    text: str = (await zk.get("/a"))[0]  # wrong
    await numbers.update("/a", lambda number: number + 1)
    await numbers.update("/a", lambda number: number.decode())  # wrong
    await zk.with_serializer(ints).set("/a", 1)
    await zk.with_serializer(ints).set("/a", b"1")  # wrong
    await numbers.with_acl(None).with_operation_timeout(1).set("/a", 1)
    await numbers.with_operation_timeout(1).set("/a", "1")  # wrong
    async with zk.transaction() as t, numbers.transaction() as u:
        t.set("/a", b"1")
        t.set("/a", "1")  # wrong
        t.create("/b")
        u.create("/b", 1)
        u.create("/b", b"1")  # wrong
    async with numbers.watch_data("/a") as w, numbers.watch_children("/a") as c:
        number: int = w.initial[0]
        name: str = w.initial[0]  # wrong
        c.initial + ["x"]
        c.initial["x"]  # wrong

async def declared(hosts: str, plain: Client, numbers: Client[int], queue: r.Queue[int], anything: Client[Any]) -> None:
    a: Client[int] = Client(hosts, serializer=ints)
    b: Client[int] = Client(hosts)  # wrong
    c: Client[int] = Client(hosts, serializer=Serializer("text", str.encode, bytes.decode))  # wrong
    d: Client = numbers  # wrong
    e: Client = anything
    f: Client[int] = anything
    g: Client[bytes] = plain
    await plain.set("/a", "text")  # wrong
    await queue.put(1)
    Serializer("int", str, int)  # wrong

async def recipes(zk: Client, numbers: Client[int], anything: Client[Any]) -> None:
    await r.Queue(zk, "/q").put(b"x")
    await r.Queue(zk, "/q").put("x")  # wrong
    await r.PriorityQueue(numbers, "/q").put(1, 5)
    await r.PriorityQueue(numbers, "/q").put("1", 5)  # wrong
    (await r.Queue(numbers, "/q").get()) + 1
    (await r.Queue(numbers, "/q").get()).decode()  # wrong
    async with await r.LockingQueue(numbers, "/q").acquire() as entry:
        number: int = entry.value
        text: str = entry.value  # wrong
    async with await r.LockingQueue(anything, "/q").acquire() as order:
        order.value["x"]
    async with r.TreeCache(numbers, "/t") as tree, r.ChildrenCache(numbers, "/t") as children:
        tree.nodes["/t"].value + 1
        tree.nodes["/t"].value.decode()  # wrong
        children.values["t"] + 1
        children.values["t"].decode()  # wrong
    async with r.NodeCache(numbers, "/n") as node:
        if node.value is not None:
            node.value + 1
        node.value + 1  # wrong
        async for value in node.changes():
            value or 0 + 1
            value.decode()  # wrong
    async with r.NodeCache(zk, "/n") as raw, r.NodeCache(anything, "/n") as loaded:
        raw.value or b""
        raw.value + b""  # wrong
        loaded.value["x"]  # wrong
    async with r.PersistentEphemeral(numbers, "/e", 1) as up:
        await up.set(2)
        await up.set("2")  # wrong
    r.PersistentEphemeral(numbers, "/e", "1")  # wrong
    async with r.Config(zk, "/c") as config:
        config.value["x"]
        await config.publish({"x": 1})
    async with r.Config(zk, "/c", 5, serializer=ints) as limit:
        limit.value + 1
        limit.value.decode()  # wrong
        await limit.publish(6)
        await limit.publish("6")  # wrong
        await limit.update(lambda number: number + 1)
    r.Config(zk, "/c", "5", serializer=ints)  # wrong
    async with r.Config(zk, "/c", serializer=ints) as maybe:
        maybe.value + 1  # wrong
    declared: r.Config[dict[str, int]] = r.Config(zk, "/c", {})
    declared.value["x"] + 1
    declared.value["x"].decode()  # wrong
    for client in (zk, numbers, anything):
        r.Counter(client, "/n")
    r.Lock(numbers, "/l")
    numbers.lock("/l")
    r.Queue("x", "/q")  # wrong
"""
EVERY_RECIPE_PROGRAM = """
from zoolet.client import Client, recipes as r

async def work(task: str, value: object) -> float:
    return 0.5

async def program(zk: Client[int]) -> None:
    await r.Barrier(zk, "/a").wait()
    b: int = await r.Counter(zk, "/a").add()
    c: int = r.ChildrenCache(zk, "/a").values["b"]
    d: str = r.Config(zk, "/a", "x").value
    e: list[r.Instance] = await r.Discovery(zk, "/a").instances("x")
    await r.DoubleBarrier(zk, "/a", 2).enter()
    g: r.DurableLease = await r.DurableLock(zk, "/a", "me").acquire()
    h: bytes | None = await r.Election(zk, "/a").leader()
    i: r.Lease = await r.Lock(zk, "/a").acquire()
    j: list[r.LockStatus] = await r.LockTable(zk, "/a").read()
    k: r.QueueEntry[int] = await r.LockingQueue(zk, "/a").acquire()
    l: str = await r.Master(zk, "/a").submit({"any": "JSON"})
    m: dict[str, int] = (await r.MultiLock(zk, ["/a", "/b"]).acquire()).tokens
    n: int | None = r.NodeCache(zk, "/a").value
    o: bytes | None = await r.NodeElection(zk, "/a").leader()
    p: list[r.SharedRecipe] = (await r.Overview(zk, "/a").read())[0]
    q: list[bytes] = await r.Party(zk, "/a", b"me").members()
    s: bool = r.PersistentEphemeral(zk, "/a", 1).exists
    t: str = await r.PriorityQueue(zk, "/a").put(1, priority=5)
    u: int = await r.Queue(zk, "/a").get()
    v: r.Lease = await r.ReadWriteLock(zk, "/a").write().acquire()
    w: r.Lease = await r.Semaphore(zk, "/a", 2).acquire()
    x: r.Lease = await r.SemaphoreLock(zk, "/a").acquire()
    y: int = r.TreeCache(zk, "/a").nodes["/a"].value
    z: r.Lease | None = await r.TryLock(zk, "/a").attempt()
    A: bool = await r.TwoPhaseCommit(zk, "/a").outcome()
    B: int = await r.UniqueId(zk, "/a").next()
    await r.Worker(zk, "/a", "me", work).report("task", 0.5)
"""


def as_blocking_program(program: str) -> str:
    """Return the program rewritten for the blocking client."""
    imported = "from zoolet.client.blocking import Client, recipes as r"
    return re.sub(
        r"\b(?:async|await) ", "", program.replace("from zoolet.client import Client, recipes as r", imported)
    )


@pytest.mark.slow
def test_type_checkers_reject_only_wrong_values(tmp_path: Path) -> None:
    programs = {"asyncio_client.py": VALUES_PROGRAM, "blocking_client.py": as_blocking_program(VALUES_PROGRAM)}
    wrong = {
        f"{name}:{number}"
        for name, program in programs.items()
        for number, line in enumerate(program.splitlines(), 1)
        if line.endswith("# wrong")
    }

    for checker, errors in errors_of_both_checkers(tmp_path, programs).items():
        assert {place: errors.get(place) for place in errors.keys() ^ wrong} == {}, checker
    assert len(wrong) > 70


@pytest.mark.slow
def test_types_of_every_recipe_are_inferred(tmp_path: Path) -> None:
    programs = {
        "asyncio_client.py": EVERY_RECIPE_PROGRAM,
        "blocking_client.py": as_blocking_program(EVERY_RECIPE_PROGRAM),
    }

    assert set(re.findall(r"r\.(\w+)\(zk, ", EVERY_RECIPE_PROGRAM)) == set(blocking_recipes.RECIPES)
    assert errors_of_both_checkers(tmp_path, programs) == {"mypy": {}, "pyright": {}}


def test_generic_classes_are_subscriptable_at_run_time() -> None:
    assert type(Client[bytes]("127.0.0.1:1")) is Client
    assert type(blocking.Client[bytes]("127.0.0.1:1")) is blocking.Client
    for module in (recipes, blocking_recipes):
        for name in ("Config", "ChildrenCache", "LockingQueue", "NodeCache", "QueueEntry", "TreeCache"):
            assert get_origin(getattr(module, name)[int]) is getattr(module, name)
    assert type(recipes.Queue[bytes](Client("127.0.0.1:1"), "/a")) is recipes.Queue
    assert Serializer[int]("int", lambda number: b"%d" % number, int).read("/a", b"7") == 7

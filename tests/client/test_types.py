"""The messages of a type checker about programs that use the client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.rooms import ROOT
from support.type_checker import check_program, error_codes, revealed_types

TYPED_PROGRAM = """
from zoolet.client import Client, Event, Stat, State


async def main() -> None:
    async with Client("127.0.0.1:2181", timeout=5.0) as zk:
        reveal_type(zk)
        reveal_type(await zk.get("/a"))
        reveal_type(await zk.exists("/a"))
        reveal_type(await zk.children("/a"))
        reveal_type(await zk.children_and_stat("/a"))
        reveal_type(await zk.create("/a", b"v", ephemeral=True))
        reveal_type(await zk.set("/a", b"w", version=1))
        reveal_type(await zk.delete("/a", recursive=True))
        reveal_type(await zk.ephemerals())
        reveal_type(zk.state)
        async with zk.transaction() as t:
            t.create("/b", b"")
        reveal_type(t)
        async with zk.watch("/a", recursive=True) as events:
            async for event in events:
                reveal_type(event)
                path: str = event.path
        state: State = zk.state
        stat: Stat | None = await zk.exists("/a")
        event_of: type[Event] = Event
        async for one in zk.states():
            reveal_type(one)
        print(path, state, stat, event_of)
"""
WRONG_PROGRAM = """
from zoolet.client import Client


async def main(zk: Client) -> None:
    await zk.get(5)
    await zk.create("/a", b"", True)
    await zk.set("/a")
    stat = await zk.exists("/a")
    stat.version
"""
REVEALED_TYPES = [
    "zoolet.client.client.Client[bytes]",
    "tuple[bytes, zoolet.protocol.records.Stat]",
    "zoolet.protocol.records.Stat | None",
    "list[str]",
    "tuple[list[str], zoolet.protocol.records.Stat]",
    "str",
    "zoolet.protocol.records.Stat",
    "None",
    "list[str]",
    "zoolet.client.wire.states.State",
    "zoolet.client.wire.transaction.Transaction[bytes]",
    "tuple[zoolet.protocol.enums.EventType, str, int | None, fallback=zoolet.client.wire.states.Event]",
    "zoolet.client.wire.states.State",
]


@pytest.mark.slow
def test_types_of_user_program_are_inferred(tmp_path: Path) -> None:
    messages = check_program(tmp_path, TYPED_PROGRAM)

    assert messages[-1] == "Success: no issues found in 1 source file"
    assert revealed_types(messages) == REVEALED_TYPES


@pytest.mark.slow
def test_type_errors_in_user_program_are_found(tmp_path: Path) -> None:
    assert error_codes(check_program(tmp_path, WRONG_PROGRAM)) == ["arg-type", "call-arg", "call-arg", "union-attr"]


REVEALED_BLOCKING = {
    "lease.token": "int",
    "lease.lost.wait()": "str",
    "lease.transaction()": "zoolet.client.blocking.context.BlockingTransaction[Any]",
    "cache.values": "typing.Mapping[str, bytes]",
    "r.Lock(zk, '/l', on_lost='flag').attempt()": "zoolet.client.blocking.recipes.Lease | None",
    "r.DurableLock(zk, '/d', 'me').acquire(timeout=1)": "zoolet.client.blocking.recipes.DurableLease",
    "r.LockingQueue(zk, '/q').acquire()": "zoolet.client.blocking.recipes.QueueEntry[bytes]",
    "r.Election(zk, '/e').observe().next(timeout=1)": "bytes | None",
    "r.Counter(zk, '/n').add(2, timeout=1)": "int",
    "r.Queue(zk, '/q').put(b'')": "str",
    "r.ReadWriteLock(zk, '/rw').write().acquire()": "zoolet.client.blocking.recipes.Lease",
    "r.MultiLock(zk, ['/a', '/b']).acquire().tokens": "dict[str, int]",
}


@pytest.mark.slow
def test_types_of_blocking_recipes_are_inferred(tmp_path: Path) -> None:
    program = (
        "from zoolet.client.blocking import Client, recipes as r\n"
        "with Client('x') as zk, zk.lock('/l') as lease, r.ChildrenCache(zk, '/c') as cache:\n"
    )

    messages = check_program(tmp_path, program + "".join(f"    reveal_type({line})\n" for line in REVEALED_BLOCKING))

    assert dict(zip(REVEALED_BLOCKING, revealed_types(messages), strict=True)) == REVEALED_BLOCKING


WRONG_BLOCKING_PROGRAM = """
from zoolet.client.blocking import Client, recipes as r
def f(zk: Client) -> None:
    r.Lock(zk, "/l", tmeout=3)
    r.Counter(zk, "/n").add("1")
    zk.lock("/l").aquire()
    r.Barrier("x", "/b")
    r.Lock(zk, "/l", on_lost="no")
    zk.lock("/l", naming="x")
"""


@pytest.mark.slow
def test_type_errors_with_blocking_recipes_are_found(tmp_path: Path) -> None:
    found = error_codes(check_program(tmp_path, WRONG_BLOCKING_PROGRAM))

    assert found == ["call-arg", "arg-type", "attr-defined", "arg-type", "arg-type", "arg-type"]


def test_stub_of_blocking_recipes_is_current() -> None:
    """``make faces`` writes the stub."""
    subprocess.run([sys.executable, ROOT / "docs" / "_build" / "faces.py", "--check"], check=True)

"""What a type checker tells a user of the client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
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
WRONG = """
from zoolet.client import Client


async def main(zk: Client) -> None:
    await zk.get(5)
    await zk.create("/a", b"", True)
    await zk.set("/a")
    stat = await zk.exists("/a")
    stat.version
"""
REVEALED = [
    "zoolet.client.aio.client.Client",
    "tuple[Any, zoolet.protocol.records.Stat]",
    "zoolet.protocol.records.Stat | None",
    "list[str]",
    "tuple[list[str], zoolet.protocol.records.Stat]",
    "str",
    "zoolet.protocol.records.Stat",
    "None",
    "list[str]",
    "zoolet.client.wire.states.State",
    "zoolet.client.wire.transaction.Transaction",
    "zoolet.client.wire.states.Event",
    "zoolet.client.wire.states.State",
]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the packages stand as they do when they are installed."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "zoolet").mkdir()
    for part in ("protocol", "server", "client"):
        (folder / "zoolet" / part).symlink_to(ROOT / part)
    return folder


def checked(linked: Path, program: str) -> list[str]:
    """Return what ``mypy --strict`` says of a program, without the numbers of lines."""
    (linked / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--explicit-package-bases"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "users"), "--follow-imports=silent", "program.py"]
    done = subprocess.run(command, cwd=linked, capture_output=True, text=True, timeout=120, check=False)
    return [re.sub(r"^program.py:\d+: ", "", line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_user_s_program_is_typed(linked: Path) -> None:
    pytest.importorskip("mypy")

    *notes, last = checked(linked, PROGRAM)

    assert last == "Success: no issues found in 1 source file"
    assert [note.removeprefix("note: Revealed type is ").strip('"') for note in notes] == REVEALED


@pytest.mark.slow
def test_a_user_s_mistakes_are_found(linked: Path) -> None:
    pytest.importorskip("mypy")

    *errors, _ = checked(linked, WRONG)

    assert [re.search(r"\[([a-z-]+)\]$", error)[1] for error in errors if error.startswith("error")] == [  # type: ignore[index]
        "arg-type",
        "call-arg",
        "call-arg",
        "union-attr",
    ]


REVEALED_BLOCKING = {
    "lease.token": "int",
    "lease.lost.wait()": "str",
    "lease.transaction()": "zoolet.client.blocking.context.BlockingTransaction",
    "cache.values": "typing.Mapping[str, Any]",
    "r.Lock(zk, '/l', on_lost='flag').attempt()": "zoolet.client.blocking.recipes.Lease | None",
    "r.DurableLock(zk, '/d', 'me').acquire(timeout=1)": "zoolet.client.blocking.recipes.DurableLease",
    "r.LockingQueue(zk, '/q').acquire()": "zoolet.client.blocking.recipes.Entry",
    "r.Election(zk, '/e').observe().next(timeout=1)": "bytes | None",
    "r.Counter(zk, '/n').add(2, timeout=1)": "int",
    "r.Queue(zk, '/q').put(b'')": "str",
    "r.ReadWriteLock(zk, '/rw').write().acquire()": "zoolet.client.blocking.recipes.Lease",
    "r.MultiLock(zk, ['/a', '/b']).acquire().tokens": "dict[str, int]",
}


@pytest.mark.slow
def test_recipes_for_threads_have_types(linked: Path) -> None:
    pytest.importorskip("mypy")
    program = (
        "from zoolet.client.blocking import Client, recipes as r\n"
        "with Client('x') as zk, zk.lock('/l') as lease, r.ChildrenCache(zk, '/c') as cache:\n"
    )

    *notes, _ = checked(linked, program + "".join(f"    reveal_type({line})\n" for line in REVEALED_BLOCKING))

    revealed = [note.removeprefix("note: Revealed type is ").strip('"') for note in notes]
    assert dict(zip(REVEALED_BLOCKING, revealed, strict=True)) == REVEALED_BLOCKING


WRONG_BLOCKING = """
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
def test_mistakes_with_recipes_for_threads_are_found(linked: Path) -> None:
    pytest.importorskip("mypy")

    *errors, _ = checked(linked, WRONG_BLOCKING)

    kinds = [re.search(r"\[([a-z-]+)\]$", error)[1] for error in errors if error.startswith("error")]  # type: ignore[index]
    assert kinds == ["call-arg", "arg-type", "attr-defined", "arg-type", "arg-type", "arg-type"]


def test_the_stub_of_recipes_for_threads_is_new() -> None:
    """``make faces`` writes it."""
    subprocess.run([sys.executable, ROOT / "docs" / "_build" / "faces.py", "--check"], check=True)

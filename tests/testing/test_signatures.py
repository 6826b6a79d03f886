"""The types of the test toolkit: what a type checker refuses, and that the lists it needs are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final, get_args

import pytest

from zoolet.protocol.operations import OPERATIONS, codes_named
from zoolet.server.core.compat import BY_NAME
from zoolet.server.testing.signatures import ClockName, CompatName, OpName

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = """
from zoolet.client import Client
from zoolet.testing import ClientFactory, KazooFactory, OpView, Recording, Server, ServerFactory, hold, lose_reply

def good(server: Server, zk: Client, factory: ServerFactory, connect: KazooFactory, clients: ClientFactory) -> None:
    server.expire(zk)
    server.expire(7)
    server.expire("all")
    server.expire(connect())
    server.fault(lose_reply(), "create", client=zk, when=lambda op: op.data == b"x")
    server.fault(lose_reply(), "get_children2")
    factory(clock="manual", compat="3.8", seed=7).wait_for_node("/a").data
    with server.recording(zk) as ops:
        first: OpView = ops[0]
        rest: list[OpView] = ops[1:]
        assert ops.select("create") or first or rest
    loaded: Recording = Recording.load("x")
    loaded.assert_same(ops)

async def twins(server: Server) -> None:
    (await server.until_node("/a")).version

def bad(server: Server, factory: ServerFactory) -> None:
    server.expire(3.4)  # bad
    server.expire("everyone")  # bad
    server.fault(lose_reply(), "creat")  # bad
    server.fault(lose_reply)  # bad
    server.fault(hold(), client=object())  # bad
    Server(clock="fast")  # bad
    Server(compat="2.0")  # bad
    factory(clock="fast")  # bad
    server.recording(1.5)  # bad
    server.wait_for_node("/a", timeout="1")  # bad
"""


def snake(name: str) -> str:
    """Write a name as Python does."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_the_names_of_operations_are_those_of_the_table() -> None:
    names = {name for row in OPERATIONS.values() for name in (row.name, *row.aliases) if codes_named(name)}

    listed = [*get_args(OpName)]
    assert set(listed) == {form for name in names for form in (name, snake(name))}
    assert len(listed) == len(set(listed))
    assert all(map(codes_named, listed))


def test_the_other_names_are_those_that_a_server_knows() -> None:
    assert set(get_args(CompatName)) == set(BY_NAME)
    assert get_args(ClockName) == ("real", "manual")


@pytest.mark.slow
def test_mistakes_are_type_errors_and_nothing_else_is(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    links = ROOT / ".typing"
    if not links.exists():
        pytest.skip("needs the links of the package: make links")

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", tmp_path / "program.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": str(links), "PATH": ""},
    )

    bad = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# bad")}
    found = {int(number) for number in re.findall(r"program\.py:(\d+): error", checked.stdout)}
    assert found == bad, checked.stdout

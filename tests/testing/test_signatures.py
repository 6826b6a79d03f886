"""The types of the test toolkit: errors of a type checker, and the completeness of its lists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final, get_args

import pytest
from support.type_checker import check_program

from zoolet.protocol.operations import OPERATIONS, codes_by_name
from zoolet.server.core.compat import BY_NAME
from zoolet.testing import Server, zoolet_fixture
from zoolet.testing.server import ServerOptions
from zoolet.testing.signatures import ClockName, CompatName, OpName

PROGRAM: Final = """
from zoolet.client import Client
from zoolet.testing import ClientFactory, KazooFactory, OpView, Recording, Server, ServerFactory
from zoolet.testing import hold, lose_reply, zoolet_fixture

def good(server: Server, zk: Client, factory: ServerFactory, connect: KazooFactory, clients: ClientFactory) -> None:
    server.expire(zk)
    server.expire(7)
    server.expire("all")
    server.expire(connect())
    server.fault(lose_reply(), "create", client=zk, when=lambda op: op.data == b"x")
    server.fault(lose_reply(), "get_children2")
    zoolet_fixture("module", admin=True, initial_zxid=5)
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
    zoolet_fixture(seed="x")  # bad
    server.recording(1.5)  # bad
    server.wait_for_node("/a", timeout="1")  # bad
"""


def to_snake_case(name: str) -> str:
    """Convert a name to Python's style."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_operation_names_in_type_equal_those_of_table() -> None:
    names = {name for row in OPERATIONS.values() for name in (row.name, *row.aliases) if codes_by_name(name)}

    listed = [*get_args(OpName)]
    assert set(listed) == {form for name in names for form in (name, to_snake_case(name))}
    assert len(listed) == len(set(listed))
    assert all(map(codes_by_name, listed))


def test_release_and_clock_names_match_server() -> None:
    assert set(get_args(CompatName)) == set(BY_NAME)
    assert get_args(ClockName) == ("real", "manual")


def test_server_options_equal_arguments_of_server() -> None:
    arguments = inspect.signature(Server).parameters.values()
    options = {name: hint.__forward_arg__ for name, hint in ServerOptions.__annotations__.items()}

    assert options == {each.name: each.annotation for each in arguments if each.kind is each.KEYWORD_ONLY}


def test_unknown_argument_of_fixture_raises() -> None:
    with pytest.raises(TypeError, match="unknown argument 'clok'"):
        zoolet_fixture(clok="manual")  # type: ignore[call-arg]


@pytest.mark.slow
def test_type_checker_reports_only_mistakes(tmp_path: Path) -> None:
    messages = "\n".join(check_program(tmp_path, PROGRAM))

    bad = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# bad")}
    assert {int(number) for number in re.findall(r"^(\d+): error", messages, re.MULTILINE)} == bad, messages

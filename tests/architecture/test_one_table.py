"""An operation needs only one row of protocol/operations.py and one handler in server, client, faults and docs.

These tests use an invented operation: getUpperCase returns a node's data as text, in upper case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from support.calls import connect_peer, create, request_reply, send_command
from support.engine import make_engine
from support.generators import load_generator
from support.numbers import NO_NODE, OK, UNIMPLEMENTED
from support.peer import Peer
from support.simulation import with_client
from support.wire import Wire

from zoolet.client import Client, ConnectionLossError, NoNodeError
from zoolet.protocol.codec import Record, record
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.protocol.operations import OPERATIONS, Operation
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.ops.dispatch import TABLE, reads
from zoolet.server.core.state import ServerState
from zoolet.testing import Server, error, lose_reply

CODE: Final = 900
NAME: Final = "getUpperCase"


@record
class GetUpperCaseRequest(Record):
    """A request for a node's data in upper case."""

    path: str


@record
class GetUpperCaseResponse(Record):
    """A node's data in upper case."""

    text: str


ROW: Final = Operation(
    code=CODE,
    name=NAME,
    short="UPPR",
    since="4.2",
    request=GetUpperCaseRequest,
    response=GetUpperCaseResponse,
    idempotent=True,
    note="invented",
)


def get_upper_case(state: ServerState, client: ClientConnection, request: GetUpperCaseRequest) -> bytes:
    """Return the data of a node in upper case."""
    node = state.tree.find(request.path)
    return GetUpperCaseResponse((node.data or b"").decode().upper()).encode()


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operation]:
    """The row of the invented operation, added to the table together with its handler."""
    monkeypatch.setitem(OPERATIONS, CODE, ROW)
    reads(CODE)(get_upper_case)
    yield ROW
    del TABLE[CODE]


# --- without a row for the operation ---


def test_op_code_without_row_in_table_is_unknown() -> None:
    peer = connect_peer(make_engine())

    reply = request_reply(peer, CODE, GetUpperCaseRequest("/"))

    assert reply.err == UNIMPLEMENTED
    assert peer.closed


# --- the server ---


@pytest.mark.usefixtures("row")
def test_engine_answers_new_operation_of_table() -> None:
    peer = connect_peer(make_engine())
    create(peer, "/a", data=b"quiet")

    response = peer.call(CODE, GetUpperCaseRequest("/a"))

    assert response == GetUpperCaseResponse("QUIET")


@pytest.mark.usefixtures("row")
def test_error_of_handler_is_error_of_reply() -> None:
    peer = connect_peer(make_engine())

    reply = request_reply(peer, CODE, GetUpperCaseRequest("/none"))

    assert (reply.err, reply.body) == (NO_NODE, b"")
    assert not peer.closed


def read_only_peer() -> Peer:
    """Return a client of a server that is now read-only and has a node ``/a``."""
    engine = make_engine()
    create(connect_peer(engine), "/a", data=b"quiet")
    engine.set_read_only(True)
    return connect_peer(engine, read_only=True)


@pytest.mark.usefixtures("row")
def test_read_only_server_answers_new_reading_operation() -> None:
    response = read_only_peer().call(CODE, GetUpperCaseRequest("/a"))

    assert response == GetUpperCaseResponse("QUIET")


def test_read_only_server_refuses_new_writing_operation(row: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, CODE, row._replace(takes_zxid=True))

    with pytest.raises(NotReadOnlyError):
        read_only_peer().call(CODE, GetUpperCaseRequest("/a"))


@pytest.mark.usefixtures("row")
def test_cons_shows_short_name_of_new_operation() -> None:
    engine = make_engine()
    request_reply(connect_peer(engine), CODE, GetUpperCaseRequest("/"))

    assert ",lop=UPPR," in send_command(engine, "cons")


# --- faults, views, documentation ---


@pytest.mark.usefixtures("row")
@pytest.mark.parametrize("op", [NAME, "get_upper_case", CODE])
def test_fault_hits_operation_by_name_and_path(op: str | int) -> None:
    with (
        Server() as server,
        Wire(server).welcomed() as wire,
        server.fault(error(NO_NODE), op, "/loud*") as fault,
    ):
        server.populate({"/loud": b"a", "/quiet": b"b"})

        errors = [wire.ask(CODE, GetUpperCaseRequest(path)) for path in ("/loud", "/quiet")]

        assert errors == [NO_NODE, OK]
        assert (fault.hits, fault.seen) == (1, 1)


@pytest.mark.usefixtures("row")
def test_recorded_request_names_operation_and_path() -> None:
    with Server() as server, Wire(server).welcomed() as wire:
        wire.ask(CODE, GetUpperCaseRequest("/none"))

        (view,) = server.ops(last=1)

    assert (view.op, view.path, view.error) == (NAME, "/none", NO_NODE)


@pytest.mark.usefixtures("row")
def test_page_on_compatibility_lists_operation() -> None:
    assert f"| {CODE} | {NAME} | 4.2 |  | invented |" in load_generator("compatibility").page().splitlines()


# --- the client ---


@pytest.mark.usefixtures("row")
@pytest.mark.parametrize("operation", [NAME, CODE])
def test_client_sends_operation_and_decodes_reply(operation: str | int) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"quiet")

        response = await zk.call(operation, GetUpperCaseRequest("/a"))

        assert response == GetUpperCaseResponse("QUIET")

    with_client(main)


@pytest.mark.usefixtures("row")
def test_client_raises_error_of_reply() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(NoNodeError):
            await zk.call(NAME, GetUpperCaseRequest("/none"))

    with_client(main)


@pytest.mark.usefixtures("row")
def test_client_repeats_operation_after_lost_reply() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"quiet")
        with server.fault(lose_reply(), NAME, times=1, strict=True):
            response = await zk.call(NAME, GetUpperCaseRequest("/a"))

        assert response == GetUpperCaseResponse("QUIET")

    with_client(main)


def test_client_repeats_only_idempotent_operation(row: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATIONS, CODE, row._replace(idempotent=False))

    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"quiet")
        with server.fault(lose_reply(), NAME, times=1, strict=True) as fault:
            with pytest.raises(ConnectionLossError) as lost:
                await zk.call(NAME, GetUpperCaseRequest("/a"))

        assert lost.value.maybe_applied
        assert fault.seen == 1

    with_client(main)


def test_client_refuses_operation_without_row_in_table() -> None:
    async def main(server: Server, zk: Client) -> None:
        with pytest.raises(ValueError, match=NAME):
            zk.call(NAME, GetUpperCaseRequest("/a"))

    with_client(main)

"""The client's operations: handwritten bodies equal the encoded records, and each operation has its op code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.record_strategies import ints, longs
from support.simulation import simulate

from zoolet.client import Client
from zoolet.client.aio.watcher import Watcher
from zoolet.client.serializers import raw
from zoolet.client.wire import operations as ops
from zoolet.client.wire.session import ClientSession
from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import AddWatchMode, CreateMode, WatcherType
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.protocol.paths import is_valid_name
from zoolet.testing import Server, Simulation

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(is_valid_name)
node_paths = st.lists(names.filter(lambda name: "/" not in name), max_size=4).map(lambda parts: "/" + "/".join(parts))
"""Valid paths of any nodes, including the root."""
versions = ints
watcher_types = st.sampled_from(WatcherType)

few_examples = settings(max_examples=50, deadline=None)
chroots = pytest.mark.parametrize("chroot", ["", "/app/å"])

Expected = Callable[[str, bytes, int, WatcherType], Record]
OPERATION_CASES: Final[dict[str, tuple[Callable[[Client, str, bytes, int, WatcherType], Any], OpCode, Expected]]] = {
    "get": (lambda zk, p, d, v, t: zk.get(p), OpCode.GET_DATA, lambda p, d, v, t: r.GetDataRequest(p, False)),
    "exists": (lambda zk, p, d, v, t: zk.exists(p), OpCode.EXISTS, lambda p, d, v, t: r.ExistsRequest(p, False)),
    "children": (
        lambda zk, p, d, v, t: zk.children(p),
        OpCode.GET_CHILDREN,
        lambda p, d, v, t: r.GetChildrenRequest(p, False),
    ),
    "children_and_stat": (
        lambda zk, p, d, v, t: zk.children_and_stat(p),
        OpCode.GET_CHILDREN2,
        lambda p, d, v, t: r.GetChildrenRequest(p, False),
    ),
    "count_below": (
        lambda zk, p, d, v, t: zk.count_below(p),
        OpCode.GET_ALL_CHILDREN_NUMBER,
        lambda p, d, v, t: r.GetAllChildrenNumberRequest(p),
    ),
    "ephemerals": (
        lambda zk, p, d, v, t: zk.ephemerals(p),
        OpCode.GET_EPHEMERALS,
        lambda p, d, v, t: r.GetEphemeralsRequest(p),
    ),
    "get_acl": (lambda zk, p, d, v, t: zk.get_acl(p), OpCode.GET_ACL, lambda p, d, v, t: r.GetACLRequest(p)),
    "sync": (lambda zk, p, d, v, t: zk.sync(p), OpCode.SYNC, lambda p, d, v, t: r.SyncRequest(p)),
    "who_am_i": (lambda zk, p, d, v, t: zk.who_am_i(), OpCode.WHO_AM_I, lambda p, d, v, t: r.EmptyRequest()),
    "set": (lambda zk, p, d, v, t: zk.set(p, d, v), OpCode.SET_DATA, lambda p, d, v, t: r.SetDataRequest(p, d, v)),
    "delete": (lambda zk, p, d, v, t: zk.delete(p, v), OpCode.DELETE, lambda p, d, v, t: r.DeleteRequest(p, v)),
    "set_acl": (
        lambda zk, p, d, v, t: zk.set_acl(p, OPEN_ACL_UNSAFE, v),
        OpCode.SET_ACL,
        lambda p, d, v, t: r.SetACLRequest(p, OPEN_ACL_UNSAFE, v),
    ),
    "create": (
        lambda zk, p, d, v, t: zk.create(p, d),
        OpCode.CREATE,
        lambda p, d, v, t: r.CreateRequest(p, d, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
    ),
    "create_and_stat": (
        lambda zk, p, d, v, t: zk.create_and_stat(p, d, ephemeral=True),
        OpCode.CREATE2,
        lambda p, d, v, t: r.CreateRequest(p, d, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL),
    ),
    "create with a ttl": (
        lambda zk, p, d, v, t: zk.create(p, d, ttl=1.5),
        OpCode.CREATE_TTL,
        lambda p, d, v, t: r.CreateTTLRequest(p, d, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 1500),
    ),
    "check_watches": (
        lambda zk, p, d, v, t: zk.check_watches(p, t),
        OpCode.CHECK_WATCHES,
        lambda p, d, v, t: r.CheckWatchesRequest(p, t),
    ),
    "remove_watches": (
        lambda zk, p, d, v, t: zk.remove_watches(p, t),
        OpCode.REMOVE_WATCHES,
        lambda p, d, v, t: r.RemoveWatchesRequest(p, t),
    ),
}
"""By name: the call, its op code, and its request record, made from a path, data, a version and a WatcherType."""


def with_chroot(main: Callable[[Client], None], chroot: str) -> None:
    """Run with a connected client; its calls are never sent, because *main* does not wait."""

    async def run(sim: Simulation, server: Server) -> None:
        async with Client(server.hosts + chroot) as zk:
            main(zk)

    simulate(run)


@pytest.mark.slow
@chroots
def test_request_of_operation_equals_encoded_record(chroot: str) -> None:
    def main(zk: Client) -> None:
        @settings(max_examples=effort(5, 20) * len(OPERATION_CASES), deadline=None)
        @given(
            name=st.sampled_from(list(OPERATION_CASES)),
            path=node_paths,
            data=st.binary(max_size=20),
            version=versions,
            kind=watcher_types,
        )
        def check(name: str, path: str, data: bytes, version: int, kind: WatcherType) -> None:
            make, op, expected = OPERATION_CASES[name]
            call = make(zk, path, data, version, kind)
            call.cancel()

            assert (call.op, call.body) == (op, expected(zk.add_chroot(path), data, version, kind).encode())

        check()

    with_chroot(main, chroot)


@chroots
@pytest.mark.parametrize("name", OPERATION_CASES)
def test_request_of_operation_on_root_equals_encoded_record(name: str, chroot: str) -> None:
    make, op, expected = OPERATION_CASES[name]

    def main(zk: Client) -> None:
        call = make(zk, "/", b"", -1, WatcherType.ANY)
        call.cancel()
        record = expected(chroot or "/", b"", -1, WatcherType.ANY)

        assert (call.op, call.body) == (op, record.encode())
        assert isinstance(record, OPERATIONS[op].request or r.EmptyRequest)

    with_chroot(main, chroot)


def test_get_config_request_ignores_chroot() -> None:
    def main(zk: Client) -> None:
        call: Any = zk.get_config()
        call.cancel()

        assert call.body == r.GetDataRequest("/zookeeper/config", False).encode()

    with_chroot(main, "/app")


@few_examples
@given(path=node_paths, number=st.integers(0, 5))
def test_watch_request_bytes_equal_three_encoded_records(path: str, number: int) -> None:
    body = ops.watch_request(r.GetACLRequest(path).encode(), number)  # any record of a single path

    assert body == r.AddWatchRequest(path, number).encode()
    assert body == r.CheckWatchesRequest(path, number).encode()
    assert body == r.RemoveWatchesRequest(path, number).encode()


ADD: Final = OpCode.ADD_WATCH
WATCHER_CASES: Final[
    dict[str, tuple[Callable[[Client, str], Watcher], Callable[[str], list[tuple[OpCode, Record]]]]]
] = {
    "watch": (
        lambda zk, p: zk.watch(p),
        lambda p: [
            (ADD, r.AddWatchRequest(p, AddWatchMode.PERSISTENT)),
            (OpCode.EXISTS, r.ExistsRequest(p, False)),
            (OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(p, WatcherType.ANY)),
        ],
    ),
    "recursive watch": (
        lambda zk, p: zk.watch(p, recursive=True),
        lambda p: [
            (ADD, r.AddWatchRequest(p, AddWatchMode.PERSISTENT_RECURSIVE)),
            (OpCode.GET_CHILDREN2, r.GetChildrenRequest(p, False)),
            (OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(p, WatcherType.ANY)),
        ],
    ),
    "watch_data": (
        lambda zk, p: zk.watch_data(p),
        lambda p: [
            (OpCode.GET_DATA, r.GetDataRequest(p, True)),
            (OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(p, WatcherType.DATA)),
        ],
    ),
    "watch_exists": (
        lambda zk, p: zk.watch_exists(p),
        lambda p: [
            (OpCode.EXISTS, r.ExistsRequest(p, True)),
            (OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(p, WatcherType.DATA)),
        ],
    ),
    "watch_children": (
        lambda zk, p: zk.watch_children(p),
        lambda p: [
            (OpCode.GET_CHILDREN, r.GetChildrenRequest(p, True)),
            (OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(p, WatcherType.CHILDREN)),
        ],
    ),
}


@chroots
@pytest.mark.parametrize("name", WATCHER_CASES)
def test_requests_of_each_watcher_equal_encoded_records(
    monkeypatch: pytest.MonkeyPatch, name: str, chroot: str
) -> None:
    make, expected = WATCHER_CASES[name]
    submit = ClientSession.submit
    submitted: list[Any] = []

    def observed(session: ClientSession, call: Any) -> None:
        submitted.append(call)
        submit(session, call)

    async def main(sim: Simulation, server: Server) -> None:
        path = chroot + "/watched/ä"
        server.populate({path: b""})
        async with Client(server.hosts + chroot) as zk:
            monkeypatch.setattr(ClientSession, "submit", observed)
            async with make(zk, "/watched/ä"):
                pass
            await asyncio.sleep(1)
            requests = [(call.op, call.body) for call in submitted]

        assert requests == [(op, record.encode()) for op, record in expected(path)]

    simulate(main)


# --- replies ---


@few_examples
@given(data=st.none() | st.binary(max_size=20), version=versions, mzxid=longs)
def test_read_reply_decodes_to_value_and_stat(data: bytes | None, version: int, mzxid: int) -> None:
    stat = r.Stat(1, mzxid, 3, 4, version, 6, 7, 8, 9, 10, 11)
    body = r.GetDataResponse(data, stat).encode()  # type: ignore[arg-type] # the wire format allows null

    assert ops.decode_raw(b"x" + body, 1, len(body) + 1) == (data or b"", stat)


# --- names of operations ---


@pytest.mark.parametrize("name", ["getData", "setData", "addWatch", "sync"])
def test_op_code_accepts_operation_name_or_code(name: str) -> None:
    code = ops.op_code(name)

    assert OPERATIONS[code].name == name
    assert ops.op_code(code) == code


@pytest.mark.parametrize("operation", ["", "nonsense", 9999, -1000])
def test_unknown_operation_is_refused(operation: str | int) -> None:
    with pytest.raises(ValueError, match="unknown or stands for several"):
        ops.op_code(operation)


def test_result_of_unexpected_type_is_malformed() -> None:
    body = wire.encode_result(OpCode.CREATE, r.CreateResponse("/a").encode()) + wire.END

    with pytest.raises(MarshallingError, match="unexpected result of type CreateResponse"):
        ops.decode_multi_read([("get", "/a")], raw)(body, 0, len(body))

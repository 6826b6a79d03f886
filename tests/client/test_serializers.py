"""Serializers: round trips, errors for invalid values, and the places where a client uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import Connect

from zoolet.client import Client, State, recipes, serializers
from zoolet.client.serializers import Serializer, UndecodableError

ClientCall = Callable[[Client], Any]


# --- values of a client ---


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
async def test_serializer_converts_values_in_all_operations(
    hosts: str, connect: Connect, serializer: Serializer
) -> None:
    zk = await connect(hosts, serializer=serializer)
    value = {"name": "käse", "numbers": [1, 2.5, None, True]}

    await zk.create("/a", value)
    async with zk.transaction() as t:
        t.create("/b", [1])
        t.set("/b", [2])
    ((read, _),) = await zk.multi_read(("get", "/b"))
    updated, _ = await zk.update("/a", lambda old: {**old, "more": 1})
    async with zk.watch_data("/a") as watch:
        found = watch.initial[0]

    assert read == [2]
    assert updated == found == (await zk.get("/a"))[0] == {**value, "more": 1}


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
async def test_value_of_empty_node_is_none(hosts: str, connect: Connect, serializer: Serializer) -> None:
    zk = await connect(hosts, serializer=serializer)

    await zk.create("/a")

    assert (await zk.get("/a"))[0] is None


@pytest.mark.parametrize(
    "read",
    [
        lambda zk: zk.get("/a"),
        lambda zk: zk.multi_read(("get", "/a")),
        lambda zk: zk.update("/a", lambda old: old),
        lambda zk: zk.watch_data("/a").__aenter__(),
    ],
    ids=["get", "multi_read", "update", "watch_data"],
)
async def test_undecodable_data_raises_clear_error(hosts: str, zk: Client, connect: Connect, read: ClientCall) -> None:
    typed = await connect(hosts, serializer=serializers.json)
    await zk.create("/a", b"\xff{")

    with pytest.raises(UndecodableError) as caught:
        await read(typed)

    assert (caught.value.path, caught.value.serializer, caught.value.data) == ("/a", "JSON", b"\xff{")
    assert str(caught.value).startswith("/a: the data is not JSON: ")
    assert await typed.children("/") == ["a"]


async def test_unserializable_value_is_refused_at_call(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, serializer=serializers.json)

    with pytest.raises(TypeError):
        zk.create("/a", object())
    with pytest.raises(ValueError):
        zk.set("/a", float("nan"))


async def test_error_names_serializer_returning_non_bytes(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts, serializer=Serializer("broken", lambda value: value, bytes))

    with pytest.raises(TypeError, match="broken"):
        await zk.create("/a", "text")


# --- bytes ---


VALUES: Final = [None, True, 0, -5, 1.5, "", "käse \N{SNOWMAN}", [], [1, [2]], {}, {"a": {"b": None}}]


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_serializer_reads_its_own_output(serializer: Serializer, value: Any) -> None:
    assert serializer.read("/a", serializer.encode(value)) == value


def test_msgpack_distinguishes_bytes_from_text() -> None:
    assert serializers.msgpack.read("/a", serializers.msgpack.encode({"a": b"\xff", 1: "x"})) == {"a": b"\xff", 1: "x"}
    assert serializers.raw.encode(bytearray(b"ab")) == serializers.raw.encode(memoryview(b"ab")) == b"ab"
    assert serializers.raw.read("/a", None) == b""


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (serializers.json, b"{"),
        (serializers.json, b"\xff"),
        (serializers.json, b"1 2"),
        (serializers.json, b"nonsense"),
        (serializers.msgpack, b"\xc1"),
        (serializers.msgpack, b"\x92\x01"),
        (serializers.msgpack, b"\x01\x01"),
        (serializers.msgpack, b"\xa1\xff"),
        (serializers.json, b"[" * 100_000),
    ],
    ids=lambda value: value.name if isinstance(value, Serializer) else repr(value[:10]),
)
def test_error_of_invalid_bytes_names_path(serializer: Serializer, data: bytes) -> None:
    with pytest.raises(UndecodableError) as caught:
        serializer.read("/a", data)

    error = caught.value
    assert (error.path, error.serializer, error.data) == ("/a", serializer.name, data)
    assert error.reason
    assert str(error).startswith(f"/a: the data is not {serializer.name}: ")


def test_long_data_is_shown_truncated() -> None:
    assert len(str(UndecodableError("/a", "JSON", b"x" * 10_000, "why"))) < 120


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (serializers.raw, "text"),
        (serializers.raw, 5),
        (serializers.raw, None),
        (serializers.json, object()),
        (serializers.json, b"bytes"),
        (serializers.json, float("inf")),
        (serializers.json, "\ud800"),
        (serializers.msgpack, object()),
        (serializers.msgpack, "\ud800"),
        (serializers.msgpack, 1 << 70),
    ],
    ids=lambda value: value.name if isinstance(value, Serializer) else type(value).__name__,
)
def test_unserializable_value_raises_builtin_error(serializer: Serializer, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serializer.encode(value)


# --- serializers that raise ---


def raising(error: BaseException) -> Serializer[Any]:
    """Return a serializer whose ``decode`` raises."""

    def decode(data: bytes, path: str | None = None) -> Any:
        raise error

    return Serializer("raising", lambda value: b"", decode)


ERRORS: Final = [StopIteration("empty"), SystemExit(3), GeneratorExit(), KeyError("k")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_error_of_serializer_reaches_caller(hosts: str, connect: Connect, error: BaseException) -> None:
    zk = await connect(hosts)
    failing, following = zk.with_serializer(raising(error)).get("/"), zk.get("/")

    assert await following
    caught = failing.exception()

    assert isinstance(caught, RuntimeError if isinstance(error, StopIteration) else type(error) | UndecodableError)
    assert error in (caught, caught.__cause__)
    assert zk.state is State.CONNECTED


async def test_cache_whose_serializer_raises_is_not_entered(hosts: str, connect: Connect) -> None:
    zk = await connect(hosts)
    await zk.create("/a", b"v")
    with pytest.raises(RuntimeError, match="the serializer raised StopIteration"):
        async with recipes.NodeCache(zk.with_serializer(raising(StopIteration())), "/a"):
            pass
    assert zk.state is State.CONNECTED

"""Invalid arguments are rejected by name at the call, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.bad_paths import BAD_PATHS

from zoolet.client import Client, State, serializers
from zoolet.client.aio.operations import BaseClient
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import BadVersionError

ClientCall = Callable[[Client], Any]
PATH_CALLS: dict[str, Callable[[Client, Any], Any]] = {
    "get": lambda zk, path: zk.get(path),
    "exists": lambda zk, path: zk.exists(path),
    "children": lambda zk, path: zk.children(path),
    "children_and_stat": lambda zk, path: zk.children_and_stat(path),
    "count_below": lambda zk, path: zk.count_below(path),
    "ephemerals": lambda zk, path: zk.ephemerals(path),
    "get_acl": lambda zk, path: zk.get_acl(path),
    "sync": lambda zk, path: zk.sync(path),
    "multi_read": lambda zk, path: zk.multi_read(("get", "/"), ("children", path)),
    "create": lambda zk, path: zk.create(path),
    "create protected": lambda zk, path: zk.create(path, protected=True),
    "create parents": lambda zk, path: zk.create(path, parents=True),
    "create_and_stat": lambda zk, path: zk.create_and_stat(path),
    "set": lambda zk, path: zk.set(path, b""),
    "delete": lambda zk, path: zk.delete(path),
    "delete recursive": lambda zk, path: zk.delete(path, recursive=True),
    "set_acl": lambda zk, path: zk.set_acl(path, OPEN_ACL_UNSAFE),
    "check_watches": lambda zk, path: zk.check_watches(path),
    "remove_watches": lambda zk, path: zk.remove_watches(path),
    "watch": lambda zk, path: zk.watch(path),
    "watch_data": lambda zk, path: zk.watch_data(path),
    "watch_exists": lambda zk, path: zk.watch_exists(path),
    "watch_children": lambda zk, path: zk.watch_children(path),
}


@pytest.mark.parametrize("name", PATH_CALLS)
async def test_invalid_path_raises_at_call_without_await(embedded: Client, name: str) -> None:
    before = embedded.statistics()

    for path, error in BAD_PATHS:
        with pytest.raises(error):
            PATH_CALLS[name](embedded, path)

    assert embedded.statistics() == before


async def test_invalid_path_is_refused_although_parent_path_is_cached(embedded: Client) -> None:
    for path in ("/", "/a"):
        await embedded.exists(path)

    for path, error in [*BAD_PATHS, ("/a/\0", ValueError), ("/a/..", ValueError), ("/a/b/", ValueError)]:
        for name in PATH_CALLS:
            with pytest.raises(error):
                PATH_CALLS[name](embedded, path)


@pytest.mark.parametrize("name", ["update", "ensure_path"])
async def test_update_and_ensure_path_refuse_invalid_path_unsent(embedded: Client, name: str) -> None:
    before = embedded.statistics()
    args = (lambda old: old,) if name == "update" else ()

    for path, error in BAD_PATHS:
        with pytest.raises(error):
            await getattr(embedded, name)(path, *args)

    assert embedded.statistics() == before


@pytest.mark.parametrize(
    ("do", "error"),
    [
        (lambda zk: zk.set("/a", b"", version="1"), TypeError),
        (lambda zk: zk.set("/a", b"", version=1.0), TypeError),
        (lambda zk: zk.set("/a", b"", version=True), TypeError),
        (lambda zk: zk.set("/a", b"", version=None), TypeError),
        (lambda zk: zk.set("/a", b"", version=1 << 31), ValueError),
        (lambda zk: zk.delete("/a", version=1 << 31), ValueError),
        (lambda zk: zk.delete("/a", version="x", recursive=True), TypeError),
        (lambda zk: zk.set_acl("/a", OPEN_ACL_UNSAFE, version="x"), TypeError),
        (lambda zk: zk.transaction().check("/a", "x"), TypeError),
        (lambda zk: zk.transaction().set("/a", b"", -(1 << 32)), ValueError),
        (lambda zk: zk.transaction().delete("/a", None), TypeError),
        (lambda zk: zk.create("/a", "text"), TypeError),
        (lambda zk: zk.create("/a", None), TypeError),
        (lambda zk: zk.set("/a", 5), TypeError),
        (lambda zk: zk.transaction().create("/a", "text"), TypeError),
        (lambda zk: zk.create("/a", ttl=0), ValueError),
        (lambda zk: zk.create("/a", ttl=-1), ValueError),
        (lambda zk: zk.create("/a", ttl=float("nan")), ValueError),
        (lambda zk: zk.create("/a", ttl=1e12), ValueError),
        (lambda zk: zk.create("/a", ttl="1"), TypeError),
        (lambda zk: zk.create("/a", ttl=1, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", container=True, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", container=True, sequential=True), ValueError),
        (lambda zk: zk.create("/a", container=True, ttl=1), ValueError),
        (lambda zk: zk.create("/a", ephemeral="x"), TypeError),
        (lambda zk: zk.create("/a", sequential=1), TypeError),
        (lambda zk: zk.create("/a", container=None), TypeError),
        (lambda zk: zk.delete("/a", recursive="x"), TypeError),
        (lambda zk: zk.transaction().create("/a", ttl=1, ephemeral=True), ValueError),
        (lambda zk: zk.create("/a", acl=5), TypeError),
        (lambda zk: zk.multi_read(("write", "/a")), ValueError),
        (lambda zk: zk.watch("/a", limit=0), ValueError),
        (lambda zk: zk.watch("/a", limit="x"), ValueError),
        (lambda zk: zk.with_operation_timeout(-1), ValueError),
        (lambda zk: zk.with_operation_timeout(float("nan")), ValueError),
        (lambda zk: zk.with_operation_timeout("x"), ValueError),
        (lambda zk: zk.add_auth("digest", "bob:secret"), TypeError),
    ],
)
async def test_invalid_argument_is_refused_at_call(embedded: Client, do: ClientCall, error: type[Exception]) -> None:
    before = embedded.statistics()

    with pytest.raises(error):
        do(embedded)

    assert embedded.statistics() == before


@pytest.mark.parametrize("version", [-(1 << 31), (1 << 31) - 1])
async def test_lowest_and_highest_version_are_sent(embedded: Client, version: int) -> None:
    with pytest.raises(BadVersionError):
        await embedded.set("/", b"", version)


@pytest.mark.parametrize(
    "do",
    [
        pytest.param(lambda zk: zk.create("/a", acl="world:anyone"), id="acl is text"),
        pytest.param(lambda zk: zk.create("/a", acl=("world:anyone",)), id="acl of texts"),
        pytest.param(lambda zk: zk.set_acl("/a", "x"), id="set_acl of text"),
        pytest.param(lambda zk: zk.check_watches("/a", "data"), id="kind is text"),
        pytest.param(lambda zk: zk.add_auth(5, b"bob:secret"), id="scheme is a number"),
    ],
)
async def test_argument_of_wrong_type_is_refused_at_call(embedded: Client, do: ClientCall) -> None:
    with pytest.raises(TypeError):
        do(embedded)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": 1e10}, ValueError),
        ({"timeout": "10"}, (TypeError, ValueError)),
        ({"operation_timeout": -1}, ValueError),
        ({"operation_timeout": "x"}, (TypeError, ValueError)),
        ({"codec": "json"}, TypeError),
        ({"hosts": ""}, ValueError),
        ({"hosts": None}, TypeError),
        ({"hosts": "a:1/x/"}, ValueError),
    ],
)
def test_invalid_client_options_are_refused(
    options: dict[str, Any], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    with pytest.raises(error):
        Client(**{"hosts": "127.0.0.1:1", **options})


@pytest.mark.parametrize(
    "options",
    [
        {"auth": (("digest", "bob:secret"),)},
        {"auth": ((5, b"bob:secret"),)},
        {"login": "bob:secret"},
        {"login": ("bob", b"secret")},
        {"max_request": "1"},
        {"backoff": 0.5},
    ],
    ids=["auth is text", "scheme is a number", "login is text", "password is bytes", "max_request", "backoff"],
)
def test_client_options_of_wrong_type_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Client("127.0.0.1:1", **options)


@pytest.mark.parametrize("options", [{"auth": ("digest", b"bob:secret")}, {"login": ("bob", b"secret")}])
def test_error_about_credentials_does_not_reveal_them(options: dict[str, Any]) -> None:
    with pytest.raises(
        TypeError, match=r"^(auth must be a sequence of pairs|login must be a pair of strings)"
    ) as caught:
        Client("127.0.0.1:1", **options)

    assert "secret" not in str(caught.value)


def test_base_class_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match=r"^BaseClient has no constructor; create a zoolet\.client\.Client$"):
        BaseClient("127.0.0.1:2181")


def test_unexpected_argument_error_names_client_class() -> None:
    options: dict[str, Any] = {"codec": "json"}
    with pytest.raises(TypeError, match=r"^Client\.__init__\(\) got an unexpected keyword argument 'codec'"):
        Client("127.0.0.1:1", **options)


async def test_wait_for_rejects_value_that_is_not_a_state(embedded: Client) -> None:
    states: Any = ["x"]
    for wrong in (states, []):
        with pytest.raises(TypeError, match=r"^states must be one or more of State, such as State\.CONNECTED, not \("):
            await embedded.wait_for(*wrong)


async def test_wait_for_before_start_is_rejected() -> None:
    with pytest.raises(RuntimeError, match="was not started"):
        await Client("127.0.0.1:1").wait_for(State.CONNECTED)


async def test_serializer_error_names_value_and_node(embedded: Client) -> None:
    for serializer, name in ((serializers.json, "JSON"), (serializers.msgpack, "msgpack")):
        zk = embedded.with_serializer(serializer)
        for call in (
            lambda zk=zk: zk.create("/a", {1}),
            lambda zk=zk: zk.set("/a", {1}),
            lambda zk=zk: zk.transaction().create("/a", {1}),
        ):
            with pytest.raises(
                TypeError, match=rf"^/a: value must be supported by the serializer '{name}', not \{{1\}}: "
            ):
                call()
    with pytest.raises(ValueError, match=r"^/a: value must be supported by the serializer 'JSON', not nan: "):
        embedded.with_serializer(serializers.json).set("/a", float("nan"))


def test_update_requires_function(embedded: Client) -> None:
    change: Any = 5
    with pytest.raises(TypeError, match=r"^change must be a function, not 5$"):
        embedded.update("/a", change)

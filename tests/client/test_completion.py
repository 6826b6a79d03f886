"""Completions: the names that jedi, the engine of many editors, offers after a dot, and that ``dir()`` lists."""

from __future__ import annotations

import traceback
from types import ModuleType
from typing import Any, Final, get_type_hints

import pytest

import zoolet.client
import zoolet.testing
from zoolet.client import Client, blocking, recipes, serializers
from zoolet.client.blocking import recipes as blocking_recipes
from zoolet.client.recipes._base import INTERNAL

jedi = pytest.importorskip("jedi", reason="make setup installs jedi")
RECIPES_OF_ONE_PATH: Final = """
    Barrier ChildrenCache Config Counter Discovery Election Lock LockTable LockingQueue Master NodeCache NodeElection
    Overview Party PersistentEphemeral Queue ReadWriteLock Semaphore SemaphoreLock TreeCache TryLock UniqueId
"""
COMPLETIONS = {
    "async with zoolet.client.Client('x') as it": "get set create lock watch transaction",
    "with zoolet.client.blocking.Client('x') as it": "get set create lock watch transaction",
    "with zoolet.testing.Server() as it": "expire tree populate fault",
    "async with zoolet.testing.Server() as it": "expire tree populate until_node",
    "with zoolet.client.blocking.recipes.Lock(zk, '/') as it": "token lost release valid_for",
    "with zoolet.client.blocking.recipes.Master(zk, '/') as it": "submit result workers",
    "async with zoolet.client.recipes.TreeCache(zk, '/') as it": "nodes errors changes",
    "async with zoolet.client.recipes.Party(zk, '/') as it": "members changes",
    "async with zoolet.client.recipes.Lock(zk, '/') as it": "token lost release valid_for",
}


@pytest.mark.parametrize("block", COMPLETIONS)
def test_editor_completes_attributes_of_value_bound_by_with(block: str) -> None:
    imports = "import zoolet.testing, zoolet.client.blocking.recipes, zoolet.client.recipes"
    source = f"{imports}\nasync def f(zk):\n    {block}:\n        it."

    offered = {completion.name for completion in jedi.Script(source).complete(4, len("        it."))}

    assert set(COMPLETIONS[block].split()) <= offered
    assert not offered & {"mark_lost", "begin_block", "become"}


@pytest.mark.parametrize("view", ["with_acl(None)", "with_operation_timeout(1)", "with_serializer(json)"])
def test_editor_completes_operations_of_client_view(view: str) -> None:
    source = f"from zoolet.client import Client\nfrom zoolet.client.serializers import json\nClient('x').{view}."

    offered = {completion.name for completion in jedi.Script(source).complete()}

    assert {"get", "set", "create", "lock"} <= offered


def test_editor_completes_methods_of_client_subclass() -> None:
    source = """
from zoolet.client import Client
class Sub(Client):
    def mine(self): ...
async def f():
    async with Sub("x") as it:
        it."""

    offered = {completion.name for completion in jedi.Script(source).complete()}

    assert {"get", "lock", "mine"} <= offered


def test_dir_of_client_package_lists_public_names() -> None:
    assert dir(zoolet.client) == sorted(zoolet.client.__all__)


def test_dir_of_recipes_and_serializers_lists_public_names() -> None:
    assert dir(recipes) == sorted(recipes.__all__)
    assert dir(serializers) == sorted(serializers.__all__)


@pytest.mark.parametrize("module", [recipes, blocking_recipes])
async def test_dir_of_client_and_recipes_hides_internal_names(module: ModuleType) -> None:
    zk = Client("127.0.0.1:1") if module is recipes else blocking.Client("127.0.0.1:1")
    if isinstance(zk, blocking.Client):
        zk.start(wait=False)
    made = [zk, *(getattr(module, name)(zk, "/a") for name in RECIPES_OF_ONE_PATH.split())]
    made.append(recipes.DurableLease.__new__(recipes.DurableLease))

    listed = {name for one in made for name in dir(one) if not name.startswith("_")}

    assert {"get", "start", "acquire", "attempt", "changes", "release"} <= listed
    if isinstance(zk, blocking.Client):
        zk.close()
    assert not listed & (INTERNAL - {"start"} | {"add_chroot", "first_round", "strip_chroot", "asyncio_class", "of"})


def test_public_classes_name_public_modules_as_their_module() -> None:
    public = [getattr(module, name) for module in (zoolet.client, recipes, blocking_recipes) for name in module.__all__]
    modules = {kind.__module__ for kind in public if isinstance(kind, type)}

    assert modules == {
        "zoolet.client",
        "zoolet.client.recipes",
        "zoolet.client.blocking.recipes",
        "zoolet.protocol.enums",
        "zoolet.protocol.errors",
        "zoolet.protocol.records",
    }
    assert blocking.Client.__module__ == "zoolet.client.blocking"
    assert traceback.format_exception_only(recipes.LockLostError("/a", "why"))[0].startswith("zoolet.client.recipes.L")
    assert get_type_hints(recipes.Instance)["payload"] is Any


def test_dir_of_testing_lists_public_names() -> None:
    assert dir(zoolet.testing) == sorted(zoolet.testing.__all__)

"""A recipe rejects a client of the wrong kind immediately."""

from __future__ import annotations

import inspect

import pytest

from zoolet.client import Client, blocking, recipes
from zoolet.client.blocking import recipes as blocking_recipes
from zoolet.testing import Server

RECIPES = blocking_recipes.RECIPES


def arguments(name: str) -> list[object]:
    """Return the arguments of a recipe, after the client."""
    parameters = list(inspect.signature(getattr(recipes, name)).parameters.values())[1:]
    return ["/a" for parameter in parameters if parameter.default is parameter.empty]


@pytest.mark.parametrize("name", RECIPES)
def test_asyncio_recipe_error_names_module_for_blocking_client(name: str) -> None:
    client = blocking.Client("127.0.0.1:1")

    with pytest.raises(TypeError, match=r"zoolet\.client\.blocking\.recipes"):
        getattr(recipes, name)(client, *arguments(name))
    with pytest.raises(TypeError, match=r"needs a zoolet\.client\.Client, not 'x'"):
        getattr(recipes, name)("x", *arguments(name))


@pytest.mark.parametrize("name", RECIPES)
def test_blocking_recipe_error_names_module_for_asyncio_client(name: str) -> None:
    with pytest.raises(TypeError, match=r"for an asyncio client use zoolet\.client\.recipes"):
        getattr(blocking_recipes, name)(Client("127.0.0.1:1"), *arguments(name))


@pytest.mark.parametrize("name", ["Election", "Party"])
def test_error_of_str_member_name_suggests_bytes(name: str) -> None:
    with pytest.raises(TypeError, match="name must be bytes, not 'me'; use b'me'"):
        getattr(recipes, name)(Client("127.0.0.1:1"), "/a", "me")


def test_election_for_threads_passes_blocking_lease(zoolet: Server) -> None:
    with blocking.Client(zoolet.hosts) as zk:
        election, paths = blocking_recipes.Election(zk, "/leader"), []

        def lead(leadership: blocking_recipes.Lease) -> None:
            leadership.raise_if_lost()
            paths.append(zk.create(leadership.path + "-seen"))
            raise LookupError("enough")

        with pytest.raises(LookupError):
            election.run(lead)
        assert len(paths) == 1

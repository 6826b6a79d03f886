"""What editors that read the source (with jedi) offer after a dot, and what ``dir()`` lists."""

from __future__ import annotations

import pytest

import zoolet.client

jedi = pytest.importorskip("jedi", reason="make setup installs jedi")
OFFERED = {
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


@pytest.mark.parametrize("block", OFFERED)
def test_the_value_of_a_block_completes(block: str) -> None:
    imports = "import zoolet.testing, zoolet.client.blocking.recipes, zoolet.client.recipes"
    source = f"{imports}\nasync def f(zk):\n    {block}:\n        it."

    offered = {completion.name for completion in jedi.Script(source).complete(4, len("        it."))}

    assert set(OFFERED[block].split()) <= offered
    assert not offered & {"mark_lost", "begin_block", "become"}


def test_the_package_lists_its_public_names() -> None:
    assert dir(zoolet.client) == sorted(zoolet.client.__all__)

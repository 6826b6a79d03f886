"""The error for a method of kazoo names the method of zoolet that replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zoolet.client import Client, blocking
from zoolet.client.wire.kazoo_names import KAZOO_NAMES, no_such_attribute

PROPERTIES = ("connected", "client_state", "client_id")
PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-kazoo.md").read_text()


@pytest.mark.parametrize("kind", [Client, blocking.Client])
def test_kazoo_attribute_error_names_zoolet_method(kind: type) -> None:
    client = kind("127.0.0.1:1")
    missing = [name for name in KAZOO_NAMES if not hasattr(kind, name)]

    messages = {name: str(no_such_attribute(client, name)) for name in missing}

    assert len(missing) > 30
    assert messages == {
        name: f"zoolet's Client has no {name}{'()' if name not in PROPERTIES else ''}; use {KAZOO_NAMES[name]} instead"
        for name in missing
    }
    with pytest.raises(AttributeError, match=r"no Lock\(\); use lock\(path\) or recipes\.Lock\(zk, path\) instead"):
        client.Lock  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'\Z"):
        client.nonsense  # noqa: B018


def test_kazoo_names_exist_and_are_documented() -> None:
    kazoo = KazooClient()

    assert [name for name in KAZOO_NAMES if not hasattr(kazoo, name)] == []
    asynchronous = [name for name in KAZOO_NAMES if name.endswith("_async")]
    others = {name: ours for name, ours in KAZOO_NAMES.items() if name not in asynchronous}
    assert [name for name, ours in others.items() if f"| `{name}` | {ours} |" not in PAGE] == []
    assert f"| {', '.join(f'`{name}`' for name in asynchronous)} | the method without `_async`: " in PAGE

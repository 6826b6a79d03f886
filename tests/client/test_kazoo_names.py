"""Names of kazoo's lead to ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zoolet.client import Client, blocking
from zoolet.client.wire.kazoo_names import KAZOO_NAMES, no_such_attribute

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-kazoo.md").read_text()


@pytest.mark.parametrize("kind", [Client, blocking.Client])
def test_an_attribute_of_kazoo_s_client_is_an_error_that_says_ours(kind: type) -> None:
    client = kind("127.0.0.1:1")
    missing = [name for name in KAZOO_NAMES if not hasattr(kind, name)]

    messages = {name: str(no_such_attribute(client, name)) for name in missing}

    assert len(missing) > 30
    assert messages == {
        name: f"a zoolet Client has no attribute {name!r}; what kazoo calls so is {KAZOO_NAMES[name]} here"
        for name in missing
    }
    with pytest.raises(AttributeError, match=r"Lock.* is lock"):
        client.Lock  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'\Z"):
        client.nonsense  # noqa: B018


def test_the_names_are_kazoo_s_and_stand_in_the_page() -> None:
    kazoo = KazooClient()

    assert [name for name in KAZOO_NAMES if not hasattr(kazoo, name)] == []
    assert [name for name, ours in KAZOO_NAMES.items() if f"| `{name}` | {ours} |" not in PAGE] == []

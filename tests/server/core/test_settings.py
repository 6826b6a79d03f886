"""The limits of the core: each has a key of the configuration."""

from __future__ import annotations

import pytest

from zoolet.server.config import ServerConfig, Setting, build

KEYS = {
    "zoolet.maxAclEntries": "max_acl_entries",
    "zoolet.maxIdentities": "max_identities",
    "zoolet.maxWatches": "max_watches",
    "zoolet.maxWatchesPerConnection": "max_watches_per_connection",
    "zoolet.maxSetWatches": "max_set_watches",
    "zoolet.maxMultiOperations": "max_multi_operations",
    "zoolet.maxMultiReadBytes": "max_multi_read",
    "zoolet.maxUnreadBytes": "max_unread_bytes",
    "zoolet.maxUnreadBytesTotal": "max_unread_bytes_total",
    "zoolet.maxPartialRequestBytes": "max_partial_request_bytes",
}


@pytest.mark.parametrize("key", KEYS)
def test_each_limit_of_engine_is_configurable(key: str) -> None:
    config: ServerConfig = build({key: Setting("1234", "a test")})

    assert getattr(config.settings, KEYS[key]) == 1234


@pytest.mark.parametrize("value", ["0", "-1", "many"])
@pytest.mark.parametrize("key", KEYS)
def test_engine_limit_below_1_or_not_a_number_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=key):
        build({key: Setting(value, "a test")})


@pytest.mark.parametrize("tick", [1, 200, 2000, 3000])
def test_session_timeouts_are_multiples_of_tick(tick: int) -> None:
    settings = build({"tickTime": Setting(str(tick), "a test")}).settings

    assert (settings.min_session_timeout, settings.max_session_timeout) == (2 * tick, 20 * tick)
    assert [settings.negotiate(asked) for asked in (1, 2 * tick, 20 * tick, 20 * tick + 1)] == [
        2 * tick,
        2 * tick,
        20 * tick,
        20 * tick,
    ]

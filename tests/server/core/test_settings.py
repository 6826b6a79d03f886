"""The limits of the core: each has a key of the configuration."""

from __future__ import annotations

import pytest

from zoolet.server.config import Config, Setting, build

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
def test_a_limit_can_be_configured(key: str) -> None:
    config: Config = build({key: Setting("1234", "a test")})

    assert getattr(config.settings, KEYS[key]) == 1234


@pytest.mark.parametrize("value", ["0", "-1", "many"])
@pytest.mark.parametrize("key", KEYS)
def test_a_limit_that_is_no_number_above_0_is_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=key):
        build({key: Setting(value, "a test")})

"""Addresses as text: only IPv6 addresses have brackets."""

from __future__ import annotations

import pytest

from zoolet.protocol.addresses import host_and_port


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1:40"), ("zoo", "zoo:40"), ("::1", "[::1]:40"), ("fe80::1%eth0", "[fe80::1%eth0]:40")],
)
def test_only_ipv6_address_has_brackets(host: str, shown: str) -> None:
    assert host_and_port(host, 40) == shown

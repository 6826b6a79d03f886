"""Connection strings, and the order of attempts to reach their hosts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from zoolet.client.wire.hosts import Address, Hosts, ServerAddress, order_servers


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("a", [("a", 2181)], ""),
        ("a:1", [("a", 1)], ""),
        ("a:", [("a", 2181)], ""),
        ("a:65535", [("a", 65535)], ""),
        ("127.0.0.1:2182", [("127.0.0.1", 2182)], ""),
        ("a:1,b:2,c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        (" a:1 , b:2 ", [("a", 1), ("b", 2)], ""),
        (",a:1,,b:2,", [("a", 1), ("b", 2)], ""),
        ("a:1/", [("a", 1)], ""),
        ("a:1/app", [("a", 1)], "/app"),
        ("a:1,b:2/app/x", [("a", 1), ("b", 2)], "/app/x"),
        ("a:1/app ", [("a", 1)], "/app"),
        ("a:1/käse", [("a", 1)], "/käse"),
        ("[::1]", [("::1", 2181)], ""),
        ("[::1]:2182", [("::1", 2182)], ""),
        ("[2001:db8::1]:1,b/app", [("2001:db8::1", 1), ("b", 2181)], "/app"),
        ("zk-1.example.org:2181", [("zk-1.example.org", 2181)], ""),
    ],
)
def test_connect_string_is_parsed(text: str, addresses: list[tuple[str, int]], chroot: str) -> None:
    assert Hosts.parse(text) == Hosts(tuple(Address(*one) for one in addresses), chroot)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "hosts must be a string like"),
        ("  ", "hosts must be a string like"),
        (",,", "hosts must be a string like"),
        ("/app", "hosts must be a string like"),
        (":2181", "server must be host:port"),
        ("a:x", "server must be host:port"),
        ("a:-1", "server must be host:port"),
        ("a:1:2", "server must be host:port"),
        ("::1", "server must be host:port"),
        ("[::1", "server must be host:port"),
        ("[]:1", "server must be host:port"),
        ("[::1]x", "server must be host:port"),
        ("a b:1", "server must be host:port"),
        ("a:0", "a port from 1 to 65535, not 'a:0'"),
        ("a:65536", "a port from 1 to 65535, not 'a:65536'"),
        ("b:1, a:x", "not 'a:x' in 'b:1, a:x'"),
        ("a:1/x/", "invalid chroot '/x/'"),
        ("a:1//x", "invalid chroot '//x'"),
        ("a:1/../x", "invalid chroot '/../x'"),
        ("a:1/x\0", "invalid chroot"),
    ],
)
def test_invalid_connect_string_raises_with_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Hosts.parse(text)

    assert why in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("hosts", [None, 5, b"a:1", ["a:1"], ("a", 1)])
def test_non_string_hosts_are_refused(hosts: Any) -> None:
    with pytest.raises(TypeError, match="hosts must be a string"):
        Hosts.parse(hosts)


def test_addresses_keep_their_written_form() -> None:
    assert [str(one) for one in Hosts.parse("a,[::1]:5").addresses] == ["a:2181", "[::1]:5"]


FIVE_SERVERS = tuple(ServerAddress(address, "") for address in Hosts.parse("a,b,c,d,e").addresses)


def test_connection_round_tries_each_server_once() -> None:
    assert sorted(order_servers([*FIVE_SERVERS, FIVE_SERVERS[0]], Random(1), None)) == list(FIVE_SERVERS)


def test_clients_start_with_different_servers() -> None:
    assert {order_servers(FIVE_SERVERS, Random(seed), None)[0] for seed in range(50)} == set(FIVE_SERVERS)


def test_connection_round_does_not_start_with_previous_server() -> None:
    assert FIVE_SERVERS[2] not in {order_servers(FIVE_SERVERS, Random(seed), FIVE_SERVERS[2])[0] for seed in range(50)}


@pytest.mark.parametrize(
    ("host", "is_name"),
    [("zk.example", True), ("localhost", True), ("127.0.0.1", False), ("[::1]", False), ("[fe80::1%eth0]", False)],
)
def test_only_host_names_need_lookup(host: str, is_name: bool) -> None:
    assert Hosts.parse(host).addresses[0].is_name is is_name


def test_text_of_server_contains_resolved_address() -> None:
    (address,) = Hosts.parse("zk.example:7").addresses

    assert str(ServerAddress(address, "10.0.0.1")) == "zk.example:7 (10.0.0.1)"
    assert [str(endpoint) for endpoint in FIVE_SERVERS[:1]] == ["a:2181"]


@pytest.mark.parametrize(
    "hosts",
    [
        "user:s3cret@host:2181",
        "host:2181,user:s3cret@host",
        "zk://user:s3cret@host/app",
        "user:s3cret@host/a/../b",
        "user:s3/cret@host/a",
        "s3cret@host",
        "user:s3cret%40host:2181",
        "user:s3cret\uff20host",
        b"user:s3cret@host",
        ["user:s3cret@host"],
    ],
)
def test_error_of_hosts_does_not_repeat_password(hosts: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="hosts must be a string") as caught:
        Hosts.parse(hosts)

    assert "cret" not in f"{caught.value} {caught.value.__context__}"


def test_chroot_may_contain_at_sign() -> None:
    assert Hosts.parse("host:2181/users/a@b").chroot == "/users/a@b"


@pytest.mark.parametrize("zone", ["40", "401", "eth0"])
def test_ipv6_zone_is_not_mistaken_for_credentials(zone: str) -> None:
    (address,) = Hosts.parse(f"[fe80::1%{zone}]:2181").addresses
    assert address.host == f"fe80::1%{zone}"

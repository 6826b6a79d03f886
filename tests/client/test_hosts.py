"""Connect strings, and the order in which their hosts are tried."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from zoolet.client.wire.hosts import Address, Hosts


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
def test_a_connect_string_is_read(text: str, addresses: list[tuple[str, int]], chroot: str) -> None:
    assert Hosts.parse(text) == Hosts(tuple(Address(*one) for one in addresses), chroot)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "name no server"),
        ("  ", "name no server"),
        (",,", "name no server"),
        ("/app", "name no server"),
        (":2181", "is not an address"),
        ("a:x", "is not an address"),
        ("a:-1", "is not an address"),
        ("a:1:2", "is not an address"),
        ("::1", "is not an address"),
        ("[::1", "is not an address"),
        ("[]:1", "is not an address"),
        ("[::1]x", "is not an address"),
        ("a b:1", "is not an address"),
        ("a:0", "0 is not a port"),
        ("a:65536", "65536 is not a port"),
        ("a:1/x/", "bad chroot '/x/'"),
        ("a:1//x", "bad chroot '//x'"),
        ("a:1/../x", "bad chroot '/../x'"),
        ("a:1/x\0", "bad chroot"),
    ],
)
def test_a_connect_string_that_is_invalid_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Hosts.parse(text)

    assert why in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("hosts", [None, 5, b"a:1", ["a:1"], ("a", 1)])
def test_hosts_that_are_no_string_are_refused(hosts: Any) -> None:
    with pytest.raises(TypeError, match="hosts must be a string"):
        Hosts.parse(hosts)


def test_addresses_are_shown_as_they_are_written() -> None:
    assert [str(one) for one in Hosts.parse("a,[::1]:5").addresses] == ["a:2181", "[::1]:5"]


def test_the_order_of_hosts_is_drawn_once_and_kept() -> None:
    hosts = Hosts.parse("a,b,c,d,e")
    turn = hosts.in_turn(Random(1))

    first, second = ([next(turn) for _ in range(5)] for _ in range(2))

    assert first == second
    assert sorted(first) == list(hosts.addresses)


def test_different_clients_begin_with_different_hosts() -> None:
    hosts = Hosts.parse("a,b,c,d,e")

    assert {next(hosts.in_turn(Random(seed))).host for seed in range(50)} == set("abcde")

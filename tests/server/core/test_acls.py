"""Access control lists: the stored list, its permissions, and a cost of both that is linear in its length.

The fast implementation is compared with ZooKeeper's algorithm: every entry with every other entry, every entry with
every identity.
"""

from __future__ import annotations

import time
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.calls import connect_peer, create_op, engine_with_settings
from support.engine import make_engine
from support.log import Log
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, ANYONE, AclList, Id, digest_id
from zoolet.protocol.errors import ErrorCode, InvalidACLError, MarshallingError, NoAuthError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.acls import Acls, _remove_duplicates
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.settings import EngineSettings
from zoolet.server.core.warnings import Warnings

moderate = settings(max_examples=60, deadline=None)
EVERYTHING, READ, ADMIN = 31, 1, 16
MINE = Id("digest", digest_id(b"u:p"))


def stored(peer: Peer, path: str) -> AclList:
    """Return the list of a node, as the server stores it."""
    engine = peer.engine
    return engine.acls.list(engine.tree.find(path).acl)


def deduplicate_like_zookeeper(acl: AclList) -> list[ACL] | None:
    """Return the entries of a list that ZooKeeper keeps, or None if ZooKeeper fails on a null.

    Source: PrepRequestProcessor.removeDuplicates; the equals of ACL and Id.
    """
    kept: list[ACL] = []
    for entry in acl:
        for other in kept:
            if entry.perms != other.perms:
                continue
            if entry.id.scheme is None or (entry.id.scheme == other.id.scheme and entry.id.id is None):
                return None
            if entry.id == other.id:
                break
        else:
            kept.append(entry)
    return kept


def deduplicate_or_none(acl: AclList) -> list[ACL] | None:
    """Return the entries of a list that the server keeps, or None if the server fails on a null."""
    try:
        return _remove_duplicates(acl, "/a")
    except MarshallingError:
        return None


def entry_matches(entry: Id, identity: Id) -> bool:
    """Return whether an entry matches an identity of its scheme.

    Source: the ``matches`` of DigestAuthenticationProvider, IPAuthenticationProvider and SASLAuthenticationProvider.
    """
    if identity.scheme != entry.scheme:
        return False
    if identity.scheme == "ip":
        network = ip_network(entry.id or "", strict=False)
        return ip_address(identity.id or "") in network
    return identity.id == entry.id or (identity.scheme == "sasl" and identity.id == "super")


def is_allowed_by_zookeeper(acl: AclList, client: ClientConnection, wanted: int) -> bool:
    """Return ZooKeeper's decision: entry by entry, identity by identity.

    Source: ZooKeeperServer.checkACL.
    """
    if not acl or any(identity.scheme == "super" for identity in client.ids):
        return True
    return any(
        entry.perms & wanted
        and (entry.id == ANYONE or any(entry_matches(entry.id, identity) for identity in client.ids))
        for entry in acl
    )


def caller_with(identities: list[Id], host: str) -> ClientConnection:
    """Return a connection from an address with these identities."""
    client = ClientConnection(host)
    for identity in identities:
        client.add_id(identity.scheme or "", identity.id or "")
    return client


perms = st.sampled_from([1, 2, 4, 8, 16, 31, 0, 3, -1])
asked = st.sampled_from([1, 2, 4, 8, 16, 17, 31])
few_perms = st.sampled_from([1, 31])
odd_ids = st.builds(
    Id, st.sampled_from([None, "digest", "ip", "world", "auth", ""]), st.sampled_from([None, "", "a:b", "anyone"])
)
odd_lists = st.lists(st.builds(ACL, few_perms, odd_ids), max_size=12).map(tuple)
addresses4 = st.sampled_from(["127.0.0.1", "127.0.0.2", "10.1.2.3", "10.1.3.3", "192.168.0.1", "0.0.0.0"])
addresses6 = st.sampled_from(["::1", "fe80::1", "fe80::2", "2001:db8::ff", "::"])
networks = st.one_of(
    addresses4,
    addresses6,
    st.builds("{}/{}".format, addresses4, st.sampled_from([0, 1, 8, 16, 24, 30, 31, 32])),
    st.builds("{}/{}".format, addresses6, st.sampled_from([0, 1, 16, 64, 127, 128])),
)
users = st.sampled_from(["alice", "bob", "super"])
proved = st.one_of(
    st.builds(Id, st.just("digest"), st.sampled_from(["u:1", "v:2"])),
    st.builds(Id, st.just("sasl"), users),
    st.builds(Id, st.just("x509"), st.sampled_from(["CN=a", "CN=b"])),
)
named = st.one_of(
    st.just(ANYONE),
    st.builds(Id, st.just("ip"), networks),
    st.builds(Id, st.just("auth"), st.just("")),
    proved,
    proved,
)
lists = st.lists(st.builds(ACL, perms, named), max_size=8).map(tuple)
hosts = st.one_of(addresses4, addresses6)
identities = st.lists(st.one_of(proved, proved, st.just(Id("super", ""))), max_size=4)


# --- duplicates ---


@moderate
@given(odd_lists)
@example((ACL(1, Id(None, "a")), ACL(1, Id(None, "a"))))
@example((ACL(1, Id("digest", None)), ACL(31, Id("digest", None))))
@example((ACL(1, Id("digest", "a:b")), ACL(1, Id("digest", None))))
def test_acl_deduplication_equals_that_of_zookeeper(acl: AclList) -> None:
    kept = deduplicate_or_none(acl)

    assert kept == deduplicate_like_zookeeper(acl)


def test_long_acl_list_is_deduplicated_in_linear_time() -> None:
    entries = tuple(ACL(EVERYTHING, Id("digest", f"u{number}:x")) for number in range(40_000))

    started = time.process_time()
    kept = _remove_duplicates(entries, "/a")
    took = time.process_time() - started

    assert len(kept) == 40_000
    assert took < 2  # 0.03 s; pairwise comparisons would take minutes


# --- permissions of a list ---


@moderate
@given(lists, hosts, identities, asked)
@example((), "127.0.0.1", [], 1)
@example((ACL(1, Id("sasl", "bob")), ACL(2, Id("sasl", "eve"))), "127.0.0.1", [Id("sasl", "super")], 2)
@example((ACL(1, Id("ip", "10.1.2.3/16")),), "10.1.3.3", [], 1)
@example((ACL(1, Id("ip", "0.0.0.0/0")),), "::1", [], 1)
@example((ACL(1, Id("ip", "::/0")),), "127.0.0.1", [], 1)
@example((ACL(1, Id("auth", "")),), "127.0.0.1", [Id("digest", "u:1")], 1)
def test_acl_list_allows_union_of_entries_of_identities(acl: AclList, host: str, proved: list[Id], wanted: int) -> None:
    acls = Acls(EngineSettings(), Metrics(), Warnings())
    client = caller_with(proved, host)

    key = acls.intern(acl)

    assert acls.allows(key, client, wanted) == is_allowed_by_zookeeper(acl, client, wanted)


@moderate
@given(lists.filter(bool), hosts, identities)
def test_acl_without_permissions_allows_only_super(acl: AclList, host: str, proved: list[Id]) -> None:
    acls = Acls(EngineSettings(), Metrics(), Warnings())
    client = caller_with(proved, host)

    key = acls.intern(tuple(ACL(0, entry.id) for entry in acl))

    assert acls.allows(key, client, EVERYTHING) == client.is_super


def test_acl_check_time_is_independent_of_list_length() -> None:
    acls = Acls(EngineSettings(), Metrics(), Warnings())
    key = acls.intern(tuple(ACL(READ, Id("digest", f"u{number}:x")) for number in range(50_000)))
    client = caller_with([Id("digest", f"v{number}:x") for number in range(100)], "127.0.0.1")

    started = time.process_time()
    answers = {acls.allows(key, client, READ) for _ in range(100)}
    took = time.process_time() - started

    assert answers == {False}
    assert took < 1  # 3 ms; entry by entry it would take minutes


def test_networks_are_found_in_long_lists() -> None:
    acls = Acls(EngineSettings(), Metrics(), Warnings())
    key = acls.intern(tuple(ACL(READ, Id("ip", f"10.{a}.{b}.0/24")) for a in range(100) for b in range(100)))

    inside, outside = ClientConnection("10.99.99.7"), ClientConnection("10.100.0.7")

    assert (acls.allows(key, inside, READ), acls.allows(key, outside, READ)) == (True, False)


def test_invalid_network_does_not_affect_other_entries() -> None:
    acls = Acls(EngineSettings(), Metrics(), Warnings())

    key = acls.intern((ACL(READ, Id("ip", "nonsense")), ACL(READ, Id("ip", None)), ACL(READ, Id("ip", "127.0.0.0/8"))))

    assert acls.allows(key, ClientConnection("127.0.0.9"), READ)


def test_unused_acl_list_and_its_decisions_are_discarded() -> None:
    engine = make_engine()
    peer = connect_peer(engine)
    peer.create("/a", acl=(ACL(READ, ANYONE), ACL(ADMIN, Id("ip", "127.0.0.1"))))

    peer.delete("/a")

    assert len(engine.acls._lists) == len(make_engine().acls._lists)


# --- auth, and the maximum length of a list ---


def test_auth_scheme_stands_for_every_proved_identity() -> None:
    peer = connect_peer(make_engine())
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"v:p")

    peer.create("/a", acl=(ACL(EVERYTHING, Id("auth", "")),))

    assert stored(peer, "/a") == (ACL(EVERYTHING, MINE), ACL(EVERYTHING, Id("digest", digest_id(b"v:p"))))


def test_auth_scheme_does_not_stand_for_address() -> None:
    peer = connect_peer(make_engine())
    peer.auth("ip", b"")

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=(ACL(EVERYTHING, Id("auth", "")),))


def test_acl_list_at_entry_limit_is_stored() -> None:
    peer = connect_peer(make_engine(EngineSettings(max_acl_entries=3)))
    acl = tuple(ACL(READ, Id("digest", f"u{number}:x")) for number in range(3))

    peer.create("/a", acl=acl)

    assert stored(peer, "/a") == acl


def test_acl_list_above_entry_limit_is_invalid() -> None:
    peer = connect_peer(make_engine(EngineSettings(max_acl_entries=3)))
    acl = tuple(ACL(READ, Id("digest", f"u{number}:x")) for number in range(4))

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=acl)


def test_duplicate_acl_entries_count_once_toward_limit() -> None:
    peer = connect_peer(make_engine(EngineSettings(max_acl_entries=1)))

    peer.create("/a", acl=(ACL(READ, ANYONE),) * 50)

    assert stored(peer, "/a") == (ACL(READ, ANYONE),)


def test_auth_scheme_expands_entry_by_entry() -> None:
    peer = connect_peer(make_engine(EngineSettings(max_acl_entries=3)))
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"v:p")

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=(ACL(READ, Id("auth", "")), ACL(ADMIN, Id("auth", ""))))


def test_oversized_set_acl_keeps_previous_acl_list() -> None:
    peer = connect_peer(make_engine(EngineSettings(max_acl_entries=1)))
    peer.create("/a")

    with pytest.raises(InvalidACLError):
        peer.call(OpCode.SET_ACL, r.SetACLRequest("/a", (ACL(READ, ANYONE), ACL(ADMIN, ANYONE)), -1))

    assert stored(peer, "/a") == (ACL(EVERYTHING, ANYONE),)


def test_expansion_of_acl_list_stops_at_entry_limit() -> None:
    engine = make_engine(EngineSettings(max_acl_entries=1000))
    peer = connect_peer(engine)
    for number in range(100):
        peer.auth("digest", f"u{number}:p".encode())
    acl = tuple(ACL(number, Id("auth", "")) for number in range(20_000))

    started = time.process_time()
    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=acl)
    took = time.process_time() - started

    assert took < 1  # otherwise two million entries would be created
    assert len(engine.acls._lists) == len(make_engine().acls._lists)


def test_acls_of_any_permissions_have_distinct_hashes(peer: Peer) -> None:
    for number in range(256):
        acl = [ACL(-1 - (number >> bit & 1), Id("ip", f"10.0.0.{bit}")) for bit in range(8)]
        peer.create(f"/{number}", acl=tuple(acl))

    assert {len(keys) for keys in peer.engine.acls._keys.values()} == {1}  # although hash(-1) == hash(-2) in Python


def test_acl_list_above_entry_limit_is_counted_and_logged() -> None:
    log = Log()
    engine = engine_with_settings(log, max_acl_entries=1)
    peer = connect_peer(engine)

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=(ACL(READ, ANYONE), ACL(ADMIN, ANYONE)))

    assert engine.metrics.refused["acl_entries"] == 1
    assert log == ["refusing an ACL list from 127.0.0.1:40000 with more than 1 entries (zoolet.maxAclEntries)"]


def test_stranger_cannot_read_node_with_auth_acl() -> None:
    engine = make_engine()
    owner, stranger = connect_peer(engine), connect_peer(engine)
    owner.auth("digest", b"u:p")
    owner.create("/a", b"secret", acl=(ACL(EVERYTHING, Id("auth", "")),))

    with pytest.raises(NoAuthError):
        stranger.get("/a")

    assert owner.get("/a")[0] == b"secret"


@pytest.mark.parametrize(
    ("settings", "name", "identities", "entries"),
    [(EngineSettings(), "u", 101, 9), (EngineSettings(max_frame=10_000), "u" * 400, 10, 2)],
    ids=["a thousand entries", "as many bytes as a request may have"],
)
def test_expansion_of_auth_is_limited(settings: EngineSettings, name: str, identities: int, entries: int) -> None:
    peer = connect_peer(make_engine(settings))
    for number in range(identities):
        peer.auth("digest", f"{number}{name}:p".encode())
    acl = tuple(ACL(number, Id("auth", "")) for number in range(entries + 1))

    peer.create("/a", acl=acl[:entries])
    with pytest.raises(InvalidACLError):
        peer.create("/b", acl=acl)


def test_multi_above_total_acl_limit_is_rolled_back() -> None:
    peer = connect_peer(make_engine())
    for number in range(100):
        peer.auth("digest", f"u{number}:p".encode())
    acl = tuple(ACL(number, Id("auth", "")) for number in range(10))  # 1,000 entries after expansion

    results = peer.multi(*[create_op(f"/n{number}", acl=acl) for number in range(101)])

    assert results[100][1] == r.ErrorResponse(ErrorCode.INVALID_ACL)
    assert peer.children("/") == ["zookeeper"]
    peer.create("/a", acl=acl)  # accepted, because the rollback also resets the total

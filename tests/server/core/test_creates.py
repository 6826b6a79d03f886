"""create and its variants: sequence numbers, containers, TTL nodes, and the Stat of a new node.

Source: PrepRequestProcessor.pRequest2TxnCreate.
"""

from __future__ import annotations

import pytest
from support.calls import NOW, connect_peer, create, create_op, create_ttl, delete_op, multi, read_session_id, tick_at
from support.engine import make_engine
from support.frames import string, unhex
from support.numbers import BAD_ARGUMENTS, CONTAINER, EPHEMERAL, OK, SEQUENTIAL, UNIMPLEMENTED
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8, V3_9, Compat
from zoolet.server.core.settings import EngineSettings

# --- a new node ---


def test_create_reply_equals_bytes_of_zookeeper(peer):
    raw = peer.feed(
        unhex("00000033 00000001 00000001 00000002 2f68 00000002 6869 00000001 0000001f 00000005")
        + b"world"
        + unhex("00000006")
        + b"anyone"
        + unhex("00000000")
    )

    assert raw == unhex("00000016 00000001 0000000000000002 00000000 00000002 2f68")


def test_zxids_and_times_of_new_node_are_those_of_creation(engine, peer):
    tick_at(engine, 100)

    reply = create(peer, "/n", op=OpCode.CREATE2, data=b"abc")

    z, now = reply.zxid, NOW + 100
    assert reply.body == string("/n") + r.Stat(z, z, now, now, 0, 0, 0, 0, 3, 0, z).encode()


def test_ephemeral_has_its_session_as_owner(peer, other):
    peer.create("/e", flags=EPHEMERAL)

    assert other.exists("/e").ephemeralOwner == read_session_id(peer)


# --- sequence numbers ---


def test_sequence_number_counts_children_ever_created(peer):
    peer.create("/p")

    first = peer.create("/p/a-", flags=SEQUENTIAL)
    second = peer.create("/p/", flags=SEQUENTIAL)
    peer.create("/p/plain")
    fourth = peer.create("/p/a-", flags=SEQUENTIAL)

    assert (first, second, fourth) == ("/p/a-0000000000", "/p/0000000001", "/p/a-0000000003")


def test_deletions_do_not_advance_sequence_number(peer):
    peer.create("/p")
    peer.create("/p/plain")
    peer.delete("/p/plain")

    assert peer.create("/p/a-", flags=SEQUENTIAL) == "/p/a-0000000001"


def test_failed_creates_and_multis_do_not_advance_sequence(peer):
    peer.create("/p")
    peer.create("/p/plain")
    create(peer, "/p/plain")
    create(peer, "/p/a-", SEQUENTIAL, acl=())
    multi(peer, create_op("/p/a-", SEQUENTIAL), delete_op("/none"))

    assert peer.create("/p/a-", flags=SEQUENTIAL) == "/p/a-0000000001"


def test_children_of_every_kind_advance_sequence(peer):
    peer.create("/p")
    peer.create("/p/e", flags=EPHEMERAL)
    create(peer, "/p/c", CONTAINER, op=OpCode.CREATE_CONTAINER)
    create_ttl(peer, "/p/t", 1000)

    assert peer.create("/p/e-", flags=EPHEMERAL | SEQUENTIAL) == "/p/e-0000000003"


def test_sequence_number_of_root_starts_at_zero(peer):
    assert peer.create("/", flags=SEQUENTIAL) == "/0000000000"


# --- containers ---


def test_container_has_owner_zero_and_reply_with_stat(peer):
    reply = create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER)

    z = reply.zxid
    assert reply.body == string("/c") + r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z).encode()
    assert peer.exists("/c").ephemeralOwner == 0


def test_create_with_container_flag_makes_plain_node(engine, peer):
    reply = create(peer, "/c", CONTAINER)

    node = engine.tree.get("/c")
    assert reply.body == string("/c")
    assert node is not None
    assert not node.is_container()


@pytest.mark.parametrize("flags", [0, 1, 2, 4])
def test_create_container_ignores_its_flags(engine, peer, flags):
    reply = create(peer, "/c", flags, op=OpCode.CREATE_CONTAINER)

    node = engine.tree.get(r.Create2Response.decode(reply.body).path)
    assert node is not None
    assert node.is_container()
    assert r.Create2Response.decode(reply.body).stat.ephemeralOwner == 0


def test_container_with_ephemeral_flag_is_persistent(peer, other):
    create(peer, "/c", EPHEMERAL, op=OpCode.CREATE_CONTAINER)

    peer.close()

    assert other.children("/") == ["c", "zookeeper"]


# --- TTL nodes ---


def test_ttl_node_has_owner_zero_and_reply_with_stat(peer):
    reply = create_ttl(peer, "/t", 5_000)

    z = reply.zxid
    assert reply.body == string("/t") + r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z).encode()
    assert peer.exists("/t").ephemeralOwner == 0


@pytest.mark.parametrize(("ttl", "err"), [(0, -8), (-1, -8), (1, 0), (2**40 - 1, 0), (2**40, -8)])
def test_ttl_is_limited_to_forty_bits(peer, ttl, err):
    assert create_ttl(peer, "/t", ttl).err == err


def test_sequential_ttl_node_and_container_get_sequence_number(peer):
    ttl = create_ttl(peer, "/t-", 1000, flags=6)
    container = create(peer, "/c-", SEQUENTIAL, op=OpCode.CREATE_CONTAINER)

    assert ttl.body[: 4 + 13] == string("/t-0000000000")
    assert container.body[: 4 + 13] == string("/c-0000000001")


@pytest.mark.parametrize("op", [OpCode.CREATE, OpCode.CREATE2])
@pytest.mark.parametrize(("extended", "err"), [(True, BAD_ARGUMENTS), (False, UNIMPLEMENTED)])
def test_plain_create_with_ttl_flags_is_refused(op, extended, err):
    peer = connect_peer(make_engine(EngineSettings(extended_types=extended)))

    assert create(peer, "/t", flags=5, op=op).err == err
    assert create(peer, "/t", flags=6, op=op).err == err


def test_ttl_create_without_ttl_nodes_is_unimplemented():
    peer = connect_peer(make_engine(EngineSettings(extended_types=False)))

    assert create_ttl(peer, "/t", 1000).err == UNIMPLEMENTED
    assert create_ttl(peer, "/t", -5).err == UNIMPLEMENTED
    assert create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER).err == OK


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("ttl", [-1, -(2**63)])
def test_ttl_create_with_wrong_flags_or_ttl_is_refused(peer, flags, ttl):
    reply = create_ttl(peer, "/t", ttl, flags)

    assert (reply.err, reply.body) == (BAD_ARGUMENTS, b"")
    assert peer.create("/t") == "/t"


@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4])
def test_valid_ttl_with_non_ttl_flags_is_refused(peer, flags):
    assert create_ttl(peer, "/t", 1000, flags).err == BAD_ARGUMENTS


@pytest.mark.parametrize("compat", [V3_8, V3_9])
def test_ttl_create_with_plain_flags_fails_if_ttl_is_disabled(compat: Compat) -> None:
    peer = Peer(make_engine(EngineSettings(compat=compat, extended_types=False)))
    peer.connect()

    (reply,) = peer.send(OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 0, 5).encode())

    assert reply.err == -8

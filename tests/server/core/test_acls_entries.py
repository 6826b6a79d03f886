"""The entries of an ACL: validity, the meaning of scheme auth, and entries that getACL hides.

Source: PrepRequestProcessor.fixupACL, FinalRequestProcessor, case getACL.
"""

from __future__ import annotations

import pytest
from support.calls import connect_peer, create, last_zxid, read_acl, single_entry_acl
from support.engine import make_engine
from support.numbers import INVALID_ACL, MARSHALLING_ERROR, OK
from support.peer import Peer
from support.private_nodes import OWNER, PRIVATE

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, Id, digest_id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import InvalidACLError, MarshallingError, NoAuthError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

# --- validity ---


def test_auth_entry_without_identity_is_invalid_acl(peer):
    assert create(peer, "/a", acl=single_entry_acl(Perm.ALL, "auth", "anything")).err == INVALID_ACL


@pytest.mark.parametrize("name", ["anything", "", None])
def test_scheme_auth_stands_for_all_identities(peer, name):
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"u2:p")

    peer.create("/a", acl=single_entry_acl(Perm.ALL, "auth", name))

    assert {(entry.perms, entry.id.scheme, entry.id.id) for entry in read_acl(peer, "/a")} == {
        (31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
        (31, "digest", digest_id(b"u2:p")),
    }
    assert len(read_acl(peer, "/a")) == 2


def test_null_world_id_is_marshalling_error_with_zxid(peer):
    before = last_zxid(peer)

    reply = create(peer, "/a", acl=single_entry_acl(Perm.ALL, "world", None))

    assert (reply.err, reply.zxid) == (MARSHALLING_ERROR, before + 1)
    assert last_zxid(peer) == before + 1


@pytest.mark.parametrize(
    ("scheme", "name", "err"),
    [
        ("world", "x", INVALID_ACL),
        ("world", "", INVALID_ACL),
        (None, "anyone", INVALID_ACL),
        ("none", "anyone", INVALID_ACL),
        ("super", "", INVALID_ACL),
        ("digest", None, MARSHALLING_ERROR),
        ("digest", "a:b", OK),
        ("digest", ":b", OK),
        ("digest", "a:b:", OK),
        ("digest", "a b:c", OK),
        ("digest", "x", INVALID_ACL),
        ("digest", "a:", INVALID_ACL),
        ("digest", "a::", INVALID_ACL),
        ("digest", "a:b:c", INVALID_ACL),
        ("digest", "::b", INVALID_ACL),
        ("digest", ":", INVALID_ACL),
        ("digest", "", INVALID_ACL),
        ("ip", "127.0.0.1", OK),
        ("ip", "+127.0.0.1", OK),
        ("ip", "127.0.0.01", OK),
        ("ip", "10.0.0.0/8", OK),
        ("ip", "10.0.0.0/0", OK),
        ("ip", "10.0.0.0/32", OK),
        ("ip", f"10.0.0.0/{'0' * 5000}24", OK),
        ("ip", f"10.0.0.0/{'9' * 5000}", INVALID_ACL),
        ("ip", "10.0.0.0/33", INVALID_ACL),
        ("ip", "10.0.0.0/-1", INVALID_ACL),
        ("ip", "10.0.0.0/x", INVALID_ACL),
        ("ip", "127.0.0.1/", INVALID_ACL),
        ("ip", "1.2.3", INVALID_ACL),
        ("ip", "1.2.3.", INVALID_ACL),
        ("ip", "1.2.3.256", INVALID_ACL),
        ("ip", None, MARSHALLING_ERROR),
    ],
)
def test_acl_id_must_match_its_scheme(peer, scheme, name, err):
    assert create(peer, "/a", acl=single_entry_acl(Perm.ALL, scheme, name)).err == err


def test_exact_duplicates_are_removed_from_acl_in_order(peer):
    ip = single_entry_acl(Perm.READ, "ip", "10.0.0.1")

    peer.create("/a", acl=OPEN_ACL_UNSAFE + ip + OPEN_ACL_UNSAFE + single_entry_acl(Perm.WRITE, "ip", "10.0.0.1") + ip)

    assert read_acl(peer, "/a") == OPEN_ACL_UNSAFE + ip + single_entry_acl(Perm.WRITE, "ip", "10.0.0.1")


def test_invalid_permission_bits_are_stored_unchanged(peer):
    peer.create("/a", acl=single_entry_acl(-1))

    assert read_acl(peer, "/a") == single_entry_acl(-1)


def test_acl_is_validated_even_if_acls_are_skipped():
    peer = connect_peer(make_engine(EngineSettings(skip_acl=True)))
    peer.create("/a", b"secret", acl=single_entry_acl(0))

    assert peer.get("/a")[0] == b"secret"
    assert create(peer, "/b", acl=()).err == INVALID_ACL


@pytest.mark.parametrize(
    "identity",
    [
        Id("super", ""),
        Id("super", "anyone"),
        Id("world", "everyone"),
        Id("world", "Anyone"),
        Id("World", "anyone"),
        Id("x509", "CN=me"),
        Id("sasl", "bob"),
        Id("ensemble", ""),
        Id("", ""),
        Id("ip", "0.0.0.0/33"),
        Id("ip", ""),
    ],
    ids=str,
)
def test_acl_of_unprovable_identity_is_refused(engine: Engine, identity: Id) -> None:
    peer = connect_peer(engine)

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=(ACL(Perm.ALL, identity),))


def test_null_scheme_compared_with_entry_is_marshalling_error(new: Peer) -> None:
    same_perms = (ACL(16, Id("ip", "127.0.0.1/")), ACL(16, Id(None, "x")))

    with pytest.raises(MarshallingError):
        new.create("/a", acl=same_perms)


def test_null_scheme_not_compared_with_entry_is_invalid_acl(new: Peer) -> None:
    other_perms = (ACL(1, Id("ip", "127.0.0.1")), ACL(16, Id(None, "x")))

    with pytest.raises(InvalidACLError):
        new.create("/a", acl=other_perms)


# --- entries that getACL hides ---


def test_acl_read_without_right_to_change_hides_digest(peer, other):
    peer.create("/a", acl=single_entry_acl(Perm.READ) + single_entry_acl(Perm.ALL, "digest", "u:secret"))

    assert read_acl(other, "/a") == single_entry_acl(Perm.READ) + single_entry_acl(Perm.ALL, "digest", "u:x")


def test_acl_read_with_right_to_change_shows_digest(peer, other):
    peer.create("/a", acl=single_entry_acl(Perm.READ) + single_entry_acl(Perm.ALL, "digest", digest_id(b"u:p")))
    other.auth("digest", b"u:p")

    assert read_acl(other, "/a") == single_entry_acl(Perm.READ) + single_entry_acl(
        Perm.ALL, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="
    )


@pytest.mark.parametrize("perm", [Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE])
def test_digest_of_other_user_is_shown_to_admin_only(engine: Engine, perm: Perm) -> None:
    owner = connect_peer(engine)
    owner.create("/a", acl=(*PRIVATE, ACL(perm, ANYONE)))

    (reply,) = connect_peer(engine).send(OpCode.GET_ACL, r.GetACLRequest("/a").encode())

    assert digest_id(OWNER).split(":")[1].encode() not in reply.body


def test_masked_digest_does_not_log_in_as_owner(engine: Engine) -> None:
    connect_peer(engine).create("/a", acl=PRIVATE)
    thief = connect_peer(engine)
    thief.auth("digest", b"owner:x")
    thief.auth("digest", digest_id(OWNER).encode())

    with pytest.raises(NoAuthError):
        thief.get("/a")


def test_answer_with_expanded_auth_acl_is_bounded(engine: Engine) -> None:
    # each entry of scheme "auth" stands for all identities, so the list is much longer than the sent list
    owner = connect_peer(engine)
    owner.auth("digest", b"1" + b"A" * 4_000)
    owner.auth("digest", b"2" + b"A" * 4_000)
    entries = [ACL(Perm.ALL | number << 5, Id("auth", "")) for number in range(200)]
    owner.send(OpCode.CREATE, r.CreateRequest("/a", b"", (*entries, ACL(Perm.READ, ANYONE)), 0).encode())

    (reply,) = connect_peer(engine).send(OpCode.GET_ACL, r.GetACLRequest("/a").encode())

    assert len(reply.body) < engine.settings.max_multi_read

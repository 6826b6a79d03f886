"""Identities, permissions and ACL lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.frames import unhex
from support.golden import OPEN_BYTES

from zoolet.protocol import records as r
from zoolet.protocol.acl import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Id,
    acl_entries,
    digest_id,
    is_masked,
    mask_digest,
)
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import ZooKeeperError


@pytest.mark.parametrize(
    ("credentials", "name"),
    [
        (b"u:p", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="),
        (b"super:admin", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="),
        (b"", ":2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
    ],
)
def test_digest_id_is_user_and_hash_of_credentials(credentials: bytes, name: str) -> None:
    assert digest_id(credentials) == name


def test_credentials_without_colon_are_user_name_of_digest_id() -> None:
    user, _, digest = digest_id(b"justuser").partition(":")

    assert (user, len(digest), digest[-1:]) == ("justuser", 28, "=")


def test_user_name_of_credentials_ends_at_first_colon() -> None:
    assert digest_id(b"a:b:c").startswith("a:")
    assert digest_id(b"a:b:c") != digest_id(b"a:b")


def test_common_acl_list_decodes_to_shared_object() -> None:
    request = r.CreateRequest.decode(unhex("00000002 2f68 00000002 6869" + OPEN_BYTES + "00000000"))

    assert request.acl is OPEN_ACL_UNSAFE


@pytest.mark.parametrize(
    "acl",
    [
        READ_ACL_UNSAFE,
        CREATOR_ALL_ACL,
        OPEN_ACL_UNSAFE + READ_ACL_UNSAFE,
        (ACL(31, Id("world", "anyon")),),
        (ACL(31, Id("world", "anyone2")),),
        (ACL(30, Id("world", "anyone")),),
        (ACL(-1, Id(None, None)),),
        (),
        None,
    ],
)
def test_acl_list_similar_to_common_list_is_read_exactly(acl: tuple[ACL, ...] | None) -> None:
    request = r.SetACLRequest("/h", acl, 3)

    assert r.SetACLRequest.decode(request.encode()) == request


def test_common_acl_list_is_not_read_beyond_end_of_record() -> None:
    raw = r.SetACLRequest("/h", OPEN_ACL_UNSAFE, 3).encode()

    with pytest.raises(ZooKeeperError):
        r.SetACLRequest.decode(raw, 0, len(raw) - 5)


def test_permission_bits_match_zookeeper() -> None:
    assert (Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN, Perm.ALL) == (1, 2, 4, 8, 16, 31)


def test_acl_entries_of_other_libraries_are_converted() -> None:
    own = ACL(31, Id("auth", None))  # a null id is allowed, for example in scheme auth
    entry = SimpleNamespace(perms=1, id=SimpleNamespace(scheme="ip", id="::1"))

    assert list(acl_entries([own, [entry, (own,)]])) == [own, ACL(1, Id("ip", "::1")), own]


@pytest.mark.parametrize("acl", [None, 5, "world", [5], [SimpleNamespace(perms=1, id=None)], Id("world", "anyone")])
def test_invalid_acl_list_is_refused(acl: Any) -> None:
    with pytest.raises(TypeError):
        list(acl_entries(acl))


@pytest.mark.parametrize("name", ["u:hash", "u", "", None, "u:x:y"])
def test_masked_digest_is_recognised(name: str | None) -> None:
    assert is_masked(mask_digest(ACL(31, Id("digest", name))))
    assert not is_masked(mask_digest(ACL(31, Id("ip", name))))

"""The order of checks in create: which of several errors is returned.

Source: PrepRequestProcessor.pRequest2TxnCreate, PathUtils.validatePath.
"""

from __future__ import annotations

import pytest
from support.calls import create, request_error, set_acl, single_entry_acl
from support.frames import unhex
from support.numbers import (
    BAD_ARGUMENTS,
    EPHEMERAL,
    INVALID_ACL,
    MARSHALLING_ERROR,
    NO_AUTH,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    OK,
    SEQUENTIAL,
)

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import Perm
from zoolet.protocol.operations import OpCode

# --- flags, path and ACL ---


def test_invalid_acl_precedes_missing_parent(peer):
    assert create(peer, "/missing/x", acl=()).err == INVALID_ACL


def test_missing_permission_precedes_existing_node(peer):
    peer.create("/p")
    peer.create("/p/x")
    set_acl(peer, "/p", single_entry_acl(Perm.ALL & ~Perm.CREATE))

    assert create(peer, "/p/x").err == NO_AUTH


@pytest.mark.parametrize(
    ("path", "err"), [("/", NODE_EXISTS), ("a/b", NO_NODE), ("ab", BAD_ARGUMENTS), ("", BAD_ARGUMENTS)]
)
def test_create_checks_parent_before_rest_of_path(peer, path, err):
    assert create(peer, path).err == err


def test_unknown_flags_precede_errors_of_path(peer):
    assert create(peer, None, flags=7, acl=()).err == BAD_ARGUMENTS


def test_null_path_precedes_invalid_acl(peer):
    assert create(peer, None, acl=()).err == MARSHALLING_ERROR


@pytest.mark.parametrize("path", ["abc", "", "/missing/\0"])
def test_invalid_path_precedes_invalid_acl(peer, path):
    assert create(peer, path, acl=()).err == BAD_ARGUMENTS


def test_missing_permission_precedes_illegal_name(peer):
    peer.create("/p", acl=single_entry_acl(Perm.READ))

    assert create(peer, "/p/").err == NO_AUTH
    assert create(peer, "/p/\x01").err == NO_AUTH


def test_illegal_name_precedes_ephemeral_parent(peer):
    peer.create("/eph", flags=EPHEMERAL)

    assert create(peer, "/eph/").err == BAD_ARGUMENTS
    assert create(peer, "/eph/x").err == NO_CHILDREN_FOR_EPHEMERALS


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("//x", BAD_ARGUMENTS),
        ("/t//x", NO_NODE),
        ("/missing/", NO_NODE),
        ("/t/", BAD_ARGUMENTS),
        ("/t/.", BAD_ARGUMENTS),
        ("/t/..", BAD_ARGUMENTS),
        ("/./x", NO_NODE),
        ("/t/...", OK),
        ("/t/.x", OK),
        ("/t/..x", OK),
        ("/t/a..b", OK),
        ("/t", NODE_EXISTS),
        ("/t/x/y", NO_NODE),
    ],
)
def test_create_checks_path_in_order_of_zookeeper(peer, path, err):
    peer.create("/t")

    assert create(peer, path).err == err


@pytest.mark.parametrize("path", ["/p/", "/p/.", "/p/.."])
def test_sequential_path_may_end_with_slash_or_dots(peer, path):
    peer.create("/p")

    assert peer.create(path, flags=SEQUENTIAL) == f"{path}0000000000"


@pytest.mark.parametrize(("path", "err"), [("/p/", BAD_ARGUMENTS), ("/missing/", NO_NODE)])
def test_non_sequential_path_may_not_end_with_slash(peer, path, err):
    peer.create("/p")

    assert create(peer, path).err == err


# --- characters of a path ---


@pytest.mark.parametrize(
    "character",
    [
        "\0",
        "\x01",
        "\x1f",
        "\x7f",
        "\x85",
        "\x9f",
        "\ue000",
        "\uf8ff",
        "\ufff0",
        "\ufffd",
        "\uffff",
        "\U00010000",
        "😀",
    ],
)
def test_characters_in_forbidden_ranges_are_refused(peer, character):
    assert create(peer, f"/a{character}b").err == BAD_ARGUMENTS


@pytest.mark.parametrize("character", [" ", "~", "\xa0", "\u2028", "\ud7ff", "\uf900", "\uffef"])
def test_characters_next_to_forbidden_ranges_are_accepted(peer, character):
    assert peer.create(f"/a{character}b") == f"/a{character}b"
    assert peer.children("/") == sorted([f"a{character}b", "zookeeper"])


@pytest.mark.parametrize("raw", ["eda080", "ff", "c0af", "eda0"])
def test_path_with_malformed_utf_8_is_refused(peer, raw):
    path = b"/" + unhex(raw)
    body = (
        len(path).to_bytes(4, "big") + path + unhex("00000000") + r.SetACLRequest("", OPEN_ACL_UNSAFE, 0).encode()[4:]
    )

    assert request_error(peer, OpCode.CREATE, body) == BAD_ARGUMENTS

"""kazoo's credentials and ACLs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import AuthFailedError, BadVersionError, InvalidACLError, NoAuthError, RolledBackError
from kazoo.security import CREATOR_ALL_ACL, make_acl, make_digest_acl
from support.kazoo_clients import drop_connection, record_states
from support.waiting import DEADLINE_S

Connect = Callable[..., KazooClient]


def test_digest_node_is_unreadable_without_password(kazoo: Connect, base: str) -> None:
    owner, stranger = kazoo(), kazoo()
    acl = [make_digest_acl("ann", "secret", all=True)]

    owner.create(f"{base}/closed", b"data", acl=acl)

    with pytest.raises(NoAuthError):
        stranger.get(f"{base}/closed")


def test_digest_node_is_readable_with_password(kazoo: Connect, base: str) -> None:
    owner, friend = kazoo(), kazoo()
    owner.create(f"{base}/closed", b"data", acl=[make_digest_acl("ann", "secret", all=True)])

    friend.add_auth("digest", "ann:secret")

    assert friend.get(f"{base}/closed")[0] == b"data"
    assert friend.set(f"{base}/closed", b"more").version == 1


def test_digest_node_is_unreadable_with_wrong_password(kazoo: Connect, base: str) -> None:
    owner, stranger = kazoo(), kazoo()
    owner.create(f"{base}/closed", acl=[make_digest_acl("ann", "secret", all=True)])

    stranger.add_auth("digest", "ann:guess")

    with pytest.raises(NoAuthError):
        stranger.get(f"{base}/closed")


def test_auth_data_is_resent_after_dropped_connection(kazoo: Connect, base: str) -> None:
    client = kazoo(auth_data=[("digest", "ann:secret")])
    states = record_states(client)
    client.create(f"{base}/closed", b"data", acl=CREATOR_ALL_ACL)

    drop_connection(client)
    observed = [states.get(timeout=DEADLINE_S) for _ in range(2)]

    assert observed == [KazooState.SUSPENDED, KazooState.CONNECTED]
    assert client.get(f"{base}/closed")[0] == b"data"


def test_creator_acl_contains_digest_of_creator(kazoo: Connect, base: str) -> None:
    client = kazoo(auth_data=[("digest", "ann:secret")])

    client.create(f"{base}/closed", acl=CREATOR_ALL_ACL)

    acls, _ = client.get_acls(f"{base}/closed")
    assert acls == [make_digest_acl("ann", "secret", all=True)]


def test_creator_acl_without_authentication_is_invalid(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(InvalidACLError):
        client.create(f"{base}/closed", acl=CREATOR_ALL_ACL)


def test_read_permission_does_not_include_write(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/read-only", b"data", acl=[make_acl("world", "anyone", read=True)])

    data, _ = client.get(f"{base}/read-only")

    assert data == b"data"
    with pytest.raises(NoAuthError):
        client.set(f"{base}/read-only", b"more")


def test_create_needs_permission_on_parent(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/parent", acl=[make_acl("world", "anyone", read=True, write=True, delete=True)])

    with pytest.raises(NoAuthError):
        client.create(f"{base}/parent/child")


def test_delete_needs_permission_on_parent_only(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/parent", acl=[make_acl("world", "anyone", create=True, delete=True)])
    client.create(f"{base}/parent/child", acl=[make_digest_acl("ann", "secret", all=True)])

    client.delete(f"{base}/parent/child")

    assert client.exists(f"{base}/parent/child") is None


def test_set_acls_increments_acl_version_and_takes_effect(kazoo: Connect, base: str) -> None:
    client, stranger = kazoo(auth_data=[("digest", "ann:secret")]), kazoo()

    stat = client.set_acls(base, [make_digest_acl("ann", "secret", all=True)], version=0)

    assert stat.aversion == 1
    with pytest.raises(NoAuthError):
        stranger.get(base)


def test_set_acls_with_wrong_version_is_refused(kazoo: Connect, base: str) -> None:
    client = kazoo()

    with pytest.raises(BadVersionError):
        client.set_acls(base, [make_acl("world", "anyone", read=True)], version=7)


def test_refused_transaction_is_not_applied(kazoo: Connect, base: str) -> None:
    client = kazoo()
    client.create(f"{base}/closed", acl=[make_digest_acl("ann", "secret", all=True)])

    transaction = client.transaction()
    transaction.create(f"{base}/new")
    transaction.set_data(f"{base}/closed", b"data")
    results = transaction.commit()

    assert [type(result) for result in results] == [RolledBackError, NoAuthError]
    assert client.exists(f"{base}/new") is None


def test_unknown_scheme_raises_auth_failed_error(kazoo: Connect) -> None:
    client = kazoo()

    with pytest.raises(AuthFailedError):
        client.add_auth("nosuch", "ann:secret")

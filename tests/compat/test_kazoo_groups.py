"""kazoo's parties and partitioners."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.recipe.partitioner import SetPartitioner
from support.waiting import wait_until

Connect = Callable[..., KazooClient]


def test_kazoo_party_lists_members_that_have_joined(kazoo: Connect, base: str) -> None:
    one, two = kazoo().Party(f"{base}/party", "one"), kazoo().Party(f"{base}/party", "two")

    one.join()
    two.join()
    both = sorted(one)
    one.leave()

    assert both == ["one", "two"]
    assert (list(two), len(two)) == (["two"], 1)


def test_party_removes_stopped_member(kazoo: Connect, base: str) -> None:
    client, party = kazoo(), kazoo().Party(f"{base}/party", "two")
    client.Party(f"{base}/party", "one").join()
    party.join()

    client.stop()

    assert list(party) == ["two"]


def test_shallow_party_has_identifiers_in_node_names(kazoo: Connect, base: str) -> None:
    one, two = kazoo().ShallowParty(f"{base}/party", "one"), kazoo().ShallowParty(f"{base}/party", "two")

    one.join()
    two.join()

    assert sorted(one) == ["one", "two"]


def partition(client: KazooClient, path: str, name: str) -> SetPartitioner:
    """Return a member that divides four letters among its group."""
    return client.SetPartitioner(path, ("a", "b", "c", "d"), identifier=name, time_boundary=0.1, max_reaction_time=0.2)


def acquired(*members: SetPartitioner) -> bool:
    """Take the next step of every member. Return whether all members have their share."""
    _ = [member.release_set() for member in members if member.release]
    return all(member.acquired for member in members)


@pytest.mark.slow
def test_set_partitioner_redivides_after_member_change(kazoo: Connect, base: str) -> None:
    one = partition(kazoo(), f"{base}/set", "one")
    wait_until(lambda: acquired(one))
    alone = sorted(one)

    two = partition(kazoo(), f"{base}/set", "two")
    wait_until(lambda: acquired(one, two))
    shares = sorted(one), sorted(two)
    one.finish()
    wait_until(lambda: two.release)
    wait_until(lambda: acquired(two))
    left = sorted(two)
    two.finish()

    assert alone == ["a", "b", "c", "d"]
    assert shares == (["a", "c"], ["b", "d"])
    assert left == ["a", "b", "c", "d"]

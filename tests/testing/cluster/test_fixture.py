"""The fixture ``zoolet_cluster`` in a separate project: clients, environment, and the marker."""

from __future__ import annotations

import unittest

import pytest

from zoolet.testing.unittest import ZooletTestCase


def test_clients_connect_to_cluster_of_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os

        def test_kazoo(zoolet_cluster, zoolet_kazoo):
            zoolet_kazoo.create("/a")
            zoolet_cluster.stop_leader()
            assert zoolet_kazoo.retry(zoolet_kazoo.exists, "/a")
            assert "/a" in zoolet_cluster.tree()

        async def test_asyncio(zoolet_cluster, zoolet_client):
            await zoolet_client.create("/a")
            assert "/a" in zoolet_cluster.tree()

        def test_environment(zoolet_cluster):
            assert os.environ["ZOOKEEPER_HOSTS"] == os.environ["ZOOLET_HOSTS"] == zoolet_cluster.hosts

        def test_afterwards():
            assert "ZOOLET_HOSTS" not in os.environ
        """
    )

    result = project.runpytest_inprocess("-o", "asyncio_mode=auto")

    result.assert_outcomes(passed=4)


def test_marker_sets_members_and_election_time(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(members=5, observers=1, election=0.1)
        def test_five(zoolet_cluster):
            assert len(zoolet_cluster) == 6
            zoolet_cluster.stop_leader()
            assert zoolet_cluster.leader is None
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize("client", ["zoolet_kazoo", "zoolet_kazoo_factory", "zoolet_client", "zoolet_factory"])
def test_marker_of_cluster_is_accepted_with_clients(project: pytest.Pytester, client: str) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.zoolet(members=2, observers=1, election=0.1)
        async def test_it(zoolet_cluster, {client}):
            assert len(zoolet_cluster) == 3
        """
    )

    project.runpytest_inprocess("-o", "asyncio_mode=auto").assert_outcomes(passed=1)


def test_tls_clients_of_cluster_survive_leader_kill(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(tls=True, members=3)
        async def test_it(zoolet_cluster, zoolet_client, zoolet_kazoo_factory):
            await zoolet_client.create("/a", b"1")
            zoolet_cluster.kill_leader()
            await zoolet_cluster.until_client(zoolet_client)
            added = zoolet_cluster.add()
            other = zoolet_kazoo_factory(added.hosts)
            assert (await zoolet_client.get("/a"))[0] == other.get("/a")[0] == b"1"
            assert added.tls_ca == zoolet_cluster.tls_ca
        """
    )

    project.runpytest_inprocess("-o", "asyncio_mode=auto").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("fixture", "option", "message"),
    [
        ("zoolet", "members=5", "the marker has members, which the fixture zoolet does not support"),
        ("zoolet_cluster", "sasl_users={}", "has sasl_users, which the fixture zoolet_cluster does not support"),
        ("zoolet_cluster", "size=5", "@pytest.mark.zoolet has size; expected keyword arguments: config, clock"),
        ("zoolet_cluster", "members=0", "members must be a number from 1 to 15, not 0"),
    ],
)
def test_option_for_different_fixture_is_refused(
    project: pytest.Pytester, fixture: str, option: str, message: str
) -> None:
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.zoolet({option})
        def test_it({fixture}): ...
        """
    )

    result = project.runpytest_inprocess()

    assert message in result.stdout.str()
    result.assert_outcomes(errors=1)


def test_test_case_starts_with_members_of_its_class() -> None:
    seen: list[int] = []

    class Case(ZooletTestCase):
        zoolet_members = 3

        def test_a(self) -> None:
            seen.append(len(self.zoolet))
            self.zoolet.add(role="observer")

        def test_b(self) -> None:
            seen.append(len(self.zoolet))
            self.zoolet.remove(0)

        def test_c(self) -> None:
            seen.append(len(self.zoolet))

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)

    assert result.wasSuccessful()
    assert seen == [3, 3, 3]

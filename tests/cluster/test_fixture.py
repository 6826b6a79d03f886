"""The fixture ``zoolet_cluster``, in a project of its own: clients, environment, and the marker."""

from __future__ import annotations

import unittest

import pytest

from zoolet.server.testing.unittest import ZooletTestCase


def test_clients_connect_to_the_cluster_of_the_test(project: pytest.Pytester) -> None:
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


def test_the_marker_says_how_many_members_there_are_and_how_long_elections_take(project: pytest.Pytester) -> None:
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


@pytest.mark.parametrize(
    ("fixture", "option", "message"),
    [
        ("zoolet", "members=5", "the marker has members, which zoolet has not"),
        ("zoolet_cluster", "tls=True", "the marker has tls, which zoolet_cluster has not"),
        ("zoolet_cluster", "size=5", "@pytest.mark.zoolet has size; it has config, clock"),
        ("zoolet_cluster", "members=0", "size=0 is invalid"),
    ],
)
def test_an_option_of_the_other_fixture_is_refused(
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


def test_a_test_case_begins_with_the_members_that_its_class_wants() -> None:
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

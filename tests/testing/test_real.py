"""Fixtures on a real server, ``--zoolet-hosts``: another zoolet stands for it here."""

from __future__ import annotations

from collections.abc import Iterator

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

from zoolet.client.blocking import Client
from zoolet.protocol.errors import ConnectionLossError
from zoolet.server import Server
from zoolet.server.testing.real import RealServer, UnsupportedError


@pytest.fixture
def upstream() -> Iterator[Server]:
    """What stands for a real server."""
    with Server(seed=1) as server:
        yield server


@pytest.fixture
def real(upstream: Server) -> Iterator[RealServer]:
    """It, behind the proxy of a test."""
    with RealServer(upstream.hosts, seed=1) as server:
        yield server


def test_the_fixtures_of_a_test_run_on_a_real_server_with_faults(upstream: Server, project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import kazoo.exceptions, pytest
        from zoolet.testing import error

        def test_a_fault(zoolet, zoolet_kazoo):
            zoolet.populate({"/a": {"b": "1"}})
            with zoolet.fault(error("NO_AUTH"), "get", times=1):
                with pytest.raises(kazoo.exceptions.NoAuthError):
                    zoolet_kazoo.get("/a/b")
            assert zoolet_kazoo.get("/a/b")[0] == b"1"
            assert [path for path in zoolet.tree()] == ["/a", "/a/b"]

        def test_what_another_test_left_is_gone(zoolet):
            assert not zoolet.tree()

        def test_a_clock(zoolet):
            zoolet.advance(5)

        @pytest.mark.zoolet(config={"tickTime": 200})
        def test_settings(zoolet):
            pass
        """
    )

    result = project.runpytest_inprocess("--zoolet-hosts", upstream.hosts, "-rs")

    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "*with --zoolet-hosts: advance needs the embedded server*",
            "*config of the fixture zoolet needs the embedded server*",
        ]
    )
    assert list(upstream.tree()) == []


def test_only_the_first_test_waits_for_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def refused(client: Client) -> None:
        starts.append(client)
        raise OSError("connection refused")

    monkeypatch.setattr(Client, "start", refused)
    failures: list[str] = []
    with pytest.raises(OSError, match="refused"):
        RealServer("127.0.0.1:1", failures=failures).start()
    with pytest.raises(ConnectionLossError, match="does not answer: connection refused"):
        RealServer("127.0.0.1:1", failures=failures).start()
    assert len(starts) == 1


def test_a_server_that_has_nodes_is_left_alone(upstream: Server) -> None:
    upstream.populate({"/production": "1"})

    with pytest.raises(ValueError, match="has nodes \\(/production\\), which tests would delete"):
        RealServer(upstream.hosts).start()

    assert upstream.tree()["/production"].data == b"1"


def test_somebody_elses_ephemeral_node_stays_until_the_reset(real: RealServer) -> None:
    assert real.create("/locks/held", b"other", ephemeral=True) == "/locks/held"

    assert real.wait_for_node("/locks/held", b"other").ephemeral_owner != 0
    real.reset()
    assert not real.tree()


def test_a_session_is_ended_by_its_id(real: RealServer) -> None:
    with Client(real.hosts, 10) as zk:
        zk.create("/e", ephemeral=True)
        real.wait_for_sessions(1)

        real.expire(zk.session_id)

        assert "/e" not in real.tree()


def test_what_needs_the_embedded_server_says_so(real: RealServer) -> None:
    with pytest.raises(UnsupportedError, match="skew_clock needs the embedded server; this one is real"):
        real.skew_clock(5)
    with pytest.raises(AttributeError, match="nonsense"):
        real.nonsense  # noqa: B018

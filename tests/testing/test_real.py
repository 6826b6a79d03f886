"""Fixtures with a real server, ``--zoolet-hosts``; here a second zoolet takes its place."""

from __future__ import annotations

import textwrap
import unittest
from collections.abc import Iterator
from typing import Any

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest
from support.wire import Wire

from zoolet.client import acl
from zoolet.client.blocking import Client
from zoolet.protocol.errors import ConnectionLossError
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, registry
from zoolet.testing.real import LeftoverError, RealServer, UnsupportedError


@pytest.fixture
def upstream() -> Iterator[Server]:
    """The server in place of a real one."""
    with Server(seed=1) as server:
        yield server


@pytest.fixture
def real(upstream: Server) -> Iterator[RealServer]:
    """The real server behind the proxy of a test."""
    with RealServer(upstream.hosts, seed=1) as server:
        yield server


def test_fixtures_run_on_real_server_with_faults(upstream: Server, project: pytest.Pytester) -> None:
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
            assert zoolet.tree()["/a"].children == ("b",)

        def test_leftovers_of_other_test_are_gone(zoolet):
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
            "*only the embedded server supports config*",
        ]
    )
    assert list(upstream.tree()) == []


def test_only_first_test_waits_for_unreachable_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_real_server_with_nodes_is_refused(upstream: Server) -> None:
    upstream.populate({"/production": "1"})

    with pytest.raises(LeftoverError, match="has nodes, such as /production, which tests would delete"):
        RealServer(upstream.hosts).start()

    assert upstream.tree()["/production"].data == b"1"


def test_foreign_ephemeral_node_stays_until_reset(real: RealServer) -> None:
    assert real.create("/locks/held", b"other", ephemeral=True) == "/locks/held"

    assert real.wait_for_node("/locks/held", b"other").ephemeral_owner != 0
    real.reset()
    assert not real.tree()


def test_session_is_expired_by_id(real: RealServer) -> None:
    with Client(real.hosts, 10) as zk:
        zk.create("/e", ephemeral=True)
        real.wait_for_sessions(1)

        real.expire(zk.session_id)

        assert "/e" not in real.tree()


def test_closed_session_is_not_a_leak(real: RealServer) -> None:
    with Wire(real.port).welcomed() as wire:
        assert len(real.leaks()) == 1
        last = real._interceptor.last
        last[wire.id] = last[wire.id]._replace(opcode=OpCode.CLOSE_SESSION)  # its reply has just passed
        assert real.leaks() == []


def test_wait_for_client_works_through_proxy(real: RealServer) -> None:
    with Client(real.hosts, 10) as zk:
        real.drop(zk)
        real.wait_for_client(zk)
        assert zk.exists("/") is not None


def test_call_that_requires_embedded_server_raises(real: RealServer) -> None:
    with pytest.raises(UnsupportedError, match="skew_clock needs the embedded server, not a real one"):
        real.skew_clock(5)
    with pytest.raises(AttributeError, match="nonsense"):
        real.nonsense  # noqa: B018


def test_reset_deletes_unlistable_node(upstream: Server, real: RealServer) -> None:
    with Client(real.hosts) as zk:
        zk.create("/secret", acl=[*acl.digest("user", "password", acl.ALL)])

        real.reset()

    assert not upstream.tree()


def test_reset_deletes_nodes_with_credentials_of_clients(upstream: Server, real: RealServer) -> None:
    with Client(real.hosts, auth=[("digest", b"user:password")]) as zk:
        zk.create("/open/secret", acl=acl.CREATOR_ALL, parents=True)
        zk.create("/open/secret/node", acl=acl.CREATOR_ALL)

    real.reset()

    assert not upstream.tree()


@pytest.mark.slow
def test_undeletable_node_on_real_server_stops_test_run(upstream: Server, project: pytest.Pytester) -> None:
    upstream.populate({})
    project.makepyfile(
        f"""
        from zoolet.client.blocking import Client
        from zoolet.client import acl

        def test_a(zoolet):
            with Client("{upstream.hosts}", auth=[("digest", b"user:password")]) as other:  # not through the proxy
                other.create("/secret", acl=acl.CREATOR_ALL)
                other.create("/secret/node", acl=acl.CREATOR_ALL)

        def test_b(zoolet): ...

        def test_c(zoolet): ...
        """
    )

    result = project.runpytest_inprocess("--zoolet-hosts", upstream.hosts)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*cannot delete /secret on the server at *because an ACL denies it*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_real_server_with_several_pytest_workers_is_refused(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(zoolet): ...")

    result = project.runpytest_subprocess("--zoolet-hosts", "127.0.0.1:1", "-n", "2")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --zoolet-hosts can run only one test at a time; do not use -n"])


CASES = """
    from zoolet.testing import ZooletTestCase

    class CaseOnServer(ZooletTestCase):
        def test_a_node(self):
            self.zoolet.create("/a")
            self.assertEqual([*self.zoolet.tree()], ["/a"])

        def test_another_node(self):
            self.zoolet.create("/b")
            self.assertEqual([*self.zoolet.tree()], ["/b"])

        def test_a_clock(self):
            self.zoolet.advance(5)

    class CaseWithOptions(ZooletTestCase):
        zoolet_options = {"clock": "manual"}

        def test_it(self): ...

    class CaseOnCluster(ZooletTestCase):
        zoolet_members = 3

        def test_it(self): ...
"""


def test_pytest_runs_test_cases_on_real_server(upstream: Server, project: pytest.Pytester) -> None:
    project.makepyfile(CASES)

    result = project.runpytest_inprocess("--zoolet-hosts", upstream.hosts, "-rs")

    result.assert_outcomes(passed=2, skipped=3)
    result.stdout.fnmatch_lines_random(
        ["*advance needs the embedded server*", "*only the embedded server supports clock*", "*needs 3 hosts*"]
    )
    assert not upstream.tree()


def test_unittest_cases_run_on_real_server(
    upstream: Server, project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace: dict[str, Any] = {"__name__": "cases"}
    exec(textwrap.dedent(CASES), namespace)
    monkeypatch.setattr(registry, "real_hosts", upstream.hosts)
    result = unittest.TestResult()

    for name in ("CaseOnServer", "CaseWithOptions", "CaseOnCluster"):
        unittest.defaultTestLoader.loadTestsFromTestCase(namespace[name]).run(result)

    assert result.wasSuccessful()
    assert len(result.skipped) == 3
    assert upstream.op_count() > 0

"""``unittest``: ``ZooletTestCase``, and test classes written for ``kazoo.testing`` with a changed import."""

from __future__ import annotations

import io
import textwrap
import unittest
import warnings
from typing import Any

import pytest
from kazoo.client import KazooClient

from zoolet.testing import ZooletTestCase, registry
from zoolet.testing.unittest import KazooTestCase, KazooTestHarness, _shared_cluster

OURS = "zoolet.testing.unittest"


def run(*classes: type[unittest.TestCase]) -> unittest.TestResult:
    """Run test classes like ``python -m unittest``, without its output."""
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    suite = unittest.TestSuite([load(one) for one in classes])
    return unittest.TextTestRunner(io.StringIO(), verbosity=2).run(suite)


def passed(result: unittest.TestResult) -> int:
    """Check that all tests passed, and return their number."""
    assert [trace for _, trace in result.failures + result.errors] == []
    return result.testsRun


def ported(source: str) -> type[unittest.TestCase]:
    """Return the test class of a module written for kazoo.testing, with only its import changed."""
    source = textwrap.dedent(source)
    assert "kazoo.testing" in source
    names: dict[str, Any] = {}
    exec(compile(source.replace("kazoo.testing", OURS), "<ported>", "exec"), names)
    [found] = [
        one
        for one in names.values()
        if isinstance(one, type) and issubclass(one, KazooTestHarness) and one not in (KazooTestHarness, KazooTestCase)
    ]
    return found


# --- ZooletTestCase ---


def test_tests_of_class_share_server_with_fresh_state() -> None:
    seen = []

    class Some(ZooletTestCase):
        def test_one(self) -> None:
            seen.append((self.zoolet.hosts, dict(self.zoolet.tree())))
            self.zoolet.populate({"/left": b"behind"})

        test_two = test_one

    assert passed(run(Some)) == 2
    assert [tree for _, tree in seen] == [{}, {}]
    assert seen[0][0] != seen[1][0]  # a new port keeps clients of the first test away from the second test


def test_set_up_without_base_call_has_fresh_state() -> None:
    seen = []

    class Some(ZooletTestCase):
        def setUp(self) -> None:
            self.mine = True

        def test_one(self) -> None:
            seen.append(dict(self.zoolet.tree()))
            self.zoolet.populate({"/left": b"behind"})

        test_two = test_one

    assert passed(run(Some)) == 2
    assert seen == [{}, {}]


def test_server_stops_after_class_cleanup() -> None:
    class Some(ZooletTestCase):
        @classmethod
        def tearDownClass(cls) -> None:
            cls.zoolet.tree()
            super().tearDownClass()

        def test_nothing(self) -> None:
            pass

    assert passed(run(Some)) == 1
    with pytest.raises(RuntimeError, match="stopped"):
        _ = Some.zoolet.hosts


def test_zoolet_options_of_test_case_apply_to_server() -> None:
    class Timed(ZooletTestCase):
        zoolet_options = {"clock": "manual", "seed": 7}

        def test_time(self) -> None:
            assert self.zoolet.seed == 7
            self.zoolet.advance(3600)

    assert passed(run(Timed)) == 1


def test_two_classes_have_two_servers() -> None:
    class One(ZooletTestCase):
        def test_nothing(self) -> None:
            pass

    class Two(One):
        pass

    assert passed(run(One, Two)) == 2
    assert One.zoolet is not Two.zoolet


def test_test_case_is_mixin_for_asyncio_test_cases() -> None:
    class Async(ZooletTestCase, unittest.IsolatedAsyncioTestCase):
        async def test_something(self) -> None:
            self.zoolet.populate({"/a": b"1"})
            assert list(self.zoolet.tree()) == ["/a"]

    assert passed(run(Async)) == 1


def test_server_failing_to_start_is_reported_as_error() -> None:
    class Nowhere(ZooletTestCase):
        zoolet_options = {"host": "192.0.2.1"}

        def test_nothing(self) -> None:
            pass

    result = run(Nowhere)

    assert (len(result.errors), result.testsRun) == (1, 0)


# --- test classes written for kazoo.testing ---


def test_documented_example_of_kazoo_runs() -> None:
    example = ported(
        """
        from kazoo.testing import KazooTestHarness

        class MyTestCase(KazooTestHarness):
            def setUp(self):
                self.setup_zookeeper()
                self.client.ensure_path("/app")

            def tearDown(self):
                self.teardown_zookeeper()

            def test_something(self):
                self.client.create("/app/a", b"1")
                self.assertEqual(self.client.get("/app/a")[0], b"1")

            def test_something_else(self):
                from kazoo.client import KazooClient
                client = KazooClient(hosts=self.servers)
                client.start()
                self.assertEqual(client.get_children(self.client.chroot), ["app"])
                client.stop()
                client.close()
        """
    )

    assert passed(run(example)) == 2


def test_test_case_starts_and_stops_its_client() -> None:
    case = ported(
        """
        from kazoo.testing import KazooTestCase

        class Started(KazooTestCase):
            def test_the_client_is_connected_in_a_chroot_of_its_own(self):
                self.assertTrue(self.client.connected)
                self.assertTrue(self.client.chroot.startswith("/kazootests"))
                self.assertEqual(self.client.get_children("/"), [])
                self.client.create("/left")

            test_and_so_is_the_next = test_the_client_is_connected_in_a_chroot_of_its_own
        """
    )

    assert passed(run(case)) == 2


def test_session_expires_with_its_ephemerals() -> None:
    case = ported(
        """
        import threading
        from kazoo.protocol.states import KazooState
        from kazoo.testing import KazooTestCase

        class Expires(KazooTestCase):
            def test_it(self):
                states = []
                self.client.create("/here", ephemeral=True)
                session = self.client.client_id[0]
                self.client.add_listener(states.append)
                self.expire_session(threading.Event)
                self.assertNotEqual(self.client.client_id[0], session)
                self.assertIsNone(self.client.exists("/here"))
                self.assertIn(KazooState.LOST, states)
        """
    )

    assert passed(run(case)) == 1


def test_lost_connection_keeps_session() -> None:
    case = ported(
        """
        from kazoo.protocol.states import KazooState
        from kazoo.testing import KazooTestCase

        class Drops(KazooTestCase):
            def test_it(self):
                states = []
                self.client.create("/here", ephemeral=True)
                session = self.client.client_id[0]
                self.client.add_listener(states.append)
                self.lose_connection(self.client.handler.event_object)
                self.assertEqual(self.client.client_id[0], session)
                self.assertIsNotNone(self.client.exists("/here"))
                self.assertEqual(states, [KazooState.SUSPENDED, KazooState.CONNECTED])
        """
    )

    assert passed(run(case)) == 1


def test_several_clients_share_tree_and_stop_with_test() -> None:
    case = ported(
        """
        from kazoo.testing import KazooTestHarness

        class Several(KazooTestHarness):
            made = []

            def setUp(self):
                self.setup_zookeeper(timeout=4)

            def tearDown(self):
                self.teardown_zookeeper()

            def test_it(self):
                other, plain = self._get_client(), self._get_nonchroot_client()
                self.made += [self.client, other, plain]
                other.start()
                plain.start()
                other.create("/a", b"1")
                self.assertEqual(self.client.get("/a")[0], b"1")
                self.assertEqual(plain.get(self.client.chroot + "/a")[0], b"1")
                lock, waiter = self.client.Lock("/lock"), other.Lock("/lock")
                with lock:
                    self.assertFalse(waiter.acquire(blocking=False))
        """
    )

    assert passed(run(case)) == 1
    assert [client.connected for client in case.made] == [False] * 3  # type: ignore[attr-defined]


def test_stopped_cluster_suspends_client_until_restart() -> None:
    case = ported(
        """
        import threading
        from kazoo.protocol.states import KazooState
        from kazoo.testing import KazooTestCase

        class Stops(KazooTestCase):
            def test_it(self):
                suspended, back = threading.Event(), threading.Event()

                def listen(state):
                    {KazooState.SUSPENDED: suspended, KazooState.CONNECTED: back}[state].set()

                self.client.create("/kept", b"1")
                self.client.add_listener(listen)
                self.cluster.stop()
                self.assertTrue(suspended.wait(5))
                self.assertFalse(back.is_set())
                self.cluster.start()
                self.assertTrue(back.wait(5))
                self.assertEqual(self.client.get("/kept")[0], b"1")
        """
    )

    assert passed(run(case)) == 1


def test_other_clients_stop_despite_error_of_one() -> None:
    case = ported(
        """
        from kazoo.exceptions import WriterNotClosedException
        from kazoo.testing import KazooTestCase

        class Stubborn(KazooTestCase):
            made = []

            def test_it(self):
                other = self._get_client()
                other.start()
                self.made += [self.client, other]
                really = other.stop

                def stop():
                    really()
                    raise WriterNotClosedException("Writer still open")

                other.stop = stop
        """
    )

    result = run(case)
    connected = [client.connected for client in case.made]  # type: ignore[attr-defined]
    for client in case.made:  # type: ignore[attr-defined]
        type(client).stop(client)
        client.close()

    assert (connected, passed(result)) == ([False, False], 1)


def test_test_case_works_with_warnings_as_errors() -> None:
    case = ported(
        """
        from kazoo.testing import KazooTestCase

        class Quiet(KazooTestCase):
            def setUp(self):
                self.addCleanup(self.teardown_zookeeper)
                super().setUp()

            def test_nothing(self):
                pass
        """
    )

    assert passed(run(case)) == 1


def test_failing_test_shows_state_and_leak_is_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "test", None)  # as in a run without pytest

    class Failing(ZooletTestCase):
        def test_fails(self) -> None:
            self.zoolet.populate({"/here": "x"})
            self.fail("on purpose")

        def test_leaves_a_session(self) -> None:
            kazoo = KazooClient(self.zoolet.hosts)
            kazoo.start()
            kazoo.create("/left", ephemeral=True)
            type(self).left = kazoo

    result = unittest.TestResult()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        unittest.defaultTestLoader.loadTestsFromTestCase(Failing).run(result)
    Failing.left.stop()
    Failing.left.close()

    ((_, text),) = result.failures
    assert "on purpose" in text
    assert "/here b'x'" in text
    assert any("has left at zoolet" in str(warning.message) for warning in warned)


# --- reports ---


def test_failing_test_shows_state_before_cleanups() -> None:
    class Some(ZooletTestCase):
        def test_one(self) -> None:
            self.zoolet.populate({"/seen": b""})
            self.addCleanup(self.zoolet.reset)
            raise AssertionError

    before, registry.test = registry.test, None  # as in a run without pytest
    try:
        [(_, trace)] = run(Some).failures
    finally:
        registry.test = before

    assert "last 20 operations" in trace
    assert "/seen" in trace.partition("tree:")[2]


def test_leak_of_test_causes_resource_warning() -> None:
    class Some(ZooletTestCase):
        def test_one(self) -> None:
            self.zoolet.wait_for_sessions(0)
            self.client = KazooClient(self.zoolet.hosts)
            self.client.start()
            self.addClassCleanup(self.client.close)
            self.addClassCleanup(self.client.stop)

    before, registry.test = registry.test, None
    try:
        with pytest.warns(ResourceWarning, match="test_one has left at zoolet:\n.*session 0x.* is still open"):
            run(Some)
    finally:
        registry.test = before


@pytest.mark.parametrize("size", ["1000000000", "0", "-1", "many", ""])
def test_invalid_size_of_cluster_is_refused(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_CLUSTER_SIZE", size)

    with pytest.raises(ValueError, match=f"ZOOKEEPER_CLUSTER_SIZE must be a number from 1 to 15, not '{size}'"):
        _shared_cluster.__wrapped__()


@pytest.mark.parametrize("port", ["1000000000", "0", "-1", "65530", "many", ""])
def test_invalid_port_of_cluster_is_refused(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOOKEEPER_PORT_OFFSET", port)

    with pytest.raises(ValueError, match=f"ZOOKEEPER_PORT_OFFSET must be a port from 1 to 65515, not '{port}'"):
        _shared_cluster.__wrapped__()

"""Reports of failing tests and leaks of a ``ZooletTestCase``, with results of every kind and with pytest."""

from __future__ import annotations

import io
import traceback
import unittest
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

from zoolet.testing import ZooletTestCase, registry


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    """Run a test class like ``python -m unittest``, without its output."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return unittest.TextTestRunner(io.StringIO(), verbosity=2).run(suite)


class _RemoteList(Sized):
    """A result's list in a separate process, as with Django's ``--parallel``: appended entries are lost here."""

    def __len__(self) -> int:
        return 0

    def append(self, entry: object) -> None: ...


class _RemoteResult(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.failures = self.errors = _RemoteList()  # type: ignore[assignment]
        self.texts: list[str] = []

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.texts.append("".join(traceback.format_exception(err[1])))


def test_result_without_lists_gets_report_as_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "test", None)

    class Failing(ZooletTestCase):
        def test_it(self) -> None:
            for name in ("/first", "/second"):
                with self.subTest(name):
                    self.zoolet.populate({name: b""})
            self.fail("on purpose")

    result = _RemoteResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Failing).run(result)

    [text] = result.texts
    assert "on purpose" in text
    assert "/second" in text.partition("tree:")[2]
    assert "addFailure" not in vars(result)


def test_failing_subtest_shows_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "test", None)

    class Failing(ZooletTestCase):
        def test_it(self) -> None:
            with self.subTest("first"):
                self.zoolet.populate({"/seen": b""})
                self.fail("on purpose")

    [(_, text)] = run(Failing).failures
    assert "/seen" in text.partition("tree:")[2]


def test_leak_of_last_test_of_class_is_found_by_pytest(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from kazoo.client import KazooClient
        from zoolet.testing import ZooletTestCase

        class TestLeak(ZooletTestCase):
            def test_it(self):
                zk = KazooClient(self.zoolet.hosts)
                zk.start()
                type(self).zk = zk

        def test_end():
            TestLeak.zk.stop()
            TestLeak.zk.close()
        """
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*::TestLeak::test_it has left at zoolet:*", "*session 0x* is still open*"])


@pytest.mark.parametrize("body", ["self.fail('on purpose')", "with self.subTest(): self.fail('on purpose')"])
def test_pytest_shows_state_before_cleanups(project: pytest.Pytester, body: str) -> None:
    project.makepyfile(
        f"""
        from zoolet.testing import ZooletTestCase

        class TestIt(ZooletTestCase):
            def test_it(self):
                self.zoolet.populate({{"/seen": b""}})
                self.addCleanup(self.zoolet.reset)
                {body}
        """
    )

    result = project.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["tree:", "  /seen b''"])


@dataclass(frozen=True)
class _FrozenError(Exception):
    reason: str = "on purpose"


def test_frozen_or_reused_errors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "test", None)
    reused = ValueError("reused")

    class Failing(ZooletTestCase):
        def test_first(self) -> None:
            raise _FrozenError

        def test_second(self) -> None:
            raise reused

        def test_third(self) -> None:
            raise reused

    errors = run(Failing).errors

    assert len(errors) == 3
    assert [text.count("<zoolet Server") for _, text in errors] == [0, 1, 1]


def test_methods_of_test_result_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "test", None)
    result = unittest.TestResult()
    added: list[Any] = []
    result.addError = added.append  # type: ignore[method-assign, assignment]

    class Nothing(ZooletTestCase):
        def test_nothing(self) -> None: ...

    unittest.defaultTestLoader.loadTestsFromTestCase(Nothing).run(result)

    assert result.addError == added.append
    assert "addFailure" not in vars(result)

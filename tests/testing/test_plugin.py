"""The pytest plugin in users' projects: small test files, run by a separate pytest."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest
from support.effort import effort
from support.waiting import DEADLINE_S

BUDGET: Final = 0.06
"""The limit for the calls of the plugin, as a fraction of the calls that pytest makes itself."""
OTHERS: Final = ("cacheprovider", "hypothesispytest", "asyncio", "xdist")
HEAVY: Final = ("asyncio", "kazoo", "msgpack", "uvloop", "zoolet.protocol", "zoolet.server.core", "zoolet.server.net")

# --- fixtures ---


def test_fixtures_work_without_options(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_server(zoolet, zoolet_server):
            assert zoolet.hosts != zoolet_server.hosts
            assert zoolet.tree() == {}

        def test_kazoo(zoolet, zoolet_kazoo_factory):
            first, second = zoolet_kazoo_factory(), zoolet_kazoo_factory(timeout=3)
            first.create("/a", b"1")
            assert second.get("/a")[0] == b"1"
            assert {session.timeout for session in zoolet.sessions().values()} == {10, 3}

        def test_kazoo_with_a_chroot(zoolet, zoolet_kazoo_factory):
            zoolet.populate({"/app/a": b"1"})
            assert zoolet_kazoo_factory(zoolet.hosts + "/app").get("/a")[0] == b"1"

        def test_factory(zoolet, zoolet_factory):
            other = zoolet_factory(clock="manual", seed=7)
            other.advance(60)
            assert other.seed == 7
            assert other.hosts != zoolet.hosts
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=4)


def test_each_test_has_fresh_state(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from zoolet.testing import error

        @pytest.mark.parametrize("number", range(3))
        def test_it(zoolet, zoolet_kazoo_factory, number):
            assert not zoolet.tree()
            assert not zoolet.sessions()
            assert not zoolet.watches()
            assert not zoolet.ops()
            zk = zoolet_kazoo_factory()
            zk.create("/left", ephemeral=True)
            zk.get("/left", watch=print)
            zoolet.fault(error(-110), "create")
            zoolet.refuse_connections()
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=3)


def test_factory_fixtures_end_with_their_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        made = []

        def test_make(zoolet_factory, zoolet_kazoo_factory):
            made.extend([zoolet_factory(), zoolet_factory(), zoolet_kazoo_factory()])

        def test_after(zoolet):
            assert [repr(server) for server in made[:2]] == ["<zoolet Server, stopped>"] * 2
            assert not made[2].connected
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_fixtures_work_in_asyncio_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import asyncio
        import pytest

        pytestmark = pytest.mark.asyncio

        async def test_words(zoolet):
            reader, writer = await asyncio.open_connection("127.0.0.1", zoolet.port)
            writer.write(b"ruok")
            assert await reader.read() == b"imok"
            writer.close()
            await writer.wait_closed()

        async def test_calls(zoolet, zoolet_factory):
            zoolet.populate({"/a": b"1"})
            assert list(zoolet.tree()) == ["/a"]
            async with type(zoolet)() as own:
                assert await own.until(lambda: own.tree() == {}) is True
            zoolet_factory().populate({"/b": b"2"})
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_fixtures_work_in_unittest_classes(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import unittest
        import pytest

        class Some(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _server(self, zoolet):
                self.zoolet = zoolet

            def test_it(self):
                self.assertEqual(dict(self.zoolet.tree()), {})
                self.zoolet.populate({"/left": b""})

            test_again = test_it
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_many_tests_pass_on_many_workers(project: pytest.Pytester) -> None:
    tests = effort(60, 200)
    project.makepyfile(
        f"""
        import pytest

        @pytest.mark.parametrize("number", range({tests}))
        def test_it(zoolet, zoolet_kazoo_factory, number):
            assert zoolet.tree() == {{}}
            zoolet_kazoo_factory().create("/same", b"%d" % number, ephemeral=True)
            assert zoolet.tree()["/same"].data == b"%d" % number
        """
    )

    workers = str(effort(4, 8))
    project.runpytest_subprocess("-n", workers, timeout=DEADLINE_S).assert_outcomes(passed=tests)


@pytest.mark.slow
def test_paused_client_does_not_delay_teardown(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_pause(zoolet, zoolet_kazoo_factory):
            zoolet.pause(zoolet_kazoo_factory(timeout=1.2))
        """
    )

    result = project.runpytest_inprocess("--durations=0", "-vv")

    result.assert_outcomes(passed=1)
    [seconds] = re.findall(r"([\d.]+)s teardown", result.stdout.str())
    assert float(seconds) < 0.3


@pytest.mark.slow
def test_held_request_does_not_delay_teardown(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from zoolet.testing import hold

        def test_hold(zoolet, zoolet_kazoo):
            zoolet.fault(hold(), "create", client=zoolet_kazoo)
            zoolet_kazoo.create_async("/a")
        """
    )

    result = project.runpytest_inprocess("--durations=0", "-vv")

    result.assert_outcomes(passed=1)
    [seconds] = re.findall(r"([\d.]+)s teardown", result.stdout.str())
    assert float(seconds) < 0.3


# --- projects that do not use the plugin ---


COUNTER: Final = """
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
import pytest
code = pytest.main(sys.argv[1:])
sys.setprofile(None)
assert code == pytest.ExitCode.NO_TESTS_COLLECTED, code
print("calls", calls)
"""


def calls_of(directory: Path, *options: str) -> int:
    """Run pytest in a directory without tests. Return its number of function calls, which no other process affects."""
    words = [*options, *(word for name in OTHERS for word in ("-p", f"no:{name}"))]
    done = subprocess.run([sys.executable, "-c", COUNTER, *words], cwd=directory, capture_output=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.slow
def test_plugin_costs_little_of_pytest_start(tmp_path: Path) -> None:
    calls_of(tmp_path)  # the first run may write bytecode

    with_it, without = calls_of(tmp_path), calls_of(tmp_path, "-p", "no:zoolet")

    assert 0 < with_it / without - 1 <= BUDGET


@pytest.mark.slow
def test_plugin_imports_heavy_modules_only_when_used(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import sys

        def pytest_sessionfinish():
            print("\\nloaded:", *sorted(sys.modules))
        """
    )
    project.makepyfile("def test_it(): pass")

    off = project.runpytest_subprocess("-s", "-p", "no:zoolet", "-p", "no:asyncio")
    on = project.runpytest_subprocess("-s", "-p", "no:asyncio")

    with_it, without = ({*re.findall("^loaded: (.*)", run.stdout.str(), re.M)[0].split()} for run in (on, off))
    extra = with_it - without
    assert "zoolet.testing.plugin" in extra
    assert [name for name in extra if name.startswith(HEAVY)] == []
    assert len(extra) <= 6, extra


def test_inner_pytest_does_not_take_report_of_outer(project: pytest.Pytester) -> None:
    project.makeconftest("pytest_plugins = ['pytester']")
    project.makepyfile(
        """
        def test_outer(zoolet, pytester):
            zoolet.populate({"/outer": b""})
            pytester.makepyfile("def test_inner(zoolet): assert False")
            result = pytester.runpytest_inprocess()
            result.assert_outcomes(failed=1)
            result.stdout.no_fnmatch_line("*/outer*")
            assert False
        """
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["* zoolet *", "tree:", "  /outer b''"])

"""The pytest plugin, in projects of others: small test files that are run by a pytest of their own."""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

DEADLINE_S: Final = 60.0  # only ever reached on failure
BUDGET_S: Final = 0.020
PAIRS: Final = 5
OTHERS: Final = ("cacheprovider", "hypothesispytest", "asyncio", "xdist")
HEAVY: Final = ("asyncio", "kazoo", "msgpack", "uvloop", "zoolet.protocol", "zoolet.server.core", "zoolet.server.net")
LEAVES_ALL_KINDS: Final = """
from kazoo.client import KazooClient
import pytest

@pytest.fixture(scope="module")
def client(zoolet_server):
    client = KazooClient(zoolet_server.hosts)
    yield client
    client.stop()
    client.close()

def test_leaves(zoolet, client):
    client.start()
    client.create("/here", ephemeral=True)
    client.Lock("/lock").acquire()
    client.get("/here", watch=print)

def test_is_next(zoolet):
    assert not zoolet.sessions()
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project that says nothing of zoolet; its options are about plugins that this test environment has."""
    pytester.makeini(
        """
        [pytest]
        addopts = -p no:hypothesispytest
        asyncio_default_fixture_loop_scope = function
        filterwarnings = default
        """
    )
    return pytester


def configured(project: pytest.Pytester, leaks: str) -> pytest.Pytester:
    """Set ``zoolet_leaks``."""
    ini = project.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nzoolet_leaks = {leaks}\n")
    return project


def report_of(project: pytest.Pytester, source: str) -> str:
    """Run tests of which one fails; return what the report says of zoolet, without session ids."""
    project.makepyfile(source)
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    found = re.search(r"-+ zoolet -+\n(.*?)\n(?:=|_|-)", result.stdout.str(), re.DOTALL)
    assert found is not None, result.stdout.str()
    return re.sub(r"0x[0-9a-f]{6,}", "0xSESSION", found[1])


# --- fixtures ---


def test_every_fixture_works_with_no_option(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_server(zoolet, zoolet_server):
            assert zoolet is zoolet_server
            assert zoolet.tree() == {}

        def test_kazoo(zoolet, zoolet_kazoo):
            first, second = zoolet_kazoo(), zoolet_kazoo(timeout=3)
            first.create("/a", b"1")
            assert second.get("/a")[0] == b"1"
            assert {session.timeout for session in zoolet.sessions().values()} == {10, 3}

        def test_kazoo_with_a_chroot(zoolet, zoolet_kazoo):
            zoolet.populate({"/app/a": b"1"})
            assert zoolet_kazoo(zoolet.hosts + "/app").get("/a")[0] == b"1"

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
        from zoolet.server.testing import error

        @pytest.mark.parametrize("number", range(3))
        def test_it(zoolet, zoolet_kazoo, number):
            assert not zoolet.tree()
            assert not zoolet.sessions()
            assert not zoolet.watches()
            assert not zoolet.ops()
            zk = zoolet_kazoo()
            zk.create("/left", ephemeral=True)
            zk.get("/left", watch=print)
            zoolet.fault("create", action=error(-110))
            zoolet.refuse_connections()
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=3)


def test_what_the_factory_and_kazoo_made_is_gone_after_the_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        made = []

        def test_make(zoolet_factory, zoolet_kazoo):
            made.extend([zoolet_factory(), zoolet_factory(), zoolet_kazoo()])

        def test_after(zoolet):
            assert [repr(server) for server in made[:2]] == ["<zoolet Server, stopped>"] * 2
            assert not made[2].connected
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_the_fixtures_work_in_asyncio_tests(project: pytest.Pytester) -> None:
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
                assert await own.wait_for(lambda: own.tree() == {}) is True
            zoolet_factory().populate({"/b": b"2"})
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_they_work_in_unittest_classes(project: pytest.Pytester) -> None:
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
def test_200_tests_pass_on_8_workers(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(200))
        def test_it(zoolet, zoolet_kazoo, number):
            assert zoolet.tree() == {}
            zoolet_kazoo().create("/same", b"%d" % number, ephemeral=True)
            assert zoolet.tree()["/same"].data == b"%d" % number
        """
    )

    project.runpytest_subprocess("-n", "8", timeout=DEADLINE_S).assert_outcomes(passed=200)


@pytest.mark.slow
def test_a_client_that_is_paused_at_the_end_does_not_hold_up_the_teardown(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_pause(zoolet, zoolet_kazoo):
            zoolet.pause(zoolet_kazoo(timeout=1.2))
        """
    )

    result = project.runpytest_inprocess("--durations=0", "-vv")

    result.assert_outcomes(passed=1)
    [seconds] = re.findall(r"([\d.]+)s teardown", result.stdout.str())
    assert float(seconds) < 0.3


# --- the report of a test that fails ---


def test_a_failing_test_shows_what_the_server_knows(project: pytest.Pytester) -> None:
    said = report_of(
        project,
        """
        def test_it(zoolet, zoolet_kazoo):
            zk = zoolet_kazoo()
            zk.create("/a", b"1")
            zk.create("/a/here", ephemeral=True)
            zk.get("/a", watch=print)
            assert zk.exists("/b")
        """,
    )

    assert re.sub(
        r"127.0.0.1:\d+", "ADDRESS", re.sub(r"zxid=0x\w+", "zxid=0xZ", re.sub(r"seed \d+", "seed N", said))
    ) == (
        "seed N\n"
        "tree, as it changed:\n"
        "  + /a b'1'\n"
        "  + /a/here b'' ephemeral\n"
        "sessions:\n"
        "  0xSESSION timeout 10.0 s, ADDRESS, 1 ephemerals\n"
        "watches:\n"
        "  /a data 0xSESSION\n"
        "last 20 operations:\n"
        "  0xSESSION connect -> ok zxid=0xZ\n"
        "  0xSESSION create /a -> ok zxid=0xZ\n"
        "  0xSESSION create /a/here -> ok zxid=0xZ\n"
        "  0xSESSION getData /a -> ok zxid=0xZ\n"
        "  0xSESSION exists /b -> NO_NODE zxid=0xZ"
    )


def test_it_shows_the_last_20_operations_and_which_faults_were_applied(project: pytest.Pytester) -> None:
    said = report_of(
        project,
        """
        import pytest
        from kazoo.exceptions import NoNodeError
        from zoolet.server.testing import error

        def test_it(zoolet, zoolet_kazoo):
            zk = zoolet_kazoo()
            for number in range(30):
                zk.exists(f"/{number}")
            with zoolet.fault("get", action=error(NoNodeError)), pytest.raises(NoNodeError):
                zk.get("/")
            assert False
        """,
    )

    operations = said.partition("last 20 operations:\n")[2].splitlines()
    assert [operation.split()[2] for operation in operations] == [f"/{number}" for number in range(11, 30)] + ["/"]
    assert operations[-1].endswith("[error(NO_NODE)]")


def test_it_says_so_when_there_is_nothing(project: pytest.Pytester) -> None:
    said = report_of(project, "def test_it(zoolet):\n    assert False")

    assert said.count("none") == 4


def test_a_long_value_is_cut(project: pytest.Pytester) -> None:
    said = report_of(project, "def test_it(zoolet):\n    zoolet.populate({'/a': b'x' * 5000})\n    assert False")

    assert f"  + /a b'{'x' * 40}'... (5000 bytes)\n" in said


def test_a_failing_asyncio_test_shows_it_too(project: pytest.Pytester) -> None:
    said = report_of(
        project,
        """
        import pytest

        @pytest.mark.asyncio
        async def test_it(zoolet):
            zoolet.populate({"/a": b"1"})
            assert False
        """,
    )

    assert "  + /a b'1'\n" in said


def test_a_test_that_passes_or_has_no_server_shows_nothing(project: pytest.Pytester) -> None:
    project.makepyfile("def test_passes(zoolet): pass\n\ndef test_fails(): assert False")

    result = project.runpytest_inprocess("-rA")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*- zoolet -*")


def test_a_failing_test_that_has_stopped_the_server_is_still_reported(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(zoolet):\n    zoolet.stop()\n    assert False")

    result = project.runpytest_inprocess()

    assert "INTERNALERROR" not in result.stdout.str()
    assert result.parseoutcomes()["failed"] == 1


def test_a_server_that_was_asked_for_in_the_test_is_shown(project: pytest.Pytester) -> None:
    report_of(project, "def test_it(request):\n    request.getfixturevalue('zoolet')\n    assert False")


# --- zoolet_leaks ---


@pytest.mark.parametrize("leaks", ["", "off"])
def test_leaks_pass_in_silence_unless_asked_for(project: pytest.Pytester, leaks: str) -> None:
    if leaks:
        configured(project, leaks)
    project.makepyfile(LEAVES_ALL_KINDS)

    project.runpytest_inprocess().assert_outcomes(passed=2, warnings=0)


def test_leaks_are_a_warning(project: pytest.Pytester) -> None:
    configured(project, "warn").makepyfile(LEAVES_ALL_KINDS)

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*test_leaves has left at zoolet:",
            "*session 0x* is still open, from 127.0.0.1:*",
            "*ephemeral node /here of session 0x*",
            "*lock contender /lock/*__lock__0000000000 of session 0x*",
            "*data watch on /here of session 0x*",
        ]
    )


def test_leaks_are_an_error_of_the_test_that_leaves_them(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(LEAVES_ALL_KINDS)

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaves*", "*test_leaves has left at zoolet:"])


def test_who_tidies_up_has_no_leaks(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(
        """
        def test_it(zoolet_kazoo):
            zk = zoolet_kazoo()
            zk.create("/here", ephemeral=True)
            zk.create("/stays")
            zk.get("/here", watch=print)
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_the_session_of_a_client_that_the_fixture_stops_is_no_leak(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(
        """
        def test_it(zoolet, zoolet_kazoo):
            zoolet_kazoo()
            zoolet.refuse_connections()
            zoolet.drop("all")
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_another_value_is_named(project: pytest.Pytester) -> None:
    configured(project, "loud").makepyfile("def test_it(zoolet): pass")

    result = project.runpytest_inprocess()

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*zoolet_leaks is 'loud'; it must be one of off, warn, error*"])


# --- projects that do not use it ---


def cpu_of(directory: Path, *options: str) -> float:
    """Run pytest in a directory without tests; return the seconds of CPU it took."""
    words = [sys.executable, "-m", "pytest", *options, *(word for name in OTHERS for word in ("-p", f"no:{name}"))]
    process = subprocess.Popen(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
def test_it_costs_others_at_most_20_ms(tmp_path: Path) -> None:
    cpu_of(tmp_path)  # the first one warms up

    pairs = [(cpu_of(tmp_path), cpu_of(tmp_path, "-p", "no:zoolet")) for _ in range(PAIRS)]

    with_it, without = (statistics.median(side) for side in zip(*pairs, strict=True))
    assert with_it - without <= BUDGET_S, pairs


@pytest.mark.slow
def test_it_imports_nothing_heavy_until_it_is_used(project: pytest.Pytester) -> None:
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
    assert "zoolet.server.testing.plugin" in extra
    assert [name for name in extra if name.startswith(HEAVY)] == []
    assert len(extra) <= 6, extra

"""What the pytest plugin reports: what the server knows when a test fails, and what a test leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient  # what a pytest in this process imports first, it forgets at its end

from zoolet.server.testing.plugin import _write_page

LEAVES_ALL_KINDS: Final = """
from kazoo.client import KazooClient
import pytest

def test_leaves(zoolet):
    client = KazooClient(zoolet.hosts)
    client.start()
    client.create("/here", ephemeral=True)
    client.Lock("/lock").acquire()
    client.get("/here", watch=print)

def test_is_next(zoolet):
    assert not zoolet.sessions()
"""


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


# --- the report of a test that fails ---


def test_a_failing_test_shows_what_the_server_knows(project: pytest.Pytester) -> None:
    output = report_of(
        project,
        """
        def test_it(zoolet, zoolet_kazoo):
            zk = zoolet_kazoo
            zk.create("/a", b"1")
            zk.create("/a/here", ephemeral=True)
            zk.get("/a", watch=print)
            assert zk.exists("/b")
        """,
    )

    for pattern, fixed in (
        (r"127.0.0.1:\d+", "ADDRESS"),
        (r"zxid=0x\w+", "zxid=0xZ"),
        (r"seed \d+", "seed N"),
        (r"\d\.\d s ago", "A s ago"),
        (r"for \d\.\d s", "for O s"),
        (r"in \d+\.\d s", "in E s"),
    ):
        output = re.sub(pattern, fixed, output)
    assert output == (
        "seed N\n"
        "tree:\n"
        "  /a b'1'\n"
        "  /a/here b'' ephemeral\n"
        "sessions:\n"
        "  0xSESSION timeout 10.0 s, ADDRESS, 1 ephemerals, open for O s, last operation: exists /b, A s ago, "
        "expires in E s\n"
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
    output = report_of(
        project,
        """
        import pytest
        from kazoo.exceptions import NoNodeError
        from zoolet.server.testing import error

        def test_it(zoolet, zoolet_kazoo):
            zk = zoolet_kazoo
            for number in range(30):
                zk.exists(f"/{number}")
            with zoolet.fault(error(NoNodeError), "get"), pytest.raises(NoNodeError):
                zk.get("/")
            assert False
        """,
    )

    operations = output.partition("last 20 operations:\n")[2].splitlines()
    assert [operation.split()[2] for operation in operations] == [f"/{number}" for number in range(11, 30)] + ["/"]
    assert operations[-1].endswith("[error(NO_NODE)]")


def test_it_says_so_when_there_is_nothing(project: pytest.Pytester) -> None:
    output = report_of(project, "def test_it(zoolet):\n    assert False")

    assert output.count("none") == 4


def test_a_long_value_is_cut(project: pytest.Pytester) -> None:
    output = report_of(project, "def test_it(zoolet):\n    zoolet.populate({'/a': b'x' * 5000})\n    assert False")

    assert f"  /a b'{'x' * 40}'... (5000 bytes)\n" in output


def test_a_failing_asyncio_test_shows_it_too(project: pytest.Pytester) -> None:
    output = report_of(
        project,
        """
        import pytest

        @pytest.mark.asyncio
        async def test_it(zoolet):
            zoolet.populate({"/a": b"1"})
            assert False
        """,
    )

    assert "  /a b'1'\n" in output


def test_a_test_that_passes_or_has_no_server_shows_nothing(project: pytest.Pytester) -> None:
    project.makepyfile("def test_passes(zoolet): pass\n\ndef test_fails(): assert False")

    result = project.runpytest_subprocess("-rA")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*- zoolet*")


def test_a_failing_test_that_has_stopped_the_server_is_still_reported(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(zoolet):\n    zoolet.stop()\n    assert False")

    result = project.runpytest_inprocess()

    assert "INTERNALERROR" not in result.stdout.str()
    assert result.parseoutcomes()["failed"] == 1


def test_a_server_that_was_asked_for_in_the_test_is_shown(project: pytest.Pytester) -> None:
    report_of(project, "def test_it(request):\n    request.getfixturevalue('zoolet')\n    assert False")


# --- zoolet_leaks ---


def test_leaks_pass_in_silence_if_it_is_asked_for(project: pytest.Pytester) -> None:
    configured(project, "off")
    project.makepyfile(LEAVES_ALL_KINDS)

    project.runpytest_inprocess().assert_outcomes(passed=2, warnings=0)


@pytest.mark.parametrize("leaks", ["", "warn"])
def test_leaks_are_a_warning(project: pytest.Pytester, leaks: str) -> None:
    if leaks:
        configured(project, leaks)
    project.makepyfile(LEAVES_ALL_KINDS)

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
            zk = zoolet_kazoo
            zk.create("/here", ephemeral=True)
            zk.create("/stays")
            zk.get("/here", watch=print)
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_the_session_of_a_client_that_the_fixture_stops_is_no_leak(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(
        """
        def test_it(zoolet, zoolet_kazoo_factory):
            zoolet_kazoo_factory()
            zoolet.refuse_connections()
            zoolet.drop("all")
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_another_value_is_named(project: pytest.Pytester) -> None:
    configured(project, "loud").makepyfile("def test_it(zoolet): pass")

    result = project.runpytest_inprocess()

    assert result.ret != 0
    result.stderr.fnmatch_lines(["*zoolet_leaks is 'loud'; it must be one of off, warn, error*"])


# --- every server ---

FAILS: Final = """
import pytest
from kazoo.client import KazooClient
from zoolet.testing import Server, Simulation, ZooletTestCase, hold

def test_own_block():
    with Server(seed=11) as server:
        server.populate({"/own": b""})
        assert False

def test_factory(zoolet_factory):
    zoolet_factory(seed=12).populate({"/factory": b""})
    assert False

def test_simulation():
    sim = Simulation(seed=13)
    async def main():
        async with sim.server() as server:
            server.populate({"/simulated": b""})
            assert False
    sim.run(main())

class TestCase(ZooletTestCase):
    zoolet_options = {"seed": 14}
    def test_it(self):
        self.zoolet.populate({"/case": b""})
        assert False
"""


def test_a_failing_test_shows_every_server_of_the_process(project: pytest.Pytester) -> None:
    project.makepyfile(FAILS)

    result = project.runpytest_subprocess()

    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    sections = re.findall(r"-+ zoolet -+\n(.*?)\n(?:_|=|-)", text, re.DOTALL)
    assert [re.findall(r"^  (/\w+)", section, re.M)[0] for section in sections] == [
        "/own",
        "/factory",
        "/simulated",
        "/case",
    ]


def test_it_shows_what_is_held_active_and_paused_and_who_waits_for_a_lock(project: pytest.Pytester) -> None:
    output = report_of(
        project,
        """
        from zoolet.testing import hold

        def test_it(zoolet, zoolet_kazoo_factory):
            one, two = zoolet_kazoo_factory(), zoolet_kazoo_factory()
            one.Lock("/lock").acquire()
            zoolet.fault(hold(), "exists", client=two)
            two.exists_async("/held")
            zoolet.wait_for(lambda: "held or delayed" in zoolet.report())
            zoolet.pause(one)
            assert False
        """,
    )

    assert "locks and elections:\n  /lock: 1 contenders, first come first\n    0xSESSION " in output
    assert "requests that are held or delayed:\n  0xSESSION exists /held, by [fault(hold(), op='exists')]\n" in output
    assert "active faults:\n  fault(hold(), op='exists'), 1 hits\n" in output
    assert "paused clients:\n  0xSESSION\n" in output


def test_a_page_for_each_failing_test_if_asked(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("name", ["<b>", "/etc/passwd"])
        def test_it(zoolet, name):
            zoolet.populate({"/a": b"<script>"})
            assert False, name

        def test_passes(zoolet): pass
        """
    )

    result = project.runpytest_inprocess("--zoolet-report", "out/pages")

    pages = sorted((project.path / "out" / "pages").iterdir())
    assert len(pages) == 2
    page = pages[0].read_text()
    assert "<script>" not in page
    assert "/a b&#x27;&lt;script&gt;&#x27;" in page
    assert "AssertionError" in page
    assert not re.search(r'(?:src|href)="', page)
    result.stdout.fnmatch_lines(["*zoolet report*", f"{pages[0].relative_to(project.path)}"])


LEAVES: Final = """
from kazoo.client import KazooClient
from zoolet.testing import Server, ZooletTestCase

clients = []

def leave(server):
    client = KazooClient(server.hosts)
    client.start()
    clients.append(client)

def test_own_block():
    with Server() as server:
        leave(server)

def test_factory(zoolet_factory):
    leave(zoolet_factory())

class TestCase(ZooletTestCase):
    def test_1_leaves(self):
        leave(self.zoolet)

    def test_2_does_not(self):
        pass

def test_the_server_of_the_run_keeps_it(zoolet_server):
    leave(zoolet_server)

def test_later(zoolet_server):
    assert len(zoolet_server.sessions()) == 1

def test_end():
    for client in clients:
        client.stop()
"""


def test_what_is_left_at_any_server_is_the_leak_of_the_test_that_left_it(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(LEAVES)

    result = project.runpytest_subprocess()

    assert re.findall(r"^ERROR \S+::(test_\w+)", result.stdout.str(), re.M) == [
        "test_own_block",
        "test_factory",
        "test_1_leaves",
        "test_the_server_of_the_run_keeps_it",
    ]


def test_a_session_without_a_connection_is_no_leak(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(
        """
        import pytest
        from zoolet.testing import zoolet_schedules, Simulation
        from zoolet.client import Client

        @pytest.mark.asyncio
        async def test_dropped(zoolet, zoolet_client):
            zoolet.drop(zoolet_client)

        @pytest.mark.asyncio
        async def test_stopped(zoolet, zoolet_client, zoolet_kazoo):
            zoolet.stop()

        @zoolet_schedules(30, lose_replies=0.2)
        async def test_lost(server, connect):
            zk = await connect()
            await zk.retry(lambda: zk.exists("/"))
        """
    )

    project.runpytest_subprocess("-W", "default").assert_outcomes(passed=3)


def test_what_a_failing_test_leaves_is_not_reported_too(project: pytest.Pytester) -> None:
    configured(project, "error").makepyfile(
        LEAVES_ALL_KINDS.replace('client.get("/here"', 'assert not client.get("/here"')
    )

    project.runpytest_inprocess().assert_outcomes(failed=1, passed=1)


def test_the_seed_of_a_simulation_is_the_one_to_repeat(project: pytest.Pytester) -> None:
    project.makepyfile(FAILS)

    result = project.runpytest_subprocess("-k", "test_simulation or test_factory", "--zoolet-seed", "5")

    assert re.findall(r"^seed (-?\d+)$", result.stdout.str(), re.M) == ["12", "13"]


def test_a_failing_test_whose_server_is_blocked_is_reported(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import time
        import zoolet.server.testing.run.runner as runner

        runner.CALL_TIMEOUT = 0.1

        def test_blocked(zoolet):
            zoolet._runner._loop.call_soon_threadsafe(time.sleep, 1)
            assert 0

        def test_next(zoolet):
            pass
        """
    )

    result = project.runpytest_subprocess()

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*no report: the server's event loop was blocked for 0.1 s*"])


@pytest.mark.parametrize("folder", ["file", "out"])
def test_a_page_that_cannot_be_written_does_not_end_the_run(project: pytest.Pytester, folder: str) -> None:
    (project.path / "file").write_text("")
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("name", ["a/b", "a-b", "x" * 300, "y" + "x" * 300])
        def test_it(zoolet, name):
            assert False
        """
    )

    result = project.runpytest_subprocess("--zoolet-report", folder)

    result.assert_outcomes(failed=4)
    if folder == "file":
        result.stdout.fnmatch_lines(["cannot write file*"])
    else:
        assert len(list((project.path / "out").iterdir())) == 4


def test_a_page_has_whatever_a_traceback_has(tmp_path: Path) -> None:
    path = _write_page(str(tmp_path), "test", "\udc80 <b>", {"server": "seed 1\ntree:\n  /a"})

    assert "\\udc80 &lt;b&gt;" in Path(path).read_text()


# --- what these tests leave ---


@pytest.fixture(autouse=True)
def clients_that_are_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the clients that tests of leaks leave: they would try to connect for as long as this process runs."""
    started: list[KazooClient] = []
    start = KazooClient.start

    def remember(client: KazooClient, *args: Any, **options: Any) -> None:
        started.append(client)
        start(client, *args, **options)

    monkeypatch.setattr(KazooClient, "start", remember)
    yield
    for client in started:
        client.stop()
        client.close()

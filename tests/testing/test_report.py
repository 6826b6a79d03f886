"""Reports of the pytest plugin: the state of the server when a test fails, and the leftovers of a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient  # imported before an inner pytest, which forgets its own imports at the end
from support.wire import EPHEMERAL, Wire

from zoolet.testing import Server
from zoolet.testing.state.report import write_page

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


def with_leaks_setting(project: pytest.Pytester, leaks: str) -> pytest.Pytester:
    """Set ``zoolet_leaks``."""
    ini = project.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nzoolet_leaks = {leaks}\n")
    return project


def report_of(project: pytest.Pytester, source: str) -> str:
    """Run tests, one of which fails; return zoolet's section of the report, without session ids."""
    project.makepyfile(source)
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    found = re.search(r"-+ zoolet -+\n(.*?)\n(?:=|_|-)", result.stdout.str(), re.DOTALL)
    assert found is not None, result.stdout.str()
    return re.sub(r"0x[0-9a-f]{6,}", "0xSESSION", found[1])


# --- the report of a failing test ---


def test_failing_test_shows_state_of_server(project: pytest.Pytester) -> None:
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
        (r"\+\d\.\d{3} s", "+T s"),
    ):
        output = re.sub(pattern, fixed, output)
    assert output == (
        "seed N\n"
        "tree:\n"
        "  /a b'1'\n"
        "  /a/here b'' ephemeral\n"
        "sessions:\n"
        "  0xSESSION zoolet_kazoo timeout 10.0 s, ADDRESS, 1 ephemerals, open for O s, last operation: exists /b, "
        "A s ago, expires in E s\n"
        "watches:\n"
        "  /a data 0xSESSION\n"
        "last 20 operations:\n"
        "  +T s  zoolet_kazoo  connect -> ok zxid=0xZ\n"
        "  +T s  zoolet_kazoo  create /a b'1' -> ok zxid=0xZ\n"
        "  +T s  zoolet_kazoo  create /a/here -> ok zxid=0xZ\n"
        "  +T s  zoolet_kazoo  getData /a, with a watch -> ok zxid=0xZ\n"
        "  +T s  zoolet_kazoo  exists /b -> NO_NODE zxid=0xZ"
    )


def test_report_shows_last_operations_and_faults(project: pytest.Pytester) -> None:
    output = report_of(
        project,
        """
        import pytest
        from kazoo.exceptions import NoNodeError
        from zoolet.testing import error

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
    assert [operation.split()[4] for operation in operations] == [f"/{number}" for number in range(11, 30)] + ["/"]
    assert operations[-1].endswith("[error(NO_NODE)]")


def test_sessions_show_fixture_names_of_clients(project: pytest.Pytester) -> None:
    output = report_of(
        project,
        """
        def test_it(zoolet, zoolet_kazoo, zoolet_kazoo_factory):
            other = zoolet_kazoo_factory()
            zoolet_kazoo.create("/first")
            zoolet.expire(zoolet_kazoo)
            zoolet.wait_for_client(zoolet_kazoo)
            zoolet_kazoo.create("/second", b"x" * 100)
            other.create("/third")
            zoolet.create("/fourth", ephemeral=True)
            assert False
        """,
    )

    creates = re.findall(r"s  (\w+ ?\d?)  create2? (/\w+ ?.*) -> ok", output)
    assert creates == [
        ("zoolet_kazoo", "/first"),
        ("zoolet_kazoo", f"/second b'{'x' * 40}'... (100 bytes)"),
        ("zoolet_kazoo 2", "/third"),
    ]
    assert "0xSESSION timeout" in output  # the session of create()


def test_empty_sections_of_report_contain_none(project: pytest.Pytester) -> None:
    output = report_of(project, "def test_it(zoolet):\n    assert False")

    assert output.count("none") == 4


def test_long_data_is_truncated_in_report(project: pytest.Pytester) -> None:
    output = report_of(project, "def test_it(zoolet):\n    zoolet.populate({'/a': b'x' * 5000})\n    assert False")

    assert f"  /a b'{'x' * 40}'... (5000 bytes)\n" in output


def test_failing_asyncio_test_shows_state(project: pytest.Pytester) -> None:
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


def test_passing_or_serverless_test_has_no_report(project: pytest.Pytester) -> None:
    project.makepyfile("def test_passes(zoolet): pass\n\ndef test_fails(): assert False")

    result = project.runpytest_subprocess("-rA")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*- zoolet*")


def test_failure_with_stopped_server_is_reported(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(zoolet):\n    zoolet.stop()\n    assert False")

    result = project.runpytest_inprocess()

    assert "INTERNALERROR" not in result.stdout.str()
    assert result.parseoutcomes()["failed"] == 1


def test_server_requested_in_test_is_shown(project: pytest.Pytester) -> None:
    report_of(project, "def test_it(request):\n    request.getfixturevalue('zoolet')\n    assert False")


# --- zoolet_leaks ---


def test_leaks_are_ignored_if_configured(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "off")
    project.makepyfile(LEAVES_ALL_KINDS)

    project.runpytest_inprocess().assert_outcomes(passed=2, warnings=0)


@pytest.mark.parametrize("leaks", ["", "warn"])
def test_leaks_cause_warning_by_default(project: pytest.Pytester, leaks: str) -> None:
    if leaks:
        with_leaks_setting(project, leaks)
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


def test_leak_fails_causing_test_if_configured(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(LEAVES_ALL_KINDS)

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_leaves*", "*test_leaves has left at zoolet:"])


def test_test_that_cleans_up_has_no_leaks(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(
        """
        def test_it(zoolet_kazoo):
            zk = zoolet_kazoo
            zk.create("/here", ephemeral=True)
            zk.create("/stays")
            zk.get("/here", watch=print)
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_client_stopped_by_fixture_is_not_a_leak(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(
        """
        def test_it(zoolet, zoolet_kazoo_factory):
            zoolet_kazoo_factory()
            zoolet.refuse_connections()
            zoolet.drop("all")
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_invalid_value_of_zoolet_leaks_is_refused(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "loud").makepyfile("def test_it(zoolet): pass")

    result = project.runpytest_inprocess()

    assert result.ret != 0
    result.stderr.fnmatch_lines(["*zoolet_leaks must be one of off, warn, error, not 'loud'*"])


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


def test_failing_test_shows_every_server_of_process(project: pytest.Pytester) -> None:
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


def test_report_shows_held_requests_and_paused_clients(project: pytest.Pytester) -> None:
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
    fault = "fault(hold(), op='exists', client=0xSESSION)"
    assert re.search(rf"held or delayed:\n  0xSESSION exists /held, by \[{re.escape(fault)}\], for \d+\.\d s\n", output)
    assert f"active faults:\n  {fault}, 1 hits\n" in output
    assert "paused clients:\n  0xSESSION\n" in output


def test_report_sorts_contenders_around_sequence_overflow(server: Server, wire: Wire) -> None:
    server.populate({"/lock": b""})
    for number in ("-2147483648", "2147483647", "-2147483647", "2147483646"):
        wire.create(f"/lock/a__lock__{number}", EPHEMERAL)

    text = server.report().partition("first come first")[2]

    assert re.findall("lock__(.*)", text)[:4] == ["2147483646", "2147483647", "-2147483648", "-2147483647"]


def test_option_writes_page_for_each_failing_test(project: pytest.Pytester) -> None:
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
    result.stdout.fnmatch_lines(["*zoolet report*", f"{pages[0]}"])


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


def test_leak_is_reported_by_test_that_caused_it(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(LEAVES)

    result = project.runpytest_subprocess()

    assert re.findall(r"^ERROR \S+::(test_\w+)", result.stdout.str(), re.M) == [
        "test_own_block",
        "test_factory",
        "test_1_leaves",
        "test_the_server_of_the_run_keeps_it",
    ]


def test_session_without_connection_is_not_a_leak(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(
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


def test_leak_of_failing_test_is_not_reported(project: pytest.Pytester) -> None:
    with_leaks_setting(project, "error").makepyfile(
        LEAVES_ALL_KINDS.replace('client.get("/here"', 'assert not client.get("/here"')
    )

    project.runpytest_inprocess().assert_outcomes(failed=1, passed=1)


def test_report_shows_repeatable_seed_of_simulation(project: pytest.Pytester) -> None:
    project.makepyfile(FAILS)

    result = project.runpytest_subprocess("-k", "test_simulation or test_factory", "--zoolet-seed", "5")

    assert re.findall(r"^seed (-?\d+)$", result.stdout.str(), re.M) == ["12", "13"]


def test_failing_test_with_blocked_server_is_reported(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import threading
        import pytest
        import zoolet.testing.run.runner as runner

        runner.CALL_TIMEOUT_SECONDS = 0.1

        @pytest.fixture
        def blocked(zoolet):
            free = threading.Event()
            zoolet._runner._loop.call_soon_threadsafe(free.wait)
            yield
            free.set()

        def test_blocked(blocked):
            assert 0

        def test_next(zoolet):
            pass
        """
    )

    result = project.runpytest_subprocess()

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*no report: the server's event loop was blocked for 0.1 s*"])


@pytest.mark.parametrize("folder", ["file", "out"])
def test_unwritable_page_does_not_stop_run(project: pytest.Pytester, folder: str) -> None:
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
        result.stdout.fnmatch_lines(["cannot write */file*"])
    else:
        assert len(list((project.path / "out").iterdir())) == 4


def test_page_of_failing_test_shows_any_traceback(tmp_path: Path) -> None:
    path = write_page(str(tmp_path), "test", "\udc80 <b>", {"server": "seed 1\ntree:\n  /a"})

    assert "\\udc80 &lt;b&gt;" in Path(path).read_text()


# --- leftovers of these tests ---


@pytest.fixture(autouse=True)
def clients_that_are_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the clients left by tests of leaks, which would try to connect as long as this process runs."""
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

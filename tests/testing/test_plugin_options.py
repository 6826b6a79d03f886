"""The options of the pytest plugin: ini file, command line, markers, scopes, and the environment."""

from __future__ import annotations

import re

import kazoo.client  # noqa: F401 - what a pytest in this process imports first, it forgets at its end
import pytest

from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode


def ini(project: pytest.Pytester, *lines: str) -> pytest.Pytester:
    """Add lines to the ini file."""
    path = project.path / "tox.ini"
    path.write_text("\n".join([path.read_text().rstrip(), *lines]) + "\n")
    return project


def test_ini_options_apply_to_each_fixture_server(project: pytest.Pytester) -> None:
    ini(project, "zoolet_clock = manual", "zoolet_compat = 3.8", "zoolet_config =", "    maxSessionTimeout = 4000")
    project.makepyfile(
        """
        from zoolet.server.core.compat import BY_NAME

        def test_it(zoolet, zoolet_kazoo_factory):
            zoolet_kazoo_factory(timeout=60)
            assert [session.timeout for session in zoolet.sessions().values()] == [4.0]
            zoolet.advance(5)
            assert not zoolet.sessions()
            assert zoolet._config.settings.compat is BY_NAME["3.8"]
        """
    )

    project.runpytest_inprocess("-W", "ignore").assert_outcomes(passed=1)


def test_command_line_seed_applies_to_all_fixtures(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        def test_it(zoolet, zoolet_factory, zoolet_server):
            assert zoolet.seed == zoolet_factory().seed == zoolet_server.seed == 77
            assert zoolet_factory(seed=5).seed == 5

        @pytest.mark.zoolet(seed=9)
        def test_marked(zoolet):
            assert zoolet.seed == 9
        """
    )

    project.runpytest_inprocess("--zoolet-seed", "77").assert_outcomes(passed=2)


def test_nearest_marker_applies_and_config_settings_are_merged(project: pytest.Pytester) -> None:
    ini(project, "zoolet_config = maxSessionTimeout=9000")
    project.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.zoolet(seed=1, clock="manual", config={"minSessionTimeout": 2000})

        @pytest.mark.zoolet(seed=2)
        class TestIt:
            @pytest.mark.zoolet(seed=3, config={"maxSessionTimeout": 5000})
            def test_method(self, zoolet, zoolet_kazoo_factory):
                assert zoolet.seed == 3
                for timeout in (1, 60):
                    zoolet_kazoo_factory(timeout=timeout)
                assert sorted(session.timeout for session in zoolet.sessions().values()) == [2.0, 5.0]

            def test_other(self, zoolet):
                assert zoolet.seed == 2
                zoolet.advance(1)
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (
            "seeds=5",
            "@pytest.mark.zoolet has seeds; expected keyword arguments: config, clock, compat, seed, tls, data_dir, "
            "initial_data,",
        ),
        ("'manual'", "@pytest.mark.zoolet has 'manual'; expected keyword arguments: config"),
        ("clock='fast'", "the options of the fixture zoolet are invalid: clock must be 'real' or 'manual', not 'fast'"),
        ("config={'tickTim': 5}", "did you mean tickTime"),
    ],
)
def test_invalid_marker_is_refused(project: pytest.Pytester, marker: str, message: str) -> None:
    project.makepyfile(f"import pytest\n\n@pytest.mark.zoolet({marker})\ndef test_it(zoolet): pass")

    result = project.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    assert message in result.stdout.str()


@pytest.mark.parametrize("line", ["zoolet_clock = fast", "zoolet_compat = 2", "zoolet_scope = day", "zoolet_leaks = x"])
def test_invalid_ini_option_is_refused(project: pytest.Pytester, line: str) -> None:
    ini(project, line).makepyfile("def test_it(): pass")

    result = project.runpytest_inprocess()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    name, _, value = line.split()
    assert f"{name} must be one of " in result.stderr.str()
    assert f", not {value!r}" in result.stderr.str()


def test_zoolet_config_line_without_equals_sign_is_refused(project: pytest.Pytester) -> None:
    ini(project, "zoolet_config = tickTime 5").makepyfile("def test_it(zoolet): pass")

    result = project.runpytest_inprocess()

    assert "invalid line 'tickTime 5' in zoolet_config; expected key=value" in result.stdout.str()


def test_tests_within_wider_scope_share_server_and_state(project: pytest.Pytester) -> None:
    ini(project, "zoolet_scope = module").makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.zoolet(seed=4)

        def test_first(zoolet):
            zoolet.populate({"/a": b""})

        def test_second(zoolet, zoolet_kazoo):
            assert zoolet_kazoo.exists("/a")
            assert zoolet.seed == 4
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_marker_of_test_with_shared_server_is_refused(project: pytest.Pytester) -> None:
    ini(project, "zoolet_scope = module").makepyfile(
        "import pytest\n\n@pytest.mark.zoolet(seed=4)\ndef test_it(zoolet): pass"
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    assert re.search(r"::test_it has @pytest\.mark\.zoolet, but with zoolet_scope = module", result.stdout.str())


def test_marker_with_run_wide_server_is_usage_error(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(seed=1)
        def test_it(zoolet_server):
            pass
        """
    )
    result = project.runpytest_subprocess()
    assert "test_it has @pytest.mark.zoolet, which is for the fixture zoolet" in result.stdout.str()
    result.assert_outcomes(errors=1)


def test_class_scope_allows_marker_on_plain_function(project: pytest.Pytester) -> None:
    ini(project, "zoolet_scope = class").makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(seed=4)
        def test_it(zoolet):
            assert zoolet.seed == 4

        @pytest.mark.zoolet(seed=5)
        class TestIt:
            def test_method(self, zoolet):
                assert zoolet.seed == 5

            @pytest.mark.zoolet(seed=6)
            def test_marked(self, zoolet):
                pass
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2, errors=1)


def test_environment_variables_have_hosts_of_running_server(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOSTS", "before")
    monkeypatch.delenv("ZOOLET_HOSTS", raising=False)
    project.makepyfile(
        """
        import os

        def test_with(zoolet):
            assert os.environ["ZOOKEEPER_HOSTS"] == os.environ["ZOOLET_HOSTS"] == zoolet.hosts

        def test_without():
            assert os.environ["ZOOKEEPER_HOSTS"] == "before"
            assert "ZOOLET_HOSTS" not in os.environ
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_monkeypatch_does_not_restore_address_of_stopped_server(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os
        import pytest

        @pytest.mark.parametrize("order", ["before", "after"])
        def test_patched(order, monkeypatch, request):
            zoolet = request.getfixturevalue("zoolet")
            monkeypatch.setenv("ZOOKEEPER_HOSTS", f"{zoolet.hosts}/app")

        def test_without():
            assert not {"ZOOKEEPER_HOSTS", "ZOOLET_HOSTS"} & set(os.environ)
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=3)


def test_report_is_written_below_first_folder(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_it(zoolet, monkeypatch, tmp_path):
            monkeypatch.chdir(tmp_path)
            assert False
        """
    )

    project.runpytest_inprocess("--zoolet-report", "reports").assert_outcomes(failed=1)
    assert len(list((project.path / "reports").iterdir())) == 1


def test_additional_fixture_without_plugin_raises(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from zoolet.testing import zoolet_fixture

        shared = zoolet_fixture()

        def test_it(shared): ...
        """
    )

    result = project.runpytest_subprocess("-p", "no:zoolet")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["zoolet_fixture() requires zoolet's pytest plugin, which is off; remove *"])


def test_stuck_client_does_not_block_end_of_test(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.testing.pytest.fixtures.STOP_S", 0.05)
    project.makepyfile(
        """
        import threading

        released = threading.Event()

        def test_it(zoolet, zoolet_kazoo, zoolet_kazoo_factory):
            called = threading.Event()

            def wait(event):
                called.set()
                released.wait()

            zoolet_kazoo_factory().exists("/a", watch=wait)
            zoolet_kazoo.create("/a")
            called.wait()

        def test_end():
            released.set()
        """
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*zoolet_kazoo 2 did not stop within 0.05 s; *"])


def test_server_starts_with_data_directory(project: pytest.Pytester) -> None:
    (project.path / "data").mkdir()
    nodes = [StoredNode(path, b"1", -1, 1, 1, 0, 0, 0, 0, 0, 0, 1) for path in ("", "/app", "/app/config")]
    (project.path / "data" / "snapshot.7").write_bytes(b"".join(encode(Snapshot(7, nodes))))
    (project.path / "wrong").mkdir()
    (project.path / "wrong" / "snapshot.7").write_bytes(b"x")
    ini(project, "zoolet_initial_data = data").makepyfile(
        """
        import pytest

        def test_it(zoolet, zoolet_kazoo):
            assert zoolet_kazoo.get("/app/config")[0] == b"1"
            assert zoolet.zxid() > 7

        @pytest.mark.zoolet(initial_data=None)
        def test_without(zoolet):
            assert not zoolet.tree()

        @pytest.mark.zoolet(initial_data="wrong")
        def test_wrong(zoolet):
            pass
        """
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=2, errors=1)
    assert "the options of the fixture zoolet are invalid: wrong: no snapshot can be used" in result.stdout.str()


def test_marker_applies_to_factory_and_tls_clients(project: pytest.Pytester) -> None:
    pytest.importorskip("cryptography")
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(tls=True)
        def test_kazoo(zoolet, zoolet_kazoo):
            zoolet_kazoo.create("/a")

        @pytest.mark.zoolet(tls=True)
        @pytest.mark.asyncio
        async def test_ours(zoolet, zoolet_client):
            await zoolet_client.create("/a")

        def test_another(zoolet_factory, zoolet_kazoo_factory):
            zoolet_kazoo_factory(zoolet_factory(tls=True).hosts).create("/a")

        @pytest.mark.zoolet(clock="manual")
        def test_factory(zoolet_factory):
            zoolet_factory().advance(5)
        """
    )

    # An inner pytest in this process forgets its own imports at the end, but cryptography cannot be imported again.
    project.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=4)


# --- an additional server, and recordings ---


def test_additional_fixture_has_own_scope_and_options(project: pytest.Pytester) -> None:
    ini(project, "zoolet_config = tickTime=100")
    project.makepyfile(
        """
        from zoolet.testing import zoolet_fixture

        shared = zoolet_fixture(scope="module", config={"maxSessionTimeout": 700}, seed=5)

        def test_one(shared, zoolet):
            assert shared.hosts != zoolet.hosts and shared.seed == 5
            assert shared._config.settings.max_session_timeout == 700
            assert shared._config.settings.tick_time == 100
            shared.populate({"/a": b""})

        def test_two(shared):
            assert "/a" in shared.tree()
        """
    )

    project.runpytest_inprocess().assert_outcomes(passed=2)


WITH_ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
RECORDED = """
import asyncio
import pytest

@pytest.mark.zoolet(recording=True)
@pytest.mark.parametrize("name", ["a", "b/c"])
def test_it(zoolet, zoolet_kazoo, name):
    zoolet_kazoo.ensure_path("/a")
    assert zoolet_kazoo.create("/a/n-", name.encode(), sequence=True) == "/a/n-0000000000"

@pytest.mark.zoolet(recording="session.zoolet")
async def test_with_our_client(zoolet_client):
    await zoolet_client.create("/b")
"""


def test_first_run_is_recorded_and_next_run_replays_it(project: pytest.Pytester) -> None:
    test = project.makepyfile(test_recorded=RECORDED)
    project.runpytest_inprocess(*WITH_ASYNCIO).assert_outcomes(passed=3)
    names = {path.name for path in project.path.glob("*.zoolet")}
    assert {name.rpartition("-")[0] for name in names} == {
        "", "test_recorded.py--test_it-a-", "test_recorded.py--test_it-b-c-"
    }  # fmt: skip
    assert "session.zoolet" in names

    project.runpytest_inprocess(*WITH_ASYNCIO).assert_outcomes(passed=3)
    test.write_text(RECORDED.replace("name.encode()", "b'other'").replace("create('/b')", "tree()"))
    result = project.runpytest_inprocess(*WITH_ASYNCIO)
    result.stdout.fnmatch_lines(["*these requests were not recorded:*"])
    result.stdout.no_fnmatch_line("*closeSession*")
    result.assert_outcomes(failed=2, errors=2, passed=1)


@pytest.mark.slow
def test_random_lock_names_are_replayed(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(recording=True)
        def test_two(zoolet, zoolet_kazoo_factory):
            one, other = zoolet_kazoo_factory(), zoolet_kazoo_factory()
            first, second = one.Lock("/lock", "one"), other.Lock("/lock", "other")
            assert first.acquire()
            assert not second.acquire(blocking=False)
            assert first.contenders() == ["one"]
            first.release()
            assert second.acquire()
            second.release()

        @pytest.mark.zoolet(recording=True)
        async def test_ours(zoolet, zoolet_client):
            async with zoolet_client.lock("/lock"):
                pass
        """
    )
    project.runpytest_inprocess(*WITH_ASYNCIO).assert_outcomes(passed=2)
    assert len(list(project.path.glob("*.zoolet"))) == 2
    project.runpytest_inprocess(*WITH_ASYNCIO).assert_outcomes(passed=2)


@pytest.mark.parametrize(("test", "message"), [("zoolet.tree()", "replays a recording has no 'tree'"), ("", "")])
def test_replaying_server_reports_missing_methods(project: pytest.Pytester, test: str, message: str) -> None:
    marked = "import pytest\n@pytest.mark.zoolet(recording=True)\ndef test_it(zoolet):\n    "
    project.makepyfile(test_it=marked + "pass")
    project.runpytest_inprocess().assert_outcomes(passed=1)
    (project.path / "test_it.py").write_text(marked + (test or "assert zoolet.hosts"))
    result = project.runpytest_inprocess()
    assert message in result.stdout.str()
    result.assert_outcomes(failed=bool(test), passed=not test)


def test_recording_needs_file_name(project: pytest.Pytester) -> None:
    project.makepyfile("import pytest\n@pytest.mark.zoolet(recording=5)\ndef test_it(zoolet): pass")
    project.runpytest_inprocess().stdout.fnmatch_lines(["*recording=5; expected the name of a file, or True*"])


def test_failing_run_is_not_recorded(project: pytest.Pytester) -> None:
    project.makepyfile(RECORDED + "    assert False\n")
    project.runpytest_inprocess(*WITH_ASYNCIO).assert_outcomes(failed=1, passed=2)
    assert not (project.path / "session.zoolet").exists()


def test_marker_without_fixture_causes_warning(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.zoolet(seed=5)
        def test_without(): ...

        @pytest.mark.zoolet(seed=5)
        def test_by_name(request):
            assert request.getfixturevalue("zoolet").seed == 5

        @pytest.mark.zoolet(seed=5)
        class TestGroup:
            def test_of_a_group(self): ...
        """
    )

    result = project.runpytest_inprocess()

    result.assert_outcomes(passed=3, warnings=1)
    result.stdout.fnmatch_lines(["*::test_without has @pytest.mark.zoolet, but no fixture reads it*"])


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["zoolet_kazoo", "zoolet_kazoo_factory"])
def test_missing_kazoo_is_reported_in_one_sentence(project: pytest.Pytester, fixture: str) -> None:
    project.makepyfile(
        f"""
        import sys

        sys.modules["kazoo.client"] = None  # what an import of a missing module finds

        def test_it({fixture}): ...
        """
    )

    result = project.runpytest_subprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["zoolet_kazoo and zoolet_kazoo_factory require kazoo: pip install kazoo"])
    result.stdout.no_fnmatch_line("*fixtures.py*")

"""``zoolet_client``: a connected client for asyncio tests, and a clear message if they cannot be run."""

from __future__ import annotations

import importlib.util

import pytest

from zoolet.client import Client, State
from zoolet.testing import Server


async def test_client_is_connected_to_server_of_test(zoolet: Server, zoolet_client: Client) -> None:
    await zoolet_client.create("/a", b"1")

    assert zoolet_client.state is State.CONNECTED
    assert zoolet.tree()["/a"].data == b"1"


async def test_fixture_client_is_accepted_by_expire(zoolet: Server, zoolet_client: Client) -> None:
    await zoolet_client.create("/e", ephemeral=True)

    zoolet.expire(zoolet_client)

    assert "/e" not in zoolet.tree()


async def test_paused_client_does_not_delay_end(zoolet: Server, zoolet_client: Client) -> None:
    zoolet.pause(zoolet_client)


def test_strict_mode_works_and_leaves_no_session(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nasyncio_mode = strict\nzoolet_leaks = error\nasyncio_default_fixture_loop_scope = function"
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.asyncio
        async def test_it(zoolet_client):
            await zoolet_client.create("/e", ephemeral=True)
        """
    )

    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_error_names_missing_pytest_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(zoolet_client): pass")

    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:anyio")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*require a plugin: pip install pytest-asyncio*"])


needs_anyio = pytest.mark.skipif(importlib.util.find_spec("anyio") is None, reason="anyio is not installed")


@needs_anyio
@pytest.mark.parametrize("plugins", [(), ("-p", "no:asyncio")], ids=["with pytest-asyncio", "without"])
def test_fixtures_work_with_anyio_plugin(pytester: pytest.Pytester, plugins: tuple[str, ...]) -> None:
    pytester.makeini("[pytest]\nzoolet_leaks = error\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_it(zoolet, zoolet_client, zoolet_client_factory):
            other = await zoolet_client_factory(timeout=3.0)
            await zoolet_client.create("/a", b"1")
            assert (await other.get("/a"))[0] == b"1"
            assert len(zoolet.sessions()) == 2
        """
    )

    pytester.runpytest_subprocess("-W", "default", *plugins).assert_outcomes(passed=1)


@needs_anyio
def test_trio_backend_is_refused_with_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "trio"

        def test_it(anyio_backend, zoolet_client): pass
        """
    )

    result = pytester.runpytest_subprocess("-W", "default")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*zoolet_client needs asyncio*"])


def test_client_belongs_to_loop_of_test(project: pytest.Pytester) -> None:
    code = """
        import asyncio
        import pytest
        from zoolet.testing import zoolet_fixture

        loops = {}

        class TestAll:
    """
    for scope in ("function", "class", "module", "session"):
        for number in (1, 2):
            code += f"""
            @pytest.mark.asyncio(loop_scope="{scope}")
            async def test_{scope}_{number}(self, zoolet_client, zoolet_client_factory):
                await zoolet_client.create("/a")
                assert await (await zoolet_client_factory()).exists("/a")
                loops.setdefault("{scope}", set()).add(asyncio.get_running_loop())
    """
    code += """
        def test_loops():
            assert {scope: len(found) for scope, found in loops.items()} == {
                "function": 2, "class": 1, "module": 1, "session": 1}
    """
    project.makepyfile(code)

    project.runpytest_inprocess().assert_outcomes(passed=9)


def test_client_belongs_to_default_loop_of_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        async def early(): ...

        async def test_it(early, zoolet_client):
            await zoolet_client.create("/a")
        """
    )
    scopes = [("-o", f"asyncio_default_{kind}_loop_scope=session") for kind in ("test", "fixture")]

    result = project.runpytest_inprocess("-o", "asyncio_mode=auto", *scopes[0], *scopes[1])

    result.assert_outcomes(passed=1)

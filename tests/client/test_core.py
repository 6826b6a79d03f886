"""The core of a client: views that share it without copies, background tasks, listeners, statistics."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from support.simulation import Connect, make_client, run_simulation, simulate, with_client

from zoolet.client import AuthFailedError, Client, ClosedError, SessionExpiredError, State, serializers
from zoolet.protocol.errors import NoWatcherError
from zoolet.testing import Server, Simulation

# --- views ---


async def test_views_differ_only_in_serializer_and_timeout(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    typed = zk.with_serializer(serializers.json)
    hasty = typed.with_operation_timeout(0.0)

    await typed.create("/a", {"x": 1}, ephemeral=True)

    assert (await zk.get("/a"))[0] == b'{"x":1}'
    assert (await hasty.get("/a"))[0] == {"x": 1}
    assert {view.session_id for view in (zk, typed, hasty)} == set(server.sessions())
    assert zk.statistics() == typed.statistics() == hasty.statistics()
    assert zk._core is typed._core is hasty._core
    assert (zk.serializer, typed.serializer, hasty.serializer) == (
        serializers.raw,
        serializers.json,
        serializers.json,
    )


def test_view_made_before_start_is_connected_with_its_client() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        client = make_client(server)
        view = client.with_serializer(serializers.json)
        async with client:
            assert view.state is State.CONNECTED
            assert await view.create("/a", [1]) == "/a"
            with pytest.raises(RuntimeError, match="has already been started"):
                await view.start()

    simulate(main)


def test_client_view_stores_only_core_and_its_own_settings() -> None:
    view = Client("127.0.0.1:1").with_operation_timeout(1.0)
    slots = [slot for kind in type(view).__mro__ for slot in getattr(kind, "__slots__", ())]

    assert set(slots) == {"_acl", "_core", "_of_recipe", "_operation_timeout", "_owner", "_recipe_view", "_serializer"}
    assert not hasattr(view, "__dict__")


async def test_watch_of_one_view_is_removed_through_another(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    view = zk.with_operation_timeout(1.0)
    async with view.watch("/a"):
        await zk.remove_watches("/a")

        assert not server.watches()
        assert not await view.check_watches("/a")
        with pytest.raises(NoWatcherError):
            await view.remove_watches("/a")


async def test_server_watch_stays_while_any_view_uses_it(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    view = zk.with_serializer(serializers.json)
    first, second = zk.watch("/a"), view.watch("/a")
    await first.__aenter__()
    await second.__aenter__()

    await first.__aexit__(None, None, None)
    left = len(server.watches())
    await second.__aexit__(None, None, None)

    assert (left, len(server.watches())) == (1, 0)


async def test_closing_one_view_closes_all(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    typed, hasty = zk.with_serializer(serializers.json), zk.with_operation_timeout(0.0)
    states = zk.states()
    task = zk._core.spawn(asyncio.Event().wait())

    await hasty.aclose()

    assert not server.sessions()
    assert [state async for state in states] == [State.CONNECTED, State.CLOSED]
    assert task.cancelled()
    for view in (zk, typed, hasty):
        assert isinstance(view.terminal_error, ClosedError)
        with pytest.raises(ClosedError):
            view.get("/")


async def test_credential_of_view_is_sent_on_reconnect(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    view = zk.with_operation_timeout(5.0)
    states = zk.states()
    await view.add_auth("digest", b"bob:secret")

    server.drop(zk)
    while await anext(states) is not State.SUSPENDED:
        pass

    assert ("digest", "bob") in [(info.scheme, info.user) for info in await zk.who_am_i()]


class Listener:
    """A listener that collects the states of a client, and raises an error for the states in *fails_for*."""

    def __init__(self, fails_for: tuple[State, ...] = ()) -> None:
        self.states: list[State] = []
        self.fails_for = fails_for

    def on_state(self, state: State) -> None:
        """Receive a state."""
        self.states.append(state)
        if state in self.fails_for:
            raise TypeError("a defect in a listener")


async def test_state_listener_of_view_gets_each_state_once(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    listener = Listener()
    zk.with_operation_timeout(1.0)._core.add_listener(listener)
    states = zk.states()

    server.drop(zk)
    while await anext(states) is not State.SUSPENDED:
        pass
    await zk.wait_for(State.CONNECTED)
    await zk.aclose()

    assert listener.states == [State.SUSPENDED, State.CONNECTED, State.CLOSED]


def test_error_of_state_listener_is_logged_and_isolated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(server: Server, zk: Client) -> None:
        failing, other = Listener((State.SUSPENDED, State.LOST, State.CONNECTED)), Listener()
        zk._core.add_listener(failing)
        zk._core.add_listener(other)
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.LOST)
        server.accept_connections()
        await zk.wait_for(State.CONNECTED)
        await zk.create("/a")

        assert failing.states == other.states == [State.SUSPENDED, State.LOST, State.CONNECTED]
        assert zk.statistics().keeps_connecting

    with_client(main)

    assert [record.name for record in caplog.records if record.exc_info is not None] == ["zoolet.client"] * 3
    assert "a defect in a listener" in caplog.text


# --- background tasks ---


async def failing() -> None:
    """Fail with an error that no request raises."""
    await asyncio.sleep(0)
    raise TypeError("a defect")


async def test_failure_of_background_task_fails_owner(embedded: Client, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = []

    task = embedded._core.spawn(failing(), on_failure=failures.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.name == "zoolet.client"
    assert "Traceback" in caplog.text
    assert "in failing" in caplog.text
    assert f"a background task of {embedded!r} failed" in caplog.text
    assert [str(error) for error in failures] == ["a defect"]
    assert embedded.statistics().background_tasks == 0
    assert await embedded.exists("/") is not None


@pytest.mark.parametrize("error", [ClosedError(), SessionExpiredError()], ids=["closed", "expired"])
async def test_background_task_ended_by_session_loss_logs_no_error(
    embedded: Client, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    failures: list[Exception] = []

    async def end() -> None:
        raise error

    task = embedded._core.spawn(end(), on_failure=failures.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert (task.result(), failures, caplog.records) == (None, [], [])


async def test_server_error_in_background_task_fails_owner(embedded: Client) -> None:
    failures: list[Exception] = []

    async def refused() -> None:
        raise AuthFailedError

    task = embedded._core.spawn(refused(), on_failure=failures.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert isinstance(failures[0], AuthFailedError)


async def test_cancelled_background_task_is_not_a_failure(embedded: Client, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = []

    task = embedded._core.spawn(asyncio.Event().wait(), on_failure=failures.append)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert (failures, caplog.records) == ([], [])
    assert embedded.statistics().background_tasks == 0


async def test_close_cancels_unstarted_background_task(embedded: Client) -> None:
    task = embedded._core.spawn(failing())  # a coroutine that is neither awaited nor closed would cause a warning

    await embedded.aclose()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_background_task_returns_result_of_coroutine(embedded: Client) -> None:
    assert await embedded._core.spawn(asyncio.sleep(0, "done")) == "done"


# --- statistics ---


def test_statistics_count_waiting_and_sent_requests() -> None:
    async def main(server: Server, zk: Client) -> None:
        begun = zk.statistics()
        calls = [zk.create("/a"), zk.get("/a")]
        waiting = zk.statistics()
        zk._core.flush()
        sent = zk.statistics()
        await asyncio.gather(*calls)
        answered = zk.statistics()

        assert begun.idle
        assert begun.connected
        assert begun.keeps_connecting
        assert (waiting.waiting, waiting.in_flight, waiting.idle) == (2, 0, False)
        assert (sent.waiting, sent.in_flight, sent.requests_sent) == (0, 2, begun.requests_sent + 2)
        assert answered.idle

    with_client(main)


def test_statistics_count_watches_tasks_and_losses() -> None:
    async def main(server: Server, zk: Client) -> None:
        task = zk._core.spawn(asyncio.Event().wait())
        async with zk.watch("/a"), zk.watch_exists("/b"):
            inside = zk.statistics()
        server.refuse_connections()
        server.drop(zk)
        await zk.wait_for(State.SUSPENDED)
        lost = zk.statistics()
        await zk.aclose()
        await asyncio.wait([task])
        closed = zk.statistics()

        assert (inside.registrations, inside.background_tasks, inside.connected) == (2, 1, True)
        assert (lost.registrations, lost.connected, lost.keeps_connecting) == (0, False, True)
        assert (closed.background_tasks, closed.keeps_connecting) == (0, False)

    with_client(main)


def test_unstarted_client_has_statistics() -> None:
    statistics: Any = Client("127.0.0.1:1").statistics()

    assert (statistics.idle, statistics.connected, statistics.keeps_connecting) == (True, False, False)


@pytest.mark.parametrize("name", ["\0b", "\u0001", "\ud800b", "."])
def test_invalid_name_below_cached_parent_path_is_refused(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await zk.exists("/known") is None  # reads remember the paths that they have checked

        with pytest.raises(ValueError, match="known"):
            await zk.exists(f"/known/{name}")

    with_client(main)


@pytest.mark.parametrize(
    ("timeout", "longest", "warns"),
    [(4000.0, 40_000, True), (1000, 40_000, True), (999.0, 40_000, False), (4000.0, 4_000_000, True)],
)
def test_session_timeout_in_milliseconds_warns_once(
    caplog: pytest.LogCaptureFixture, timeout: float, longest: int, warns: bool
) -> None:
    async def main(sim: Simulation) -> None:
        config = {"maxSessionTimeout": longest}
        async with sim.server(config=config) as server, make_client(server, timeout) as zk:
            server.drop(zk)
            await zk.wait_for(State.SUSPENDED)
            await zk.wait_for(State.CONNECTED)

    run_simulation(main)

    text = (
        f"timeout={timeout:g} is in seconds, and the server granted {min(timeout, longest / 1000):g} s; "
        f"if you meant milliseconds, use timeout={timeout / 1000:g}"
    )
    assert [record.getMessage() for record in caplog.records if "seconds" in record.getMessage()] == [text] * warns

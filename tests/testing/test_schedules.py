"""``@zoolet_schedules``: a test under many schedules, and the report of a failing one."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Hashable
from contextlib import suppress
from typing import Any

import pytest

from zoolet.protocol.errors import ConnectionLossError, SessionExpiredError
from zoolet.testing import AttemptCancelledError, Chaos, Cluster, Server, Simulation, zoolet_schedules
from zoolet.testing.sim import TooLongError
from zoolet.testing.sim.schedule import Schedule, reduce


async def increment(zk: Any) -> None:
    """Increment a number in the wrong way: without the version."""
    data, _ = await zk.get("/number")
    await zk.set("/number", str(int(data) + 1).encode())


async def increment_twice(server: Server, connect: Any) -> None:
    """Increment a number with two clients, the second a little later; correct only without delays."""
    server.populate({"/number": b"0"})
    first, second = await connect(), await connect()

    async def later() -> None:
        await asyncio.sleep(0.01)
        await increment(second)

    await asyncio.gather(increment(first), later())
    assert server.tree()["/number"].data == b"2"


# --- runs ---


def test_each_run_has_a_server_in_virtual_time() -> None:
    seeds = []

    @zoolet_schedules(4)
    async def check(sim: Simulation, server: Server, connect: Any) -> None:
        zk = await connect(timeout=4.0)
        await zk.create("/a", ephemeral=True)
        await asyncio.sleep(3600)
        assert list(server.tree()) == ["/a"]
        seeds.append(sim.seed)

    began = time.process_time()
    check()
    assert seeds == list(range(4))
    assert time.process_time() - began < 60


def test_hundred_schedules_find_lost_update() -> None:
    with pytest.raises(AssertionError) as failure:
        zoolet_schedules(100)(increment_twice)()

    [story] = failure.value.__notes__
    first, *lines = story.splitlines()
    assert "of the 100 from 0;" in first
    assert re.search(r"; 1 of \d+ deviations matter\.", first)
    [late] = [line for line in lines if "late" in line]
    assert "client 1" in late
    assert sum("setData /number b'1' -> ok" in line for line in lines) == 2
    seed = int(first.split()[1])
    with pytest.raises(AssertionError) as again:
        zoolet_schedules(1, seed=seed)(increment_twice)()
    assert again.value.__notes__[0].splitlines()[1:] == lines


def test_correct_code_passes_every_schedule() -> None:
    @zoolet_schedules(100)
    async def check(server: Server, connect: Any) -> None:
        server.populate({"/number": b"0"})
        clients = [await connect() for _ in range(3)]

        async def increment_safely(zk: Any) -> None:
            async with zk.lock("/lock"):
                await increment(zk)

        await asyncio.gather(*map(increment_safely, clients))
        assert server.tree()["/number"].data == b"3"

    check()


def test_schedules_lose_replies_and_requests_if_configured() -> None:
    outcomes: list[str] = []

    @zoolet_schedules(30, lose_replies=0.2, drop_requests=0.2)
    async def check(server: Server, connect: Any) -> None:
        zk = await connect()
        try:
            await zk.create("/a")
        except ConnectionLossError:
            outcomes.append("applied" if "/a" in server.tree() else "lost")
        else:
            outcomes.append("ok")

    check()
    assert set(outcomes) == {"applied", "lost", "ok"}


def test_story_names_lost_reply() -> None:
    @zoolet_schedules(100, lose_replies=0.1)
    async def check(server: Server, connect: Any) -> None:
        await (await connect()).create("/a")

    with pytest.raises(ConnectionLossError) as failure:
        check()
    [story] = failure.value.__notes__
    assert "(the reply to create /a and the connection are lost)" in story
    assert "create /a -> no reply" in story


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("close_connections", "(the connection is lost)"),
        ("expire_sessions", "(the session expires)"),
        ("pause_sessions", "(the session is paused for "),
        ("outages", "(all connections are lost, and new ones are refused for "),
    ],
)
def test_each_kind_of_failure_happens_and_is_reported(kind: str, line: str) -> None:
    @zoolet_schedules(40, **{kind: 0.05})  # type: ignore[arg-type]
    async def check(connect: Any) -> None:
        zk = await connect(timeout=4.0)
        session = zk.session_id
        for _ in range(50):
            await zk.exists("/")
            await asyncio.sleep(0.1)
            assert zk.state.name == "CONNECTED"
            assert zk.session_id == session

    with pytest.raises((AssertionError, ConnectionLossError, SessionExpiredError)) as failure:
        check()
    [story] = failure.value.__notes__
    assert line in story
    assert f"{kind}=0.05):" in story


def test_chaos_attempt_is_cancelled_at_any_step() -> None:
    reached: set[int] = set()

    @zoolet_schedules(100, cancel_attempts=0.5)
    async def check(chaos: Chaos) -> None:
        at = 0

        async def steps() -> int:
            nonlocal at
            for at in range(1, 5):  # noqa: B007
                await asyncio.sleep(0)
            return at

        try:
            assert await chaos.attempt(steps()) == 4
        except AttemptCancelledError:
            reached.add(at)

    check()
    assert {1, 2, 3} <= reached


async def test_chaos_attempt_is_cancelled_with_its_awaiter() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("it")

    async with Server() as server:
        chaos = Chaos(server, Schedule(0, {}, None, lambda: 0.0))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(chaos.attempt(forever()), 0.01)
    assert ended == ["it"]


def test_requests_succeed_after_chaos_stops() -> None:
    @zoolet_schedules(20, pause_sessions=0.3, outages=0.1, lose_replies=0.2, expire_sessions=0.05)
    async def check(server: Server, connect: Any, chaos: Chaos) -> None:
        zk = await connect(timeout=4.0)
        for _ in range(10):
            with suppress(ConnectionLossError, SessionExpiredError):
                await zk.exists("/")
        chaos.stop()
        await asyncio.sleep(30)
        for _ in range(50):
            assert await zk.exists("/")

    check()


def test_decorator_keeps_fixtures_marks_and_names(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from zoolet.testing import zoolet_schedules

        @pytest.mark.parametrize("name", ["/a", "/b"])
        @zoolet_schedules(3)
        async def test_it(connect, name, tmp_path):
            "What it says."
            zk = await connect()
            assert await zk.create(name) == name
            assert tmp_path.exists()

        class TestIt:
            @zoolet_schedules(3)
            async def test_method(self, sim):
                assert sim.time() < 1
                assert self

        @zoolet_schedules(2)
        async def test_fails(server):
            assert server.tree()
        """
    )

    result = pytester.runpytest_subprocess("-W", "default")

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*schedule 0 fails, of the 2 from 0; 0 of 0 deviations matter*"])


def test_pytest_fail_exception_has_note_with_story() -> None:
    @zoolet_schedules(5, lose_replies=0.01)
    async def check(connect: Any) -> None:
        zk = await connect()
        with pytest.raises(ValueError, match="never"):
            await zk.exists("/a")

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as failure:
        check()
    assert "@zoolet_schedules(1, seed=0, lose_replies=0.01):" in failure.value.__notes__[0]


def test_test_skipped_in_schedule_is_reported_as_skipped() -> None:
    @zoolet_schedules(5)
    async def check() -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        check()


@pytest.mark.parametrize(
    "options", [{"seed": "x"}, {"count": 0}, {"count": True}, {"lose_replies": 2}, {"drop_requests": -1}]
)
def test_invalid_numbers_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        zoolet_schedules(**options)


def test_synchronous_function_is_refused() -> None:
    with pytest.raises(TypeError, match="needs an async test"):
        zoolet_schedules(1)(lambda: None)  # type: ignore[arg-type, return-value]


def test_schedule_run_above_time_limit_raises() -> None:
    @zoolet_schedules(1, limit=10.0)
    async def check() -> None:
        await asyncio.sleep(11)

    with pytest.raises(TooLongError):
        check()


def test_reduction_of_schedule_keeps_original_error() -> None:
    runs = 0

    @zoolet_schedules(1, seed=3, lose_replies=1.0)
    async def check(connect: Any) -> None:
        nonlocal runs
        runs += 1
        zk = await connect()
        try:
            await zk.exists("/a")
        except ConnectionLossError:
            raise AssertionError("what was found first") from None
        raise KeyError("what happens without deviations")

    with pytest.raises(AssertionError, match="found first"):
        check()
    assert runs > 2


def test_traceback_of_failure_shows_only_frames_of_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from zoolet.testing import zoolet_schedules

        @zoolet_schedules(20, lose_replies=0.3, close_connections=0.01)
        async def test_it(server, connect):
            zk = await connect()
            for name in "abc":
                await zk.create(f"/{name}")
        """
    )

    output = project.runpytest_inprocess().stdout

    output.fnmatch_lines(
        [
            "*reply to create /? and the connection are lost*",
            "*fault(lose_reply(), when=zoolet_schedules(lose_replies))*",
        ]
    )
    for ours in ("*sim/s*.py*", "*lambda*", "*<locals>*"):
        output.no_fnmatch_line(ours)


# --- reducing ---


@pytest.mark.parametrize("needed", [set(), {0}, {7}, {0, 19}, {3, 4, 5}, set(range(20))])
def test_reduction_keeps_only_necessary_deviations(needed: set[int]) -> None:
    def still_fails(kept: Collection[Hashable]) -> bool:
        return needed <= set(kept)

    assert set(reduce(list(range(20)), still_fails)) == needed


def test_schedule_decision_is_independent_of_other_decisions() -> None:
    whole = Schedule(5, {"lost": 0.5}, None, lambda: 0.0)
    for _ in range(30):
        whole.latency(1, True)
        whole.happens("lost", 1, "x")
    kept = list(whole.deviations)[::2]
    part = Schedule(5, {"lost": 0.5}, kept, lambda: 0.0)
    for _ in range(30):
        part.latency(1, True)
        part.happens("lost", 1, "x")
    assert {key: whole.deviations[key] for key in kept} == part.deviations


# --- clusters ---


def test_cluster_loses_leader_by_schedule() -> None:
    @zoolet_schedules(20, members=3, kill_leaders=0.1, lags=0.1, partitions=0.02)
    async def check(cluster: Cluster, connect: Any) -> None:
        zk = await connect()
        for _ in range(20):
            with suppress(ConnectionLossError):
                await zk.exists("/")
        assert cluster.epoch == 1, f"epoch {cluster.epoch}"

    with pytest.raises(AssertionError, match="epoch") as failure:
        check()

    story = failure.value.__notes__[-1]
    assert re.search(r"; 1 of \d+ deviations matter\.", story)
    assert "the leader is killed, and restarts after" in story or "one member is isolated for" in story


def test_all_members_are_in_order_after_chaos_stops() -> None:
    @zoolet_schedules(10, members=3, kill_leaders=0.2, lags=0.2, partitions=0.2)
    async def check(cluster: Cluster, connect: Any, chaos: Chaos) -> None:
        zk = await connect()
        for _ in range(20):
            with suppress(ConnectionLossError, SessionExpiredError):
                await zk.exists("/")
        chaos.stop()
        await cluster.until(lambda: len(cluster.followers) == 2)

    check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kill_leaders": 0.1}, "kill_leaders needs a cluster; add members=3"),
        ({"members": 0}, "members must be the number of members of a cluster, or None, not 0"),
    ],
)
def test_invalid_cluster_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zoolet_schedules(1, **options)


def test_server_parameter_with_members_option_raises() -> None:
    async def of_a_server(server: Server) -> None: ...

    with pytest.raises(TypeError, match="has the parameter server; with members=, use cluster"):
        zoolet_schedules(1, members=3)(of_a_server)

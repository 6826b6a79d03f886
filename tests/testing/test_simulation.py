"""Servers and clients in virtual time: the same seed gives the same run, and days pass in milliseconds."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import traceback
from typing import Final

import pytest
from support.recorder import Recorder
from support.simulation import run_simulation
from support.waiting import DEADLINE_S, repeat_until_fast
from support.wire import EPHEMERAL, dial

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.testing import (
    AttemptCancelledError,
    Simulation,
    StuckError,
    TooLongError,
    delay,
    drop_request,
    error,
    hold,
)

DAY: Final = 86_400.0


# --- repeatability ---


def trace_run(seed: int) -> list[tuple[float, bytes]]:
    """Return every piece that a busy client receives, with its time."""

    async def main(sim: Simulation) -> list[tuple[float, bytes]]:
        async with sim.server() as server:
            loop = asyncio.get_running_loop()
            _, client = await loop.create_connection(Recorder, "127.0.0.1", server.port)
            client.transport.write(frame(ConnectRequest(0, 10_000).encode()))
            for xid in range(1, 30):
                size = sim.rng.randrange(2000)
                body = r.CreateRequest(f"/n{xid}", bytes(size), OPEN_ACL_UNSAFE, 0).encode()
                client.transport.write(frame(r.RequestHeader(xid, OpCode.CREATE).encode() + body))
                await asyncio.sleep(sim.rng.random())
            with server.fault(delay(0.3), probability=0.5):
                for xid in range(30, 60):
                    body = r.GetDataRequest(f"/n{xid - 29}", False).encode()
                    client.transport.write(frame(r.RequestHeader(xid, OpCode.GET_DATA).encode() + body))
                    await asyncio.sleep(1)
            return client.pieces

    found: list[tuple[float, bytes]] = run_simulation(main, seed)
    return found


def test_same_seed_gives_same_bytes_and_times() -> None:
    first, second = trace_run(3), trace_run(3)

    assert len(first) > 59
    assert first == second


def test_different_seeds_give_different_runs() -> None:
    assert len({tuple(trace_run(seed)) for seed in range(3)}) == 3


def test_random_numbers_of_test_come_from_seed() -> None:
    async def main(sim: Simulation) -> float:
        return sim.rng.random()

    assert run_simulation(main, 5) == run_simulation(main, 5) != run_simulation(main, 6)


# --- virtual time ---


def test_sleep_of_a_day_needs_no_real_time() -> None:
    async def main(sim: Simulation) -> tuple[float, float]:
        began = sim.time()
        await asyncio.sleep(DAY - 1)
        return began, sim.time()

    cpu = time.process_time()
    began, ended = run_simulation(main)

    assert ended - began == pytest.approx(DAY - 1)
    assert time.process_time() - cpu < 0.25


def test_server_runs_in_virtual_time() -> None:
    async def main(sim: Simulation) -> tuple[set[str], set[str]]:
        async with sim.server() as server:
            client = await dial(server, 10)
            await client.create("/e", EPHEMERAL)
            await asyncio.sleep(9)
            before = set(server.tree())
            await asyncio.sleep(2)
            return before, set(server.tree())

    assert run_simulation(main) == ({"/e"}, set())


def test_idle_server_simulates_hour_quickly() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server():
            await asyncio.sleep(3600)

    took: list[float] = []
    for _ in repeat_until_fast(took, 0.02):
        cpu = time.process_time()
        run_simulation(main)
        took.append(time.process_time() - cpu)

    assert min(took) < 0.02


def test_wait_that_cannot_end_is_reported_as_stuck() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.sleep(5)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match=r"5\.000"):
        run_simulation(main)


def test_stuck_run_leaks_no_resources() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_simulation(main)
    gc.collect()  # an unclosed loop would cause a warning, which is an error here


def test_run_within_time_limit_succeeds() -> None:
    sim = Simulation(1, limit=10)
    sim.run(asyncio.sleep(10))
    assert sim.time() == pytest.approx(10)


def test_aborted_run_leaks_no_resources() -> None:
    sim = Simulation(1, limit=10)
    cleaned = []

    async def main() -> None:
        try:
            await asyncio.sleep(11)
        finally:
            cleaned.append(True)

    with pytest.raises(TooLongError, match="10"):
        sim.run(main())
    gc.collect()  # an unclosed loop would cause a warning, which is an error here

    assert cleaned == [True]


def test_error_in_simulation_is_raised_by_run() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_simulation(main)


def test_simulation_cannot_be_run_twice() -> None:
    code = """
import asyncio
from zoolet.testing import Simulation

sim = Simulation()
sim.run(asyncio.sleep(0))
again = asyncio.sleep(0)
try:
    sim.run(again)
except RuntimeError:
    again.close()
    print("once")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)

    assert (done.stdout, done.stderr) == ("once\n", "")


def test_unused_simulation_leaks_no_resources() -> None:
    Simulation()
    gc.collect()  # an unclosed loop would cause a warning, which is an error here


def test_callbacks_wait_while_process_stands_still() -> None:
    async def main(sim: Simulation) -> tuple[list[float], float, list[float]]:
        called: list[float] = []
        asyncio.get_running_loop().call_later(5, lambda: called.append(sim.time()))
        sim.pass_time(60)
        meanwhile, time_after = list(called), sim.time()
        await asyncio.sleep(0)
        return meanwhile, time_after, called

    assert run_simulation(main) == ([], 60, [60])


def test_process_standing_still_too_long_is_aborted() -> None:
    async def main(sim: Simulation) -> None:
        sim.pass_time(11)

    with pytest.raises(TooLongError, match="10"):
        run_simulation(main, limit=10)


def test_stuck_run_shows_where_tasks_wait() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def main(sim: Simulation) -> None:
        await asyncio.create_task(wait_for_ever(), name="the one that waits")

    with pytest.raises(StuckError, match=r"the one that waits: .*wait_for_ever:\d+ > Event\.wait:\d+"):
        run_simulation(main)


# --- the features of a server ---


def test_release_and_first_zxid_are_configurable() -> None:
    async def main(sim: Simulation) -> tuple[bytes, int]:
        async with sim.server(compat="3.8", initial_zxid=7) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"srvr")
            answer = await reader.read()
            writer.close()
            return answer, server.zxid()

    answer, zxid = run_simulation(main)

    assert b"3.8.0" in answer
    assert zxid == 7


def test_faults_happen_in_virtual_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 1000)
            with server.fault(delay(100), "create", nth=1) as fault:
                began = sim.time()
                assert await client.create("/a") == 0
                assert sim.time() - began == pytest.approx(100, abs=0.1)
                assert fault.hits == 1
            with server.fault(error(-101), "create"):
                assert await client.create("/b") == -101
            with server.fault(hold(), "create") as held:
                asked = asyncio.ensure_future(client.create("/c"))
                await asyncio.sleep(10)
                assert not asked.done()
                held.release()
                assert await asked == 0
            with server.fault(drop_request(), "create"), pytest.raises(asyncio.IncompleteReadError):
                await client.create("/d")
            assert set(server.tree()) == {"/a", "/c"}

    run_simulation(main)


def test_clients_are_paused_dropped_and_expired() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client, other = await dial(server, 10), await dial(server, 1000)
            server.pause(client.id)
            asked = asyncio.ensure_future(client.create("/a"))
            await asyncio.sleep(5)
            assert not asked.done()
            server.resume(client.id)
            assert await asked == 0
            server.drop(client.id)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.ask(OpCode.PING)
            server.expire(client.id)
            assert set(server.sessions()) == {other.id}

    run_simulation(main)


def test_waiting_is_done_in_virtual_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 10)
            await server.until(lambda: client.id not in server.sessions(), timeout=100)
            assert sim.time() >= 10
            began = sim.time()
            with pytest.raises(TimeoutError):
                await server.until(lambda: False, timeout=50)
            assert sim.time() - began == pytest.approx(50, abs=1)

    run_simulation(main)


def test_snapshot_is_restored_in_virtual_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            server.populate({"/a": "1"})
            snapshot = server.snapshot()
            client = await dial(server)
            await client.create("/b")
            server.restore(snapshot)
            assert set(server.tree()) == {"/a"}

    run_simulation(main)


def test_large_reply_arrives_complete_in_simulation() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server)
            assert await client.create("/big", data=b"x" * 900_000) == 0
            client.transport.write(
                frame(r.RequestHeader(9, OpCode.GET_DATA).encode() + r.GetDataRequest("/big", False).encode())
            )
            assert (await client.payload()).count(b"x") == 900_000

    run_simulation(main)


def test_seed_of_simulation_must_be_int() -> None:
    with pytest.raises(ValueError, match="seed must be an int, not 'x'"):
        Simulation(seed="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [AttemptCancelledError, StuckError, TooLongError])
def test_tracebacks_name_public_module_of_errors(kind: type[Exception]) -> None:
    assert traceback.format_exception_only(kind()) == [f"zoolet.testing.{kind.__name__}\n"]

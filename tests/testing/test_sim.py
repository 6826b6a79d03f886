"""Servers and clients in virtual time: the same seed is the same run, days pass in milliseconds, and the network does
to connections what it is told, and to data nothing but cut it to pieces.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import Simulation, delay, drop_request, error, hold
from zoolet.server.testing.sim import StuckError, TooLongError

DAY: Final = 86_400.0
EPHEMERAL: Final = 1


# --- what the tests say it with ---


class Client:
    """A session in the simulated network.

    Args:
        reader: What comes.
        transport: Where it goes.
    """

    def __init__(self, reader: asyncio.StreamReader, transport: Any) -> None:
        self.reader = reader
        self.transport = transport
        self.id = 0
        self.xid = 0

    async def payload(self) -> bytes:
        """Wait for one frame."""
        (length,) = int_at(await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send a request and wait for its error code."""
        self.xid += 1
        self.transport.write(frame(r.RequestHeader(self.xid, op).encode() + (body.encode() if body else b"")))
        return r.ReplyHeader.decode(await self.payload()).err

    async def create(self, path: str, flags: int = 0, data: bytes = b"") -> int:
        """Make a node."""
        return await self.ask(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, flags))


async def dial(server: Server, operation_timeout: float = 10.0) -> Client:
    """Open a session whose timeout is *patience*."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), "127.0.0.1", server.port
    )
    client = Client(reader, transport)
    transport.write(frame(ConnectRequest(0, round(operation_timeout * 1000)).encode()))
    client.id = ConnectResponse.decode(await client.payload()).session_id
    return client


class Recorder(asyncio.Protocol):
    """What comes over a connection, piece by piece, with its times."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pieces: list[tuple[float, bytes]] = []
        self.ended: asyncio.Future[Exception | None] = self.loop.create_future()
        self.transport: Any = None
        self.calls: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append((self.loop.time(), data))

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    @property
    def data(self) -> bytes:
        """All that came."""
        return b"".join(piece for _, piece in self.pieces)


async def pair(port: int = 700) -> tuple[Recorder, Recorder]:
    """Connect two recorders: the one that called, and the one that listened."""
    loop = asyncio.get_running_loop()
    served: list[Recorder] = []

    def serve() -> Recorder:
        served.append(Recorder())
        return served[-1]

    await loop.create_server(serve, "127.0.0.1", port)
    _, client = await loop.create_connection(Recorder, "127.0.0.1", port)
    while not served or served[0].transport is None:
        await asyncio.sleep(0.001)
    return client, served[0]


def simulate(main: Callable[[Simulation], Coroutine[Any, Any, Any]], seed: int = 1, **options: Any) -> Any:
    """Run a story in a simulation of its own."""
    sim = Simulation(seed, **options)
    return sim.run(main(sim))


# --- the same again ---


def trace(seed: int) -> list[tuple[float, bytes]]:
    """Return every piece that a talkative client gets, with its time."""

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
            with server.fault(probability=0.5, action=delay(0.3)):
                for xid in range(30, 60):
                    body = r.GetDataRequest(f"/n{xid - 29}", False).encode()
                    client.transport.write(frame(r.RequestHeader(xid, OpCode.GET_DATA).encode() + body))
                    await asyncio.sleep(1)
            return client.pieces

    found: list[tuple[float, bytes]] = simulate(main, seed)
    return found


def test_one_seed_is_one_run_byte_for_byte_and_moment_for_moment() -> None:
    first, second = trace(3), trace(3)

    assert len(first) > 59
    assert first == second


def test_another_seed_is_another_run() -> None:
    assert len({tuple(trace(seed)) for seed in range(3)}) == 3


def test_chance_of_the_test_itself_comes_from_the_seed() -> None:
    async def main(sim: Simulation) -> float:
        return sim.rng.random()

    assert simulate(main, 5) == simulate(main, 5) != simulate(main, 6)


# --- virtual time ---


def test_time_jumps() -> None:
    async def main(sim: Simulation) -> tuple[float, float]:
        began = sim.time()
        await asyncio.sleep(DAY - 1)
        return began, sim.time()

    real = time.perf_counter()
    began, ended = simulate(main)

    assert ended - began == pytest.approx(DAY - 1)
    assert time.perf_counter() - real < 0.25


def test_the_server_lives_in_virtual_time() -> None:
    async def main(sim: Simulation) -> tuple[set[str], set[str]]:
        async with sim.server() as server:
            client = await dial(server, 10)
            await client.create("/e", EPHEMERAL)
            await asyncio.sleep(9)
            before = set(server.tree())
            await asyncio.sleep(2)
            return before, set(server.tree())

    assert simulate(main) == ({"/e"}, set())


def test_an_hour_of_a_server_that_nobody_uses_takes_no_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server():
            await asyncio.sleep(3600)

    real = time.perf_counter()
    simulate(main)

    assert time.perf_counter() - real < 0.02


def test_what_waits_for_ever_is_stuck() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.sleep(5)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match=r"5\.000"):
        simulate(main)


def test_a_stuck_run_leaves_nothing_open() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        simulate(main)
    gc.collect()  # an unclosed loop would be a warning, and that an error


def test_a_run_that_takes_too_long_is_given_up() -> None:
    sim = Simulation(1, limit=10)
    sim.run(asyncio.sleep(10))
    assert sim.time() == pytest.approx(10)


def test_a_run_that_was_given_up_leaves_nothing_open() -> None:
    sim = Simulation(1, limit=10)
    cleaned = []

    async def main() -> None:
        try:
            await asyncio.sleep(11)
        finally:
            cleaned.append(True)

    with pytest.raises(TooLongError, match="10"):
        sim.run(main())
    gc.collect()  # an unclosed loop would be a warning, and that an error

    assert cleaned == [True]


def test_an_error_of_the_run_comes_out() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(main)


def test_a_simulation_runs_once_and_says_so() -> None:
    code = """
import asyncio
from zoolet.server.testing import Simulation

sim = Simulation()
sim.run(asyncio.sleep(0))
again = asyncio.sleep(0)
try:
    sim.run(again)
except RuntimeError:
    again.close()
    print("once")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert (done.stdout, done.stderr) == ("once\n", "")


def test_a_simulation_that_is_not_run_leaves_nothing_open() -> None:
    Simulation()
    gc.collect()  # an unclosed loop would be a warning, and that an error


# --- the network ---


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    messages=st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 0.01)), min_size=1, max_size=12),
)
def test_pieces_arrive_in_order_and_complete(seed: int, messages: list[tuple[int, float]]) -> None:
    async def main(sim: Simulation) -> tuple[bytes, bytes, bytes]:
        client, served = await pair()
        sent = b""
        for number, (size, pause) in enumerate(messages):
            data = bytes((number + i) % 251 for i in range(size))
            sent += data
            client.transport.write(data)
            served.transport.write(data)
            await asyncio.sleep(pause)
        client.transport.close()
        await served.ended
        await client.ended
        return sent, served.data, client.data

    sent, forth, back = simulate(main, seed)

    assert forth == sent
    assert sent.startswith(back)


def test_data_comes_in_pieces_now_and_then() -> None:
    async def main(sim: Simulation) -> int:
        client, served = await pair()
        for _ in range(50):
            client.transport.write(b"x" * 1000)
            await asyncio.sleep(0.1)
        assert served.data == b"x" * 50_000
        return len(served.pieces)

    assert simulate(main) > 50


def test_nothing_arrives_sooner_or_later_than_the_latency_allows() -> None:
    async def main(sim: Simulation) -> list[float]:
        sim.network.latency = (0.5, 0.75)
        client, served = await pair()
        travelled = []
        for _ in range(20):
            began = sim.time()
            client.transport.write(b"x")
            await asyncio.sleep(1)
            travelled.append(served.pieces[-1][0] - began)
        return travelled

    travelled = simulate(main)
    assert min(travelled) >= 0.5
    assert max(travelled) <= 0.7501
    assert len(set(travelled)) > 1


def test_a_stall_delays_and_loses_nothing() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 1000)
            sim.network.pause()
            asked = asyncio.ensure_future(client.create("/a"))
            connecting = asyncio.ensure_future(dial(server))
            await asyncio.sleep(60)
            assert not asked.done()
            assert not connecting.done()
            assert dict(server.tree()) == {}
            sim.network.resume()
            assert await asked == 0
            assert (await connecting).id in server.sessions()
            assert set(server.tree()) == {"/a"}

    simulate(main)


def test_a_stall_longer_than_a_session_ends_it() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 10)
            sim.network.pause()
            await asyncio.sleep(11)
            assert dict(server.sessions()) == {}
            sim.network.resume()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.ask(OpCode.PING)

    simulate(main)


def test_a_cut_loses_what_was_on_its_way() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await pair()
        client.transport.write(b"lost")
        assert sim.network.drop() >= 1
        assert isinstance(await client.ended, ConnectionError)
        await served.ended
        assert served.data == b""
        assert sim.network.drop() == 0

    simulate(main)


def test_a_cut_resets_both_ends() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await pair()
        sim.network.drop()
        assert isinstance(await client.ended, ConnectionError)
        assert isinstance(await served.ended, ConnectionError)

    simulate(main)


def test_a_cut_may_be_of_one_port_only() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as one, sim.server() as two:
            first, second = await dial(one), await dial(two)
            assert one.port != two.port
            sim.network.drop(one.port)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await first.ask(OpCode.PING)
            assert await second.ask(OpCode.PING) == 0
            assert not one.sessions()[first.id].connected

    simulate(main)


def test_a_session_survives_a_cut() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server)
            await client.create("/e", EPHEMERAL)
            sim.network.drop()
            await asyncio.sleep(1)
            assert set(server.tree()) == {"/e"}
            assert (await dial(server)).id != client.id

    simulate(main)


def test_nobody_listens_on_a_free_port() -> None:
    async def main(sim: Simulation) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", 5)

    simulate(main)


def test_connections_are_refused_and_accepted_here_too() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            server.refuse_connections()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)
            server.accept_connections()
            await dial(server)

    simulate(main)


def test_a_server_that_stopped_is_not_connected_to() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            port = server.port
            await dial(server)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    simulate(main)


def test_a_port_that_is_taken_is_an_os_error() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            with pytest.raises(OSError):
                async with sim.server(port=server.port):
                    pass
            await dial(server)

    simulate(main)


def test_a_duplicate_of_a_connection_gets_no_word_through() -> None:
    async def main(sim: Simulation) -> tuple[int, int]:
        sim.network.duplicates = 1.0
        async with sim.server() as server:
            client = await dial(server)
            assert [await client.create(f"/n{i}") for i in range(3)] == [0, 0, 0]
            await asyncio.sleep(1)
            connects = sum(op.op == "connect" for op in server.ops())
            assert set(server.tree()) == {"/n0", "/n1", "/n2"}
            return connects, len(server.sessions())

    connects, sessions = simulate(main)
    assert connects == 2
    assert sessions == 2


def test_without_duplicates_there_are_none() -> None:
    async def main(sim: Simulation) -> int:
        async with sim.server() as server:
            for _ in range(20):
                await dial(server)
            await asyncio.sleep(1)
            return len(server.ops())

    assert simulate(main) == 20


def test_a_reader_that_pauses_makes_the_writer_wait() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await pair()
        served.transport.pause_reading()
        client.transport.write(b"x" * 1_000_000)
        await asyncio.sleep(1)
        assert client.calls == ["pause"]
        assert served.data == b""
        assert client.transport.get_write_buffer_size() > 0
        served.transport.resume_reading()
        await asyncio.sleep(1)
        assert client.calls == ["pause", "resume"]
        assert len(served.data) == 1_000_000
        assert client.transport.get_write_buffer_size() == 0

    simulate(main)


def test_a_stream_s_drain_waits_for_the_other_side() -> None:
    async def main(sim: Simulation) -> None:
        loop = asyncio.get_running_loop()
        served: list[Recorder] = []

        def serve() -> Recorder:
            served.append(Recorder())
            return served[-1]

        await loop.create_server(serve, "127.0.0.1", 700)
        _, writer = await asyncio.open_connection("127.0.0.1", 700)
        await asyncio.sleep(0.1)
        served[0].transport.pause_reading()
        writer.write(b"x" * 1_000_000)
        draining = asyncio.ensure_future(writer.drain())
        await asyncio.sleep(1)
        assert not draining.done()
        served[0].transport.resume_reading()
        await draining
        writer.close()

    simulate(main)


def test_what_was_written_before_a_close_arrives_before_the_end() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await pair()
        client.transport.write(b"x" * 100_000)
        client.transport.close()
        assert await served.ended is None
        assert len(served.data) == 100_000
        assert served.calls == ["eof"]

    simulate(main)


# --- what a server can do, it can do here ---


def test_faults_happen_in_virtual_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 1000)
            with server.fault(op="create", nth=1, action=delay(100)) as fault:
                began = sim.time()
                assert await client.create("/a") == 0
                assert sim.time() - began == pytest.approx(100, abs=0.1)
                assert fault.hits == 1
            with server.fault(op="create", action=error(-101)):
                assert await client.create("/b") == -101
            with server.fault(op="create", action=hold()) as held:
                asked = asyncio.ensure_future(client.create("/c"))
                await asyncio.sleep(10)
                assert not asked.done()
                held.release()
                assert await asked == 0
            with server.fault(op="create", action=drop_request()), pytest.raises(asyncio.IncompleteReadError):
                await client.create("/d")
            assert set(server.tree()) == {"/a", "/c"}

    simulate(main)


def test_pauses_expiries_and_drops_happen_here_too() -> None:
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

    simulate(main)


def test_waiting_is_done_in_virtual_time() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 10)
            await server.wait_for(lambda: client.id not in server.sessions(), timeout=100)
            assert sim.time() >= 10
            began = sim.time()
            with pytest.raises(TimeoutError):
                await server.wait_for(lambda: False, timeout=50)
            assert sim.time() - began == pytest.approx(50, abs=1)

    simulate(main)


def test_snapshots_work_here_too() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            server.populate({"/a": "1"})
            snapshot = server.snapshot()
            client = await dial(server)
            await client.create("/b")
            server.restore(snapshot)
            assert set(server.tree()) == {"/a"}

    simulate(main)


def test_large_replies_come_whole() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server)
            assert await client.create("/big", data=b"x" * 900_000) == 0
            client.transport.write(
                frame(r.RequestHeader(9, OpCode.GET_DATA).encode() + r.GetDataRequest("/big", False).encode())
            )
            assert (await client.payload()).count(b"x") == 900_000

    simulate(main)

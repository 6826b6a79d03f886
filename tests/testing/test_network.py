"""The simulated network drops, refuses and pauses connections, and changes data only by splitting it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.recorder import Recorder, connect_pair
from support.simulation import run_simulation
from support.wire import EPHEMERAL, dial

from zoolet.protocol.operations import OpCode
from zoolet.testing import Simulation


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    messages=st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 0.01)), min_size=1, max_size=12),
)
def test_pieces_arrive_in_order_and_complete(seed: int, messages: list[tuple[int, float]]) -> None:
    async def main(sim: Simulation) -> tuple[bytes, bytes, bytes]:
        client, served = await connect_pair()
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

    sent, forth, back = run_simulation(main, seed)

    assert forth == sent
    assert sent.startswith(back)


def test_network_sometimes_splits_data() -> None:
    async def main(sim: Simulation) -> int:
        client, served = await connect_pair()
        for _ in range(50):
            client.transport.write(b"x" * 1000)
            await asyncio.sleep(0.1)
        assert served.data == b"x" * 50_000
        return len(served.pieces)

    assert run_simulation(main) > 50


def test_data_arrives_within_latency_range() -> None:
    async def main(sim: Simulation) -> list[float]:
        sim.network.latency = (0.5, 0.75)
        client, served = await connect_pair()
        travelled = []
        for _ in range(20):
            began = sim.time()
            client.transport.write(b"x")
            await asyncio.sleep(1)
            travelled.append(served.pieces[-1][0] - began)
        return travelled

    travelled = run_simulation(main)
    assert min(travelled) >= 0.5
    assert max(travelled) <= 0.7501
    assert len(set(travelled)) > 1


def test_pause_of_network_delays_data_without_loss() -> None:
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

    run_simulation(main)


def test_pause_longer_than_timeout_expires_session() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server, 10)
            sim.network.pause()
            await asyncio.sleep(11)
            assert dict(server.sessions()) == {}
            sim.network.resume()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.ask(OpCode.PING)

    run_simulation(main)


def test_drop_loses_data_in_transit() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await connect_pair()
        client.transport.write(b"lost")
        assert sim.network.drop() >= 1
        assert isinstance(await client.ended, ConnectionError)
        await served.ended
        assert served.data == b""
        assert sim.network.drop() == 0

    run_simulation(main)


def test_drop_resets_both_sides() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await connect_pair()
        sim.network.drop()
        assert isinstance(await client.ended, ConnectionError)
        assert isinstance(await served.ended, ConnectionError)

    run_simulation(main)


def test_connection_counts_until_both_sides_close() -> None:
    async def main(sim: Simulation) -> list[int]:
        counts = [sim.network.connections]
        client, served = await connect_pair()
        counts.append(sim.network.connections)
        other, _ = await connect_pair(801)
        counts.append(sim.network.connections)
        client.transport.abort()
        await client.ended
        counts.append(sim.network.connections)  # the server does not yet know
        await served.ended
        counts.append(sim.network.connections)
        other.transport.close()
        await asyncio.sleep(1)
        counts.append(sim.network.connections)
        return counts

    assert run_simulation(main) == [0, 1, 2, 2, 1, 0]


def test_duplicate_of_connection_counts_as_connection() -> None:
    async def main(sim: Simulation) -> int:
        sim.network.duplicates = 1.0
        await connect_pair()
        return sim.network.connections

    assert run_simulation(main) == 2


def test_drop_of_one_port_keeps_other_connections() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as one, sim.server() as two:
            first, second = await dial(one), await dial(two)
            assert one.port != two.port
            sim.network.drop(one.port)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await first.ask(OpCode.PING)
            assert await second.ask(OpCode.PING) == 0
            assert not one.sessions()[first.id].connected

    run_simulation(main)


def test_session_survives_drop() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            client = await dial(server)
            await client.create("/e", EPHEMERAL)
            sim.network.drop()
            await asyncio.sleep(1)
            assert set(server.tree()) == {"/e"}
            assert (await dial(server)).id != client.id

    run_simulation(main)


def test_connection_to_port_without_listener_is_refused() -> None:
    async def main(sim: Simulation) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", 5)

    run_simulation(main)


def test_connections_can_be_refused_in_simulation() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            server.refuse_connections()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)
            server.accept_connections()
            await dial(server)

    run_simulation(main)


def test_stopped_server_refuses_connections() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            port = server.port
            await dial(server)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run_simulation(main)


def test_occupied_port_is_os_error() -> None:
    async def main(sim: Simulation) -> None:
        async with sim.server() as server:
            with pytest.raises(OSError):
                async with sim.server(port=server.port):
                    pass
            await dial(server)

    run_simulation(main)


def test_duplicate_connection_repeats_only_handshake() -> None:
    async def main(sim: Simulation) -> tuple[int, int]:
        sim.network.duplicates = 1.0
        async with sim.server() as server:
            client = await dial(server)
            assert [await client.create(f"/n{i}") for i in range(3)] == [0, 0, 0]
            await asyncio.sleep(1)
            connects = sum(op.op == "connect" for op in server.ops())
            assert set(server.tree()) == {"/n0", "/n1", "/n2"}
            return connects, len(server.sessions())

    connects, sessions = run_simulation(main)
    assert connects == 2
    assert sessions == 2


def test_connections_are_not_duplicated_by_default() -> None:
    async def main(sim: Simulation) -> int:
        async with sim.server() as server:
            for _ in range(20):
                await dial(server)
            await asyncio.sleep(1)
            return len(server.ops())

    assert run_simulation(main) == 20


def test_paused_reader_pauses_writer() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await connect_pair()
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

    run_simulation(main)


def test_stream_drain_waits_for_other_side() -> None:
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

    run_simulation(main)


def test_bytes_written_before_close_arrive_before_end() -> None:
    async def main(sim: Simulation) -> None:
        client, served = await connect_pair()
        client.transport.write(b"x" * 100_000)
        client.transport.close()
        assert await served.ended is None
        assert len(served.data) == 100_000
        assert served.calls == ["eof"]

    run_simulation(main)

"""Read-only servers: clients read from them, and leave them for a server that accepts writes."""

from __future__ import annotations

import asyncio
import signal
from random import Random
from typing import Any

import pytest
from support.daemon import DaemonProcess
from support.simulation import Connect, make_client, simulate
from support.states import read_until

from zoolet.client import Client, ConnectionLossError, State
from zoolet.protocol.errors import NotReadOnlyError
from zoolet.testing import Server, Simulation


def test_client_of_read_only_server_looks_for_writable_server() -> None:
    async def main(sim: Simulation, reader: Server) -> None:
        reader.populate({"/a": b"v"})
        reader.set_read_only(True)
        port = 50_000
        zk = Client(f"{reader.hosts},sim:{port}", read_only=True, rng=Random(5))
        async with zk:
            states = zk.states()
            assert zk.state is State.READ_ONLY
            assert (await zk.get("/a"))[0] == b"v"
            with pytest.raises(NotReadOnlyError):
                await zk.set("/a", b"")

            async with sim.server(port) as writer:
                writer.populate(dict.fromkeys(("/1", "/2", "/3"), b""))  # the same nodes as on the first server
                began = sim.time()
                async for state in states:
                    if state is State.CONNECTED:
                        break
                assert sim.time() - began < 1.0
                assert await zk.create("/b") == "/b"
                assert list(writer.sessions()) == [zk.session_id]
                await zk.aclose()

    simulate(main)


def test_probe_with_unexpected_error_is_logged_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_connection = asyncio.open_connection
    asked: list[Any] = []

    async def defective(*args: Any, **options: Any) -> Any:
        asked.append(args)
        if len(asked) == 1:
            raise UnicodeError("label empty or too long")
        return await open_connection(*args, **options)

    monkeypatch.setattr(asyncio, "open_connection", defective)

    async def main(sim: Simulation, reader: Server) -> None:
        reader.set_read_only(True)
        async with Client(f"{reader.hosts},sim:50000", read_only=True, rng=Random(5)) as zk:
            async with sim.server(50_000) as writer:
                await zk.wait_for(State.CONNECTED)

                assert list(writer.sessions()) == [zk.session_id]
                await zk.aclose()

    simulate(main)

    assert "label empty or too long" in caplog.text


def test_writing_client_leaves_read_only_server() -> None:
    async def main(sim: Simulation, reader: Server) -> None:
        reader.set_read_only(True)
        with pytest.raises(ConnectionLossError):
            await make_client(reader).start()

    simulate(main)


@pytest.mark.slow
async def test_writes_succeed_after_read_only_mode_ends(connect: Connect) -> None:
    with DaemonProcess("-Dzookeeper.tickTime=100") as daemon:
        zk = await connect(daemon.hosts, timeout=2.0, read_only=True)
        await zk.create("/a", b"1")
        states = zk.states()

        daemon.process.send_signal(signal.SIGUSR1)
        await read_until(states, State.READ_ONLY)
        assert (await zk.get("/a"))[0] == b"1"
        with pytest.raises(NotReadOnlyError):
            await zk.set("/a", b"2")

        daemon.process.send_signal(signal.SIGUSR2)
        await read_until(states, State.CONNECTED)
        assert (await zk.set("/a", b"2")).version == 1
        await zk.aclose()

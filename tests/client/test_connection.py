"""The connection: an unexpected error is logged and costs one connection; the client continues with a new one."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.simulation import make_client, simulate, with_client

from zoolet.client import Backoff, Client, ConnectionLossError, State
from zoolet.client.wire.phases import ConnectionPhase
from zoolet.client.wire.session import ClientSession
from zoolet.testing import Server, Simulation

DEFECT: Final = "TypeError: a defect"


def break_method(
    monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[[ClientSession], bool], times: int = 1
) -> list[ClientSession]:
    """Make a method of sessions raise up to *times* times when a condition is true. Return the affected sessions."""
    method: Any = getattr(ClientSession, name)
    failed: list[ClientSession] = []

    def defective(session: ClientSession, *args: Any) -> Any:
        if len(failed) < times and when(session):
            failed.append(session)
            raise TypeError("a defect")
        return method(session, *args)

    monkeypatch.setattr(ClientSession, name, defective)
    return failed


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the name of the logger and the text of the error, for each record with an error."""
    return [
        (record.name, str(record.exc_info[1])) for record in caplog.records if record.exc_info and record.exc_info[1]
    ]


LOGGED_ONCE: Final = [("zoolet.client", "a defect")]


@pytest.mark.parametrize("name", ["start", "receive"])
def test_unexpected_handshake_error_fails_only_one_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    failed = break_method(
        monkeypatch, name, lambda session: session.phase in (ConnectionPhase.OFF, ConnectionPhase.HANDSHAKE)
    )

    async def main(sim: Simulation, server: Server) -> None:
        began = sim.time()
        async with make_client(server) as zk:
            assert zk.statistics().keeps_connecting
            assert await zk.create("/a") == "/a"
            assert sim.time() - began < 1.0  # the call did not wait until an attempt timed out

    caplog.set_level(logging.DEBUG, "zoolet.client")
    simulate(main)

    assert len(failed) == 1
    assert logged(caplog) == LOGGED_ONCE
    assert f"ended: {DEFECT}" in caplog.text


def test_start_names_unexpected_error_of_last_connect_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    break_method(monkeypatch, "receive", lambda session: True, times=1000)

    async def main(sim: Simulation, server: Server) -> None:
        zk = make_client(server, 1.0)
        with pytest.raises(ConnectionLossError, match=f"no server was reached within 1.0 s; .*{DEFECT}"):
            await zk.start()
        assert zk.state is State.CLOSED

    simulate(main)


def test_unexpected_error_fails_pending_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = break_method(monkeypatch, "receive", lambda session: session.phase is ConnectionPhase.READY)

    async def main(server: Server, zk: Client) -> None:
        states = zk.states()
        session_id = zk.session_id
        with pytest.raises(ConnectionLossError, match=DEFECT) as caught:
            await zk.create("/a")

        assert caught.value.maybe_applied
        assert await zk.exists("/a") is not None
        assert [await anext(states) for _ in range(3)] == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]
        assert zk.session_id == session_id

    with_client(main)

    assert len(failed) == 1
    assert logged(caplog) == LOGGED_ONCE


def test_read_is_repeated_after_unexpected_send_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(server: Server, zk: Client) -> None:
        failed = break_method(monkeypatch, "flush", lambda session: session.phase is ConnectionPhase.READY)
        reading = zk.exists("/")
        async with asyncio.timeout(5):
            assert await reading is not None

        assert len(failed) == 1

    with_client(main)

    assert logged(caplog) == LOGGED_ONCE


def test_session_survives_unexpected_timer_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = break_method(monkeypatch, "tick", lambda session: session.phase is ConnectionPhase.READY)

    async def main(server: Server, zk: Client) -> None:
        session_id = zk.session_id
        await asyncio.sleep(60)  # six session timeouts; only pings keep the session alive

        assert (zk.session_id, zk.state) == (session_id, State.CONNECTED)
        assert session_id in server.sessions()

    with_client(main)

    assert len(failed) == 1
    assert logged(caplog) == LOGGED_ONCE


def test_unexpected_error_in_reply_handler_fails_call(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server, zk: Client) -> None:
        def then(result: Any, error: Exception | None) -> None:
            raise TypeError("a defect")

        call = zk.exists("/")
        call.then = then  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="a defect"):
            async with asyncio.timeout(5):
                await call

        assert await zk.exists("/") is not None

    with_client(main)

    assert logged(caplog) == LOGGED_ONCE


async def test_client_connects_despite_malformed_host_name(server: Server) -> None:
    async with Client(f"zk1..example:2181,{server.hosts}", 2.0) as zk:
        for _ in range(5):
            server.drop(zk)
            await zk.wait_for(State.SUSPENDED)
            assert await zk.exists("/") is not None


@pytest.mark.parametrize("wrong", [True, "cert.pem"])
def test_invalid_tls_context_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"tls must be an ssl\.SSLContext"):
        Client("127.0.0.1:1", tls=wrong)  # type: ignore[arg-type]


async def test_tls_error_at_plain_port_names_cause(server: Server) -> None:
    zk = Client(server.hosts, tls=ssl.create_default_context(), backoff=Backoff(first=10))
    await zk.start(wait=False)

    reason = await zk.first_round()
    await zk.aclose()

    assert "the port is plain" in reason
    assert "no connection within" not in reason


class ClosedTransport:
    """A closed uvloop transport whose protocol has not yet been notified."""

    def write(self, data: bytes) -> None:
        """Raise the error of uvloop."""
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    def abort(self) -> None:
        """Do nothing."""


async def test_call_written_to_closed_transport_is_repeated(embedded: Client, caplog: pytest.LogCaptureFixture) -> None:
    connection: Any = embedded._core.connection
    transport, connection.protocol.transport = connection.protocol.transport, ClosedTransport()
    call = embedded.exists("/")
    await asyncio.sleep(0)
    transport.abort()
    assert await call is not None  # repeated over the next connection
    assert logged(caplog) == []


async def test_client_with_closed_transport_can_be_closed(embedded: Client) -> None:
    connection: Any = embedded._core.connection
    transport, connection.protocol.transport = connection.protocol.transport, ClosedTransport()
    closing = asyncio.ensure_future(embedded.aclose())
    await asyncio.sleep(0)
    transport.abort()
    await closing

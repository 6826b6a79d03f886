"""TLS handshakes: a connection counts from its accept, and an unfinished handshake is closed after ten seconds."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
from support.frames import HELLO
from support.live_server import LiveServer, Serve
from support.tls_clients import CERTIFICATE_SETTINGS, client_context
from support.waiting import DEADLINE_S, until
from support.wire import reset_before_accept

from zoolet.server.admin.commands import BY_NAME, execute
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net import tls


@pytest.fixture
async def serve(serve: Serve) -> Serve:
    """A function that starts a server with a plain port and a TLS port; its arguments are fields of ServerConfig."""

    async def start(**config: Any) -> LiveServer:
        server = await serve(**config)
        await server.daemon.start_secure("127.0.0.1", 0, tls.context(CERTIFICATE_SETTINGS))
        return server

    return start


async def gets_session(live: LiveServer, local: str | None = None) -> bool:
    """Return whether a client gets a session over TLS."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            client = await live.dial_secure(local, context=client_context())
        return (await client.shake_hands()).session_id != 0
    except (OSError, asyncio.IncompleteReadError):
        return False


async def wait_until_session_granted(live: LiveServer) -> bool:
    """Wait until a client gets a session over TLS."""
    async with asyncio.timeout(DEADLINE_S):
        while not await gets_session(live):
            await asyncio.sleep(0.001)
    return True


# --- limits for the number of connections ---


async def test_silent_tls_connections_count_before_handshake(serve: Serve) -> None:
    live = await serve(max_client_cnxns=2)
    silent = [await live.dial_secure() for _ in range(2)]

    assert not await gets_session(live)
    assert len(silent) == 2


async def test_silent_tls_connections_do_not_affect_other_host(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1)
    await live.dial_secure()
    await live.dial_secure()

    assert await gets_session(live, "127.0.0.2")


async def test_silent_tls_and_plain_connections_count_together(serve: Serve) -> None:
    live = await serve(max_client_cnxns=2)
    await live.session()
    await live.dial_secure()

    assert not await gets_session(live)


async def test_excess_connection_is_closed_before_handshake(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1)
    await live.dial_secure()

    silent = await live.dial_secure()

    assert await silent.closed() == b""


async def test_tls_connections_count_in_total_on_accept(serve: Serve) -> None:
    live = await serve(max_cnxns=2, max_client_cnxns=0)
    await live.dial_secure("127.0.0.3")
    await live.dial_secure("127.0.0.4")

    assert not await gets_session(live)


async def test_silent_tls_connection_is_closed_in_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
    live = await serve(max_client_cnxns=1)
    silent = await live.dial_secure()

    assert await silent.closed() == b""
    assert await wait_until_session_granted(live)


async def test_partial_hello_does_not_extend_handshake_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
    live = await serve(max_client_cnxns=1)
    silent = await live.dial_secure()

    silent.send(b"\x16\x03\x01\x02\x00\x01")
    await silent.closed()

    assert await wait_until_session_granted(live)


def test_tls_handshake_timeout_is_ten_seconds() -> None:
    assert tls.HANDSHAKE_SECONDS == 10.0


@pytest.mark.parametrize("data", [b"ruok", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100), HELLO])
async def test_failed_handshake_no_longer_counts_toward_host_limit(serve: Serve, data: bytes) -> None:
    live = await serve(max_client_cnxns=1)
    silent = await live.dial_secure()
    silent.send(data)
    silent.end()
    await silent.closed()

    assert await wait_until_session_granted(live)


async def test_reset_during_handshake_frees_connection_for_host(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1)
    silent = await live.dial_secure()
    assert not await gets_session(live)

    await silent.reset()

    assert await wait_until_session_granted(live)


async def test_client_closing_tls_frees_connection_for_host(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1)
    client = await live.dial_secure(context=client_context())
    await client.shake_hands()

    client.writer.close()

    assert await wait_until_session_granted(live)


async def test_failed_handshake_frees_only_one_connection(serve: Serve) -> None:
    live = await serve(max_client_cnxns=1)
    silent = await live.dial_secure()
    silent.send(b"nonsense")
    await silent.closed()
    await wait_until_session_granted(live)
    live.clients[-1].writer.transport.abort()
    await until(lambda: not live.daemon.connections.open)

    kept = await live.dial_secure()

    assert not await gets_session(live)
    assert kept is not None


async def test_tls_connections_reset_before_accept_do_not_count(serve: Serve) -> None:
    live = await serve(max_client_cnxns=2, max_cnxns=2)
    resets = [reset_before_accept(live.daemon.secure_port) for _ in range(50)]

    await until(lambda: not live.daemon.connections.open)
    client = await live.dial_secure()
    client.writer.close()

    assert len(resets) == 50
    assert await wait_until_session_granted(live)


# --- after the handshake ---


async def test_connection_silent_after_handshake_is_closed_in_time(serve: Serve) -> None:
    live = await serve(settings=EngineSettings(tick_time=20, sessionless_timeout=40))
    silent = await live.dial_secure(context=client_context())

    assert await silent.closed() == b""


def open_and_send_nonsense(port: int) -> ssl.SSLSocket:
    """Shake hands, and send an invalid frame. The client never reads, so it never answers a close."""
    context = client_context()
    plain = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    secure.sendall(b"\xff" * 8)
    return secure


@pytest.mark.slow
async def test_tls_client_ignoring_close_is_dropped(serve: Serve) -> None:
    live = await serve()
    connection = await asyncio.to_thread(open_and_send_nonsense, live.daemon.secure_port)
    await until(lambda: not live.engine.connections)

    with connection:
        await until(lambda: not live.daemon.connections.open)

    assert not live.daemon.connections.open


# --- a stop during handshakes ---


async def test_stop_aborts_unfinished_handshakes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.daemon.STOP_SECONDS", 2 * DEADLINE_S)
    live = await serve()
    silent = [await live.dial_secure() for _ in range(3)]
    silent[2].send(b"\x16\x03\x01\x02\x00\x01")
    await live.dial_secure(context=client_context())  # all earlier connections have been accepted

    async with asyncio.timeout(DEADLINE_S):
        await live.stop(gracefully=False)

    assert [await client.closed() for client in silent] == [b"", b"", b""]


async def test_graceful_stop_does_not_wait_for_handshakes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.daemon.STOP_SECONDS", 2 * DEADLINE_S)
    live = await serve()
    silent = [await live.dial_secure() for _ in range(3)]
    await live.session("127.0.0.2")
    live.clients[-1].writer.transport.abort()

    async with asyncio.timeout(DEADLINE_S):
        await live.stop(gracefully=True)

    assert [await client.closed() for client in silent] == [b"", b"", b""]


async def test_stopped_server_has_no_tls_port(serve: Serve) -> None:
    live = await serve()

    async with asyncio.timeout(DEADLINE_S):
        await live.stop(gracefully=True)

    with pytest.raises(ConnectionRefusedError):
        await live.dial_secure()


@pytest.mark.parametrize("command", ["connections", "stats"])
async def test_tls_connections_are_listed_separately(serve: Serve, command: str) -> None:
    live = await serve()
    await live.session()
    assert await gets_session(live)

    shown = execute(BY_NAME[command], live.daemon.observed, {})

    plain, secure = (
        [each["remote_socket_address"] for each in shown[name]] for name in ("connections", "secure_connections")
    )
    ports = [client.writer.get_extra_info("sockname")[1] for client in live.clients]
    assert [plain, secure] == [[f"127.0.0.1:{port}"] for port in ports]

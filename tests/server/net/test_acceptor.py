"""The limits for connections, per host and in total."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support.live_server import Serve
from support.wire import StreamWire


async def is_admitted(client: StreamWire) -> bool:
    """Return whether the server accepts a client's handshake."""
    try:
        await client.shake_hands()
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


async def test_connection_above_host_limit_is_refused(serve: Serve) -> None:
    server = await serve(max_client_cnxns=3)

    clients = [await server.dial() for _ in range(4)]

    assert [await is_admitted(client) for client in clients] == [True, True, True, False]


async def test_refused_connection_is_closed_silently(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()

    assert await refused.rest() == b""


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_client_cnxns": 2}, "2 connections from this address are already open (maxClientCnxns)"),
        ({"max_cnxns": 2}, "2 connections are already open in total (maxCnxns)"),
        ({"max_client_cnxns": 3, "max_cnxns": 2}, "2 connections are already open in total (maxCnxns)"),
    ],
    ids=["one-address", "total", "the-lower-one"],
)
async def test_log_names_limit_of_refused_connection(
    serve: Serve, caplog: pytest.LogCaptureFixture, limits: dict[str, int], reason: str
) -> None:
    server = await serve(**limits)
    clients = [await server.dial() for _ in range(3)]

    assert await clients[-1].rest() == b""

    assert f"refusing a connection from 127.0.0.1: {reason}" in caplog.messages
    assert server.engine.metrics.refused["connections"] == 1


async def test_host_at_its_limit_does_not_affect_other_host(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial("127.0.0.1")
    await server.dial("127.0.0.1")

    other = await server.dial("127.0.0.2")

    assert await is_admitted(other)


async def test_closed_connection_no_longer_counts_toward_host_limit(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    first = await server.dial()
    assert await is_admitted(first)

    await first.close()
    await server.settle()

    assert await is_admitted(await server.dial())


async def test_end_of_refused_connection_frees_no_connection(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()
    await (await server.dial()).rest()

    assert not await is_admitted(await server.dial())


async def test_four_letter_word_counts_toward_host_limit(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()
    refused.send(b"srvr")

    with suppress(ConnectionError):  # the server may have closed the connection without reading the command
        assert await refused.rest() == b""


async def test_host_limit_of_zero_means_unlimited(serve: Serve) -> None:
    server = await serve(max_client_cnxns=0)

    clients = [await server.dial() for _ in range(100)]

    assert all([await is_admitted(client) for client in clients])


async def test_total_limit_counts_connections_of_all_hosts(serve: Serve) -> None:
    server = await serve(max_cnxns=2)

    clients = [await server.dial(f"127.0.0.{last}") for last in (1, 2, 3)]

    assert [await is_admitted(client) for client in clients] == [True, True, False]


async def test_closed_connection_no_longer_counts_toward_total_limit(serve: Serve) -> None:
    server = await serve(max_cnxns=1)
    first = await server.dial()
    assert await is_admitted(first)

    await first.close()
    await server.settle()

    assert await is_admitted(await server.dial("127.0.0.2"))

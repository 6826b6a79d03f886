"""How many connections there may be, of one host and in all."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from support.live_server import Serve
from support.raw_client import RawClient


async def admitted(client: RawClient) -> bool:
    """Return whether the server lets a client shake hands."""
    try:
        await client.shake_hands()
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


async def test_a_host_with_its_full_number_of_connections_gets_no_more(serve: Serve) -> None:
    server = await serve(max_client_cnxns=3)

    clients = [await server.dial() for _ in range(4)]

    assert [await admitted(client) for client in clients] == [True, True, True, False]


async def test_a_refused_connection_is_closed_silently(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()

    assert await refused.rest() == b""


async def test_a_full_host_takes_nothing_from_another_host(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial("127.0.0.1")
    await server.dial("127.0.0.1")

    other = await server.dial("127.0.0.2")

    assert await admitted(other)


async def test_a_connection_that_ends_makes_room_for_the_next(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    first = await server.dial()
    assert await admitted(first)

    await first.close()
    await server.settle()

    assert await admitted(await server.dial())


async def test_a_refused_connection_makes_no_room(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()
    await (await server.dial()).rest()

    assert not await admitted(await server.dial())


async def test_a_four_letter_word_needs_room_too(serve: Serve) -> None:
    server = await serve(max_client_cnxns=1)
    await server.dial()

    refused = await server.dial()
    refused.send(b"srvr")

    with suppress(ConnectionError):  # it was closed with the word unread
        assert await refused.rest() == b""


async def test_no_limit_for_a_host_is_no_limit(serve: Serve) -> None:
    server = await serve(max_client_cnxns=0)

    clients = [await server.dial() for _ in range(100)]

    assert all([await admitted(client) for client in clients])


async def test_the_total_counts_all_hosts(serve: Serve) -> None:
    server = await serve(max_cnxns=2)

    clients = [await server.dial(f"127.0.0.{last}") for last in (1, 2, 3)]

    assert [await admitted(client) for client in clients] == [True, True, False]


async def test_the_total_has_room_again_when_one_ends(serve: Serve) -> None:
    server = await serve(max_cnxns=1)
    first = await server.dial()
    assert await admitted(first)

    await first.close()
    await server.settle()

    assert await admitted(await server.dial("127.0.0.2"))

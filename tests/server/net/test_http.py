"""The HTTP server: what it answers, and what slow, large, broken and many clients get."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from zoolet.server.admin.http import HttpError, Request, Response

pytest.importorskip("h11")
from zoolet.server.net.http import HEALTH, MIN_PAUSE, HttpServer, Limits

QUICK: Final = Limits(body=1000, connections=3, seconds=0.2, idle=0.2)


async def echo(request: Request) -> Response:
    """Answer with what was received."""
    if request.path == "/refused":
        raise HttpError(403, "no", ("X-Reason", "test"))
    if request.path == "/defect":
        raise RuntimeError("planted")
    return Response(f"{request.method} {request.path} {len(request.body)}".encode())


@asynccontextmanager
async def served(limits: Limits = QUICK, answer: Any = echo, **options: Any) -> AsyncIterator[Any]:
    """Serve, and return a function that opens a connection."""
    server = HttpServer(answer, limits, **options)
    port = await server.start("127.0.0.1", 0)
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in writers:
            writer.close()
        await server.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one response."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body


async def asked(connect: Any, text: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes on a connection of their own; return the response."""
    reader, writer = await connect()
    writer.write(text)
    return await response(reader)


async def test_a_connection_serves_one_request_after_another() -> None:
    async with served() as connect:
        reader, writer = await connect()
        writer.write(
            b"GET /a?x=1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        )

        assert (await response(reader))[2] == b"GET /a 0"
        assert (await response(reader))[2] == b"POST /b 3"


async def test_a_refusal_is_json_and_a_defect_costs_one_request(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as connect:
        status, headers, body = await asked(connect, b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, headers["x-reason"], json.loads(body)) == (403, "test", {"error": "no"})

        status, _, body = await asked(connect, b"GET /defect HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, json.loads(body)) == (500, {"error": "RuntimeError: planted"})
        assert "GET .../defect has failed" in caplog.text
        assert (await asked(connect, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
    ],
)
async def test_what_is_malformed_or_too_large_is_refused_with_a_reason(text: bytes, status: int) -> None:
    async with served() as connect:
        found, headers, body = await asked(connect, text)

        assert (found, headers["content-type"]) == (status, "application/json")
        assert json.loads(body)["error"]


@pytest.mark.parametrize("text", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"])
async def test_a_slow_client_is_disconnected(text: bytes) -> None:
    async with served() as connect:
        reader, writer = await connect()
        writer.write(text)

        assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_the_quietest_connection_makes_room_for_the_next() -> None:
    async with served(QUICK._replace(idle=30.0)) as connect:
        quiet, _ = await connect()
        others = [await connect() for _ in range(2)]
        for reader, writer in others:
            writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            await response(reader)

        assert (await asked(connect, b"GET /new HTTP/1.1\r\nHost: x\r\n\r\n"))[2] == b"GET /new 0"

        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(quiet.readexactly(1), 5)
        others[0][1].write(b"GET /still HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await response(others[0][0]))[2] == b"GET /still 0"


async def test_a_head_has_no_body() -> None:
    async with served() as connect:
        reader, writer = await connect()
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

        text = await asyncio.wait_for(reader.read(), 5)

        assert text.endswith(b"\r\n\r\n")
        assert b"Content-Length: 9\r\n" in text


@pytest.mark.parametrize("path", ["/", *HEALTH])
async def test_many_requests_at_once_leave_half_of_the_time_to_others(path: str) -> None:
    spent = 0.0

    async def slow(request: Request) -> Response:
        nonlocal spent
        started = time.perf_counter()
        while time.perf_counter() - started < 0.002:
            pass
        spent += time.perf_counter() - started
        return Response(b"ok")

    server = HttpServer(slow, Limits())
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 100)
    for _ in range(100):
        await response(reader)
    took = time.perf_counter() - started
    writer.close()
    await server.close()

    assert spent < 0.6 * took


@pytest.mark.parametrize("path", ["/", *HEALTH])
async def test_requests_that_cost_nothing_have_pauses_too(path: str) -> None:
    async def quick(request: Request) -> Response:
        return Response(b"ok")

    server = HttpServer(quick, Limits())
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 100)
    for _ in range(100):
        await response(reader)

    took = time.perf_counter() - started
    writer.close()
    await server.close()

    assert took > 99 * MIN_PAUSE


async def test_a_health_check_does_not_wait_for_other_requests() -> None:
    may_answer = asyncio.Event()

    async def answer(request: Request) -> Response:
        if request.path == "/":
            await may_answer.wait()
        return Response(b"ok")

    async with served(Limits(), answer) as connect:
        (reader, writer), (other_reader, other_writer) = await connect(), await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        other_writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

        await response(other_reader)

        may_answer.set()
        await response(reader)


async def test_a_client_that_does_not_read_is_forgotten_with_its_output() -> None:
    async def large(request: Request) -> Response:
        return Response(bytes(20_000_000))

    server = HttpServer(large, QUICK)
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(5):
        while not server.open_connections:
            await asyncio.sleep(0.01)
        while server.open_connections:
            await asyncio.sleep(0.01)
    writer.close()
    await server.close()


# --- bodies that come piece by piece, and requests that are admitted ---


class Pieces:
    """A stream that remembers its end.

    Args:
        *pieces: What it yields; an exception is raised.
    """

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed += 1


async def test_a_stream_of_unknown_length_is_sent_in_chunks() -> None:
    stream = Pieces(b"abc", b"de")

    async with served(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), 5)

    assert b"transfer-encoding: chunked" in text.lower()
    assert text.endswith(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert stream.closed == 1


async def test_a_stream_of_known_length_is_sent_as_it_is_and_another_request_may_follow() -> None:
    stream = Pieces(b"abc", b"de")

    async with served(answer=streaming(stream, ("Content-Length", "5"))) as connect:
        reader, writer = await connect()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await response(reader))[2] == b"abcde"

    assert stream.closed == 2


async def test_of_a_stream_head_gets_the_headers_alone() -> None:
    stream = Pieces(b"abc")

    async with served(answer=streaming(stream, ("Content-Length", "3"))) as connect:
        reader, writer = await connect()
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), 5)

    assert text.endswith(b"\r\n\r\n")
    assert stream.closed == 1


async def test_a_stream_that_fails_ends_the_connection_before_its_end_and_is_logged() -> None:
    stream = Pieces(b"abc", RuntimeError("planted"))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context["exception"]))
    logged: list[Exception] = []

    async with served(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 5)

    assert list(map(str, logged)) == ["planted"]
    assert stream.closed == 1


async def test_a_client_that_does_not_read_a_stream_is_disconnected() -> None:
    stream = Pieces(*[bytes(1 << 20)] * 64)

    async with served(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while not stream.closed:
            await asyncio.sleep(0.01)
        with suppress(ConnectionResetError):
            assert b"0\r\n\r\n" not in (await reader.read())[-10:]


async def test_an_admitted_request_may_have_a_greater_body_and_takes_no_room_of_the_others() -> None:
    async with served(admit=lambda request: 1 << 20 if request.path == "/big" else None) as connect:
        reader, writer = await connect()
        writer.write(b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + bytes(99_999))

        assert (await asked(connect, b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"))[2] == b"POST /b 3"
        writer.write(b"x")
        assert (await response(reader))[2] == b"POST /big 100000"


async def test_a_request_is_refused_before_its_body_is_received() -> None:
    def admit(request: Request) -> int | None:
        raise HttpError(401, "no")

    async with served(admit=admit) as connect:
        status, headers, _ = await asked(connect, b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n")

    assert (status, headers["connection"]) == (401, "close")


def streaming(stream: Pieces, *headers: tuple[str, str]) -> Any:
    """Return what answers each request with a stream."""

    async def answer(request: Request) -> Response:
        return Response(headers=headers, stream=stream)

    return answer


async def test_a_connection_that_is_being_answered_does_not_make_room() -> None:
    may_answer = asyncio.Event()

    is_waiting = asyncio.Event()

    async def answer(request: Request) -> Response:
        if request.path == "/slow":
            is_waiting.set()
            await may_answer.wait()
        return Response(b"done")

    async with served(Limits(connections=3, seconds=5, idle=5, paced=False), answer) as connect:
        reader, writer = await connect()
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(is_waiting.wait(), 5)
        for _ in range(10):
            assert (await asked(connect, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        may_answer.set()

        assert (await response(reader))[2] == b"done"


async def test_when_all_are_being_answered_others_may_ask_for_the_health_only() -> None:
    async with served(Limits(connections=2, seconds=5, idle=5), streaming(Endless())) as connect:
        for _ in range(2):
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"tick"), 5)

        assert (await asked(connect, b"GET /more HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 503
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"tick"), 5)


class Endless(Pieces):
    """A stream without an end."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"tick"
            await asyncio.sleep(0.01)

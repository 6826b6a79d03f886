"""The HTTP server: its answers, its limits, and slow, broken, large and numerous requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.server.admin.http import HttpError, HttpRequest, Response, Route

pytest.importorskip("h11")
from zoolet.server.net import http as module
from zoolet.server.net.http import HEALTH_CHECK_PATHS, MAX_FULL_BODIES, MIN_PAUSE, FindRoute, HttpServer, Limits

QUICK_LIMITS: Final = Limits(body=1000, connections=3, seconds=0.2, idle=0.2)


async def echo(request: HttpRequest) -> Response:
    """Answer with the received request."""
    if request.path == "/refused":
        raise HttpError(403, "no", ("X-Reason", "test"))
    if request.path == "/defect":
        raise RuntimeError("planted")
    return Response(f"{request.method} {request.path} {len(request.body)}".encode())


def all_to(answer: Any) -> FindRoute:
    """Return the same route for each request."""
    return lambda request: (Route((), "/*", answer), request)


@asynccontextmanager
async def run_http_server(
    limits: Limits = QUICK_LIMITS, answer: Any = echo, find_route: Any = None
) -> AsyncIterator[Any]:
    """Run a server, and yield a function that opens a connection."""
    server = HttpServer(find_route or all_to(answer), limits)
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
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body


async def send_request(connect: Any, text: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes on a new connection, and return the response."""
    reader, writer = await connect()
    writer.write(text)
    return await response(reader)


async def test_connection_serves_consecutive_requests() -> None:
    async with run_http_server() as connect:
        reader, writer = await connect()
        writer.write(
            b"GET /a?x=1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        )

        assert (await response(reader))[2] == b"GET /a 0"
        assert (await response(reader))[2] == b"POST /b 3"


async def test_refusal_is_json_and_defect_fails_only_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async with run_http_server() as connect:
        status, headers, body = await send_request(connect, b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, headers["x-reason"], json.loads(body)) == (403, "test", {"error": "no"})

        status, _, body = await send_request(connect, b"GET /defect HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (status, json.loads(body)) == (500, {"error": "RuntimeError: planted"})
        assert "HTTP request GET .../defect from 127.0.0.1 failed" in caplog.text
        assert (await send_request(connect, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200


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
async def test_invalid_http_request_is_refused_with_reason(text: bytes, status: int) -> None:
    async with run_http_server() as connect:
        found, headers, body = await send_request(connect, text)

        assert (found, headers["content-type"]) == (status, "application/json")
        assert json.loads(body)["error"]


@pytest.mark.parametrize("head", [b"Content-Length: 3000000", b"Transfer-Encoding: chunked", b"Bad Header"])
async def test_client_sending_whole_body_first_reads_refusal(head: bytes) -> None:
    async with run_http_server() as connect:
        reader, writer = await connect()
        body = bytes(3_000_000) if b"chunked" not in head else b"2dc6c0\r\n" + bytes(3_000_000) + b"\r\n0\r\n\r\n"
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + body)
        await writer.drain()

        status, headers, _ = await response(reader)
        assert (status, headers["connection"]) == (400 if b"Bad" in head else 413, "close")
        assert await reader.read() == b""


async def test_body_after_refusal_is_read_for_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINGER", 0.05)
    async with run_http_server() as connect:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n" + bytes(2000))
        assert (await response(reader))[0] == 413

        async def send() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

        with pytest.raises((ConnectionError, RuntimeError)):  # uvloop 0.19 raises RuntimeError: the handler is closed
            await asyncio.wait_for(send(), DEADLINE_S)


async def test_request_with_length_and_chunks_closes_connection() -> None:
    async with run_http_server() as connect:
        reader, writer = await connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        writer.write_eof()

        status, headers, body = await response(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert b"Transfer-Encoding" in body
        assert await reader.read() == b""


@pytest.mark.parametrize("text", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"])
async def test_slow_http_client_is_disconnected(text: bytes) -> None:
    async with run_http_server() as connect:
        reader, writer = await connect()
        writer.write(text)

        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""


async def test_longest_idle_connection_is_closed_for_new_one_at_limit() -> None:
    async with run_http_server(QUICK_LIMITS._replace(idle=30.0)) as connect:
        quiet, _ = await connect()
        others = [await connect() for _ in range(2)]
        for reader, writer in others:
            writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            await response(reader)

        assert (await send_request(connect, b"GET /new HTTP/1.1\r\nHost: x\r\n\r\n"))[2] == b"GET /new 0"

        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(quiet.readexactly(1), DEADLINE_S)
        others[0][1].write(b"GET /still HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await response(others[0][0]))[2] == b"GET /still 0"


async def test_reply_to_head_request_has_no_body() -> None:
    async with run_http_server() as connect:
        reader, writer = await connect()
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

        text = await asyncio.wait_for(reader.read(), DEADLINE_S)

        assert text.endswith(b"\r\n\r\n")
        assert b"Content-Length: 9\r\n" in text


@pytest.mark.parametrize("path", ["/", *HEALTH_CHECK_PATHS])
async def test_slow_http_requests_take_at_most_half_of_time(path: str) -> None:
    spent = 0.0

    async def slow(request: HttpRequest) -> Response:
        nonlocal spent
        started = time.perf_counter()
        while time.perf_counter() - started < 0.002:
            pass
        spent += time.perf_counter() - started
        return Response(b"ok")

    server = HttpServer(all_to(slow), Limits())
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


@pytest.mark.parametrize("path", ["/", *HEALTH_CHECK_PATHS])
async def test_cheap_http_requests_are_paced(path: str) -> None:
    async def quick(request: HttpRequest) -> Response:
        return Response(b"ok")

    server = HttpServer(all_to(quick), Limits())
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


async def test_health_check_does_not_wait_for_other_requests() -> None:
    may_answer = asyncio.Event()

    async def answer(request: HttpRequest) -> Response:
        if request.path == "/":
            await may_answer.wait()
        return Response(b"ok")

    async with run_http_server(Limits(), answer) as connect:
        (reader, writer), (other_reader, other_writer) = await connect(), await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        other_writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

        assert (await response(other_reader))[0] == 200

        may_answer.set()
        await response(reader)


async def test_non_reading_http_client_is_dropped_with_its_output() -> None:
    async def large(request: HttpRequest) -> Response:
        return Response(bytes(20_000_000))

    server = HttpServer(all_to(large), QUICK_LIMITS)
    port = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(DEADLINE_S):
        while not server.open_connections:
            await asyncio.sleep(0.01)
        while server.open_connections:
            await asyncio.sleep(0.01)
    writer.close()
    await server.close()


# --- streamed bodies, and requests with larger bodies ---


class Pieces:
    """A stream that records whether it was closed.

    Args:
        *pieces: The pieces to yield; exceptions are raised.
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


async def test_stream_of_unknown_length_is_sent_in_chunks() -> None:
    stream = Pieces(b"abc", b"de")

    async with run_http_server(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), DEADLINE_S)

    assert b"transfer-encoding: chunked" in text.lower()
    assert text.endswith(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert stream.closed == 1


async def test_stream_of_known_length_allows_next_request() -> None:
    stream = Pieces(b"abc", b"de")

    async with run_http_server(answer=streaming(stream, ("Content-Length", "5"))) as connect:
        reader, writer = await connect()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await response(reader))[2] == b"abcde"

    assert stream.closed == 2


async def test_head_request_for_stream_returns_only_headers() -> None:
    stream = Pieces(b"abc")

    async with run_http_server(answer=streaming(stream, ("Content-Length", "3"))) as connect:
        reader, writer = await connect()
        writer.write(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), DEADLINE_S)

    assert text.endswith(b"\r\n\r\n")
    assert stream.closed == 1


async def test_failing_stream_disconnects_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = Pieces(b"abc", RuntimeError("planted"))

    async with run_http_server(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), DEADLINE_S)

    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["planted"]
    assert stream.closed == 1


async def test_client_not_reading_stream_is_disconnected() -> None:
    stream = Pieces(*[bytes(1 << 20)] * 64)

    async with run_http_server(answer=streaming(stream)) as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while not stream.closed:
            await asyncio.sleep(0.01)
        with suppress(ConnectionResetError):
            assert b"0\r\n\r\n" not in (await reader.read())[-10:]


async def test_route_may_accept_larger_body_with_own_limit() -> None:
    def find_route(request: HttpRequest) -> tuple[Route, HttpRequest]:
        return Route((), "/*", echo, body=1 << 20 if request.path == "/big" else None), request

    async with run_http_server(find_route=find_route) as connect:
        reader, writer = await connect()
        writer.write(b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + bytes(99_999))

        assert (await send_request(connect, b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"))[
            2
        ] == b"POST /b 3"
        writer.write(b"x")
        assert (await response(reader))[2] == b"POST /big 100000"


async def test_all_bodies_in_progress_share_one_limit() -> None:
    """Neither a large body with a limit of its own nor a refused body changes the total of the others."""

    def find_route(request: HttpRequest) -> tuple[Route, HttpRequest]:
        return Route((), "/*", echo, body=1 << 20 if request.path == "/big" else None), request

    head = b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    async with run_http_server(
        Limits(body=1000, connections=10, seconds=2 * DEADLINE_S), find_route=find_route
    ) as connect:
        big = b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000)
        assert (await send_request(connect, big))[0] == 200
        for _ in range(2):
            writers: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
            for _ in range(MAX_FULL_BODIES + 1):
                reader, writer = await connect()
                writer.write(head + bytes(999))
                writers[asyncio.create_task(response(reader))] = writer
            await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
            for writer in writers.values():
                writer.write(b"x")

            assert sorted([(await answered)[0] for answered in writers]) == [200] * MAX_FULL_BODIES + [503]


async def test_request_is_refused_before_body_is_received() -> None:
    async with run_http_server(find_route=refuse) as connect:
        status, headers, _ = await send_request(connect, b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n")

    assert (status, headers["connection"]) == (401, "close")


async def test_refusal_of_request_without_body_keeps_connection() -> None:
    async with run_http_server(find_route=refuse) as connect:
        reader, writer = await connect()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await response(reader))[0] == 401


async def test_refused_http_requests_are_paced() -> None:
    async with run_http_server(Limits(), find_route=refuse) as connect:
        reader, writer = await connect()
        started = time.perf_counter()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        for _ in range(50):
            await response(reader)

    assert time.perf_counter() - started > 49 * MIN_PAUSE


def refuse(request: HttpRequest) -> tuple[Route, HttpRequest]:
    """Refuse each request."""
    raise HttpError(401, "no")


def streaming(stream: Pieces, *headers: tuple[str, str]) -> Any:
    """Return a function that answers each request with a stream."""

    async def answer(request: HttpRequest) -> Response:
        return Response(headers=headers, stream=stream)

    return answer


async def test_busy_connection_is_not_closed_at_limit() -> None:
    may_answer = asyncio.Event()

    is_waiting = asyncio.Event()

    async def answer(request: HttpRequest) -> Response:
        if request.path == "/slow":
            is_waiting.set()
            await may_answer.wait()
        return Response(b"done")

    async with run_http_server(Limits(connections=3, seconds=5, idle=5, paced=False), answer) as connect:
        reader, writer = await connect()
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(is_waiting.wait(), DEADLINE_S)
        for _ in range(10):
            assert (await send_request(connect, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        may_answer.set()

        assert (await response(reader))[2] == b"done"


async def test_only_health_checks_are_answered_at_request_limit() -> None:
    async with run_http_server(Limits(connections=2, seconds=5, idle=5), streaming(Endless())) as connect:
        for _ in range(2):
            reader, writer = await connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"tick"), DEADLINE_S)

        assert (await send_request(connect, b"GET /more HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 503
        reader, writer = await connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"tick"), DEADLINE_S)


class Endless(Pieces):
    """A stream without an end."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b"tick"
            await asyncio.sleep(0.01)

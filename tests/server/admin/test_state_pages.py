"""The commands snapshot and restore over HTTP: one at a time, refusals, and no leftovers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from support.calls import engine_with_settings
from support.http import answer

from zoolet.server.admin.http import LOCAL_NAMES, HttpError, HttpRequest, Response
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.admin.pages import AdminPages
from zoolet.server.admin.state_pages import MAX_BODY

TOKEN: Final = "a-token-of-the-tests"
HEADERS: Final = {"host": "127.0.0.1:8080", "authorization": f"Bearer {TOKEN}"}


class Encoding:
    """A snapshot of eight bytes."""

    zxid = 0x13
    ended = 0

    async def size(self) -> int:
        return 8

    async def pieces(self) -> AsyncIterator[bytes]:
        yield b"abcd"
        yield b"efgh"

    async def end(self) -> None:
        self.ended += 1


class BrokenEncoding(Encoding):
    async def size(self) -> int:
        raise OSError("the process has ended")


class State:
    """A stand-in for the state of a server. Its methods raise *error*, if given."""

    def __init__(self, *, has_files: bool = True, error: Exception | None = None) -> None:
        self.has_files = has_files
        self.error = error
        self.encoding = Encoding()
        self.restored: list[bytes] = []

    def snapshot(self) -> Encoding:
        return self.encoding

    async def write_snapshot(self) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        return 0x14, 100

    async def restore(self, data: bytes) -> int:
        if self.error is not None:
            raise self.error
        self.restored.append(data)
        return 7


def pages(state: State | None) -> AdminPages:
    return AdminPages(MonitoredServer(engine_with_settings()), TOKEN, LOCAL_NAMES, transfer=state)


async def ask(of: AdminPages, command: str, method: str = "GET", body: bytes = b"", **headers: str) -> Response:
    return await answer(of.router, HttpRequest(method, f"/commands/{command}", {**HEADERS, **headers}, body))


async def refusal(of: AdminPages, command: str, method: str = "GET", body: bytes = b"", **headers: str) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await ask(of, command, method, body, **headers)
    return caught.value


def body_of(response: Response) -> Any:
    return json.loads(response.body)


async def test_snapshot_response_has_zxid_and_size() -> None:
    response = await ask(pages(State()), "snap")

    assert response.content_type == "application/octet-stream"
    assert dict(response.headers) == {"last_zxid": "0x13", "snapshot_size": "8", "Content-Length": "8"}
    assert response.stream is not None
    assert b"".join([piece async for piece in response.stream]) == b"abcdefgh"


async def test_only_one_snapshot_is_made_at_a_time() -> None:
    state = State()
    of = pages(state)
    first = await ask(of, "snapshot")

    for command, method in (("snapshot", "GET"), ("snapshot?streaming=false", "GET"), ("restore", "POST")):
        assert (await refusal(of, command, method, b"x")).status == 429
    assert first.stream is not None
    await first.stream.aclose()  # closed without a read, as if the client had disconnected

    assert state.encoding.ended == 1
    assert (await ask(of, "snapshot")).status == 200


async def test_snapshot_succeeds_after_failed_snapshot() -> None:
    state = State()
    state.encoding = BrokenEncoding()
    of = pages(state)

    assert (await refusal(of, "snapshot")).status == 500
    assert state.encoding.ended == 1
    state.encoding = Encoding()
    assert (await ask(of, "snapshot")).status == 200


@pytest.mark.parametrize("value", ["false", "FALSE", "no"])
async def test_unstreamed_snapshot_returns_only_metadata(value: str) -> None:
    response = await ask(pages(State()), f"snapshot?streaming={value}")

    assert body_of(response) == {"command": "snapshot", "error": None}
    assert dict(response.headers) == {"last_zxid": "0x14", "snapshot_size": "100"}


async def test_restore_replies_with_last_zxid() -> None:
    state = State()

    response = await ask(pages(state), "rest", "POST", b"a snapshot")

    assert body_of(response) == {"last_zxid": 7, "command": "restore", "error": None}
    assert state.restored == [b"a snapshot"]


@pytest.mark.parametrize(
    ("how", "command", "body", "status"),
    [
        ({"has_files": False}, "snapshot?streaming=false", b"", 503),
        ({"error": OSError("disk full")}, "snapshot?streaming=false", b"", 500),
        ({}, "restore", b"", 400),
        ({"error": ValueError("no snapshot")}, "restore", b"x", 400),
        ({"error": OSError("disk full")}, "restore", b"x", 500),
        (None, "snapshot", b"", 503),
        (None, "restore", b"x", 503),
    ],
)
async def test_invalid_snapshot_or_restore_request_is_refused(
    how: dict[str, Any] | None, command: str, body: bytes, status: int
) -> None:
    state = State(**how) if how is not None else None
    of = pages(state)
    method = "POST" if command == "restore" else "GET"

    error = await refusal(of, command, method, body)

    assert error.status == status
    if state is not None:
        state.error = None
        assert (await ask(of, "restore", "POST", b"x")).status == 200  # the refused request does not count as running


async def test_restore_continues_after_client_disconnects() -> None:
    state = State()
    of = pages(state)
    goes_on = asyncio.Event()
    restored = state.restore

    async def slow(data: bytes) -> int:
        await goes_on.wait()
        return await restored(data)

    state.restore = slow  # type: ignore[method-assign]
    request = asyncio.create_task(ask(of, "restore", "POST", b"first"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request

    assert (await refusal(of, "restore", "POST", b"second")).status == 429
    goes_on.set()
    while not state.restored:
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert state.restored == [b"first"]
    assert (await ask(of, "restore", "POST", b"third")).status == 200


def test_restore_is_refused_before_body_is_received() -> None:
    of = pages(State())

    def limit(method: str = "POST", target: str = "/commands/restore", **headers: str) -> int | None:
        route, _ = of.router.find_route(HttpRequest(method, target, {**HEADERS, **headers}))
        return route.body

    assert limit() == limit(target="/commands/rest/") == MAX_BODY
    assert limit(target="/commands/snapshot") is limit("GET", "/metrics") is None
    for wrong, status in (({"authorization": "Bearer x"}, 401), ({"host": "evil.example"}, 403)):
        with pytest.raises(HttpError) as caught:
            limit(**wrong)
        assert caught.value.status == status
    with pytest.raises(HttpError) as caught:
        limit("GET")
    assert caught.value.status == 405


def test_only_one_restore_body_is_received_at_a_time() -> None:
    route, _ = pages(State()).router.find_route(HttpRequest("POST", "/commands/restore", HEADERS))

    with route.hold(), pytest.raises(HttpError) as caught, route.hold():
        pass
    with pytest.raises(ConnectionResetError), route.hold():
        raise ConnectionResetError

    assert (caught.value.status, caught.value.headers) == (429, (("Retry-After", "1"),))
    with route.hold():
        pass


@pytest.mark.parametrize("command", ["snapshot", "restore"])
def test_snapshot_and_restore_need_token(command: str) -> None:
    method = "POST" if command == "restore" else "GET"

    assert asyncio.run(refusal(pages(State()), command, method, b"x", authorization="")).status == 401

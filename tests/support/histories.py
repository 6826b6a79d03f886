"""Histories of many clients in virtual time, and functions that change single answers in a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from zoolet.client import Client
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.testing import Simulation
from zoolet.testing.frames.requests import CONNECT, Entry, RecordedEvent, RecordedRequest, paths_in

HEADER = 16


def record_history(seed: int, size: int, clients: int = 4) -> list[Entry]:
    """Record the traffic of a server and some clients that read, write, watch, lock and fail, in virtual time."""
    sim = Simulation(seed)
    recorded: list[Entry] = []

    async def main() -> None:
        async with sim.server() as server:
            with server.check_history() as recording:
                await asyncio.gather(*(run(server.hosts, Random(f"{seed} {n}"), recording) for n in range(clients)))
            recorded.extend(recording.entries)

    async def run(hosts: str, rng: Random, recording: Any) -> None:
        while len(recording.entries) < size:
            async with Client(hosts, timeout=8.0) as zk:
                for _ in range(rng.randrange(50, 150)):
                    await asyncio.sleep(rng.uniform(0.0, 0.05))
                    with suppress(ZooKeeperError):
                        await one(zk, rng)
                    if len(recording.entries) >= size:
                        break

    sim.run(main())
    return recorded


async def one(zk: Client, rng: Random) -> None:
    """Run a random operation on one of a few nodes."""
    path = f"/n{rng.randrange(6)}"
    match rng.randrange(12):
        case 0:
            await zk.create(path, b"%d" % rng.randrange(1000))
        case 1:
            await zk.create(path, b"e", ephemeral=True)
        case 2 | 3:
            _, stat = await zk.get(path)
            await zk.set(path, b"%d" % rng.randrange(1000), version=stat.version)
        case 4:
            await zk.set(path, b"%d" % rng.randrange(1000))
        case 5:
            await zk.delete(path)
        case 6:
            await zk.create("/q/n-", sequential=True, parents=True)
        case 7:
            async with zk.lock("/lock"):
                await zk.exists(path)
        case 8:
            async with zk.transaction() as t:
                t.set(path, b"m")
                t.create(f"{path}/m-", b"", sequential=True)
        case 9:
            async with zk.watch(path) as events:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await anext(aiter(events))
        case 10:
            await zk.children(rng.choice(["/", "/q", path]))
        case _:
            await zk.exists(path)


# --- finding and changing entries ---


def request_places(entries: list[Entry], *ops: OpCode, **wanted: Any) -> list[int]:
    """Return the indexes of successful requests with one of these op codes and with these field values."""
    return [
        place
        for place, entry in enumerate(entries)
        if isinstance(entry, RecordedRequest)
        and entry.opcode in ops
        and entry.error == 0
        and not any(entry.part_errors)
        and all(getattr(entry, name) == value for name, value in wanted.items())
    ]


def request_at(entries: list[Entry], place: int) -> RecordedRequest:
    """Return the decoded request at an index."""
    entry = entries[place]
    assert isinstance(entry, RecordedRequest)
    return entry


def reply_zxid(entry: Entry) -> int:
    """Return the zxid in the header of an answer."""
    assert isinstance(entry, RecordedRequest)
    return r.ReplyHeader.decode(entry.reply).zxid


def with_zxid(entry: Entry, number: int) -> RecordedRequest:
    """Return a copy of an answer with a different zxid."""
    assert isinstance(entry, RecordedRequest)
    header = r.ReplyHeader.decode(entry.reply)
    return entry._replace(reply=r.ReplyHeader(header.xid, number, header.err).encode() + entry.reply[HEADER:])


def reply_record(entry: Entry, kind: type) -> Any:
    """Return the record in a reply."""
    assert isinstance(entry, RecordedRequest)
    return kind.decode(entry.reply, HEADER)  # type: ignore[attr-defined]


def with_answer(entry: Entry, record: Any) -> RecordedRequest:
    """Return a copy of an answer with a different record."""
    assert isinstance(entry, RecordedRequest)
    return entry._replace(reply=entry.reply[:HEADER] + record.encode())


def with_stat(entry: Entry, kind: type, **fields: int) -> RecordedRequest:
    """Return a copy of an answer with different fields in its Stat."""
    record = reply_record(entry, kind)
    stat = r.Stat(**{name: getattr(record.stat, name) for name in r.Stat.__slots__} | fields)
    others = {name: getattr(record, name) for name in kind.__slots__ if name != "stat"}  # type: ignore[attr-defined]
    return with_answer(entry, kind(**others, stat=stat))


def with_error(entry: Entry, code: int, number: int | None = None) -> RecordedRequest:
    """Return a copy of an answer turned into an error, with zxid *number* if it is given."""
    assert isinstance(entry, RecordedRequest)
    header = r.ReplyHeader.decode(entry.reply)
    reply = r.ReplyHeader(header.xid, header.zxid if number is None else number, code).encode()
    return entry._replace(reply=reply, error=code)


def request_path(entry: Entry) -> str:
    """Return the path of a request."""
    assert isinstance(entry, RecordedRequest)
    return paths_in(entry.opcode, entry.body)[0]


def is_event(entry: Entry) -> bool:
    """Return whether an entry is an event."""
    return isinstance(entry, RecordedEvent)


Plant = Callable[[list[Entry], Random], None]
__all__ = ["CONNECT", "Plant", "record_history"]


# --- handwritten histories ---


def answered_request(
    client: int, zxid: int, opcode: OpCode, body: Record, reply: Record | None = None
) -> RecordedRequest:
    """Return a successful request of a client."""
    payload = r.ReplyHeader(1, zxid, 0).encode() + (b"" if reply is None else reply.encode())
    return RecordedRequest(client, client, int(opcode), body.encode(), zxid, 0, (), "", 0.0, payload)


def make_stat(mzxid: int, version: int) -> r.Stat:
    """Return the stat of a node without data or children."""
    return r.Stat(1, mzxid, 0, 0, version, 0, 0, 0, 0, 0, 1)

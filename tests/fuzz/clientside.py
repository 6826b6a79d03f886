"""Broken servers for the client's session: whatever bytes arrive, it continues or raises ConnectionBroken.

A session talks to a server in process. The server's output is mutated on the way, in the same ways as requests, and
sometimes a reply or an event is invented. Calls are always pending, watches of every kind are set, and each call must
have exactly one outcome. The session is driven like :mod:`zoolet.client.aio.connection` drives it (begin, receive,
tick, lost), and a closed session is replaced by a new one::

    python -m fuzz.clientside [--frames 1000000] [--seed 1]
    python -m fuzz.clientside --replay SEED:EPOCH
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Any, Final

from fuzz import engines, frames

from zoolet.client.wire.phases import ConnectionBroken, ConnectionPhase
from zoolet.client.wire.resync import SubtreeResync
from zoolet.client.wire.session import ClientSession
from zoolet.client.wire.watches import Registration, WatchKind
from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int, put_bytes, put_str
from zoolet.protocol.errors import NoNodeError, ZooKeeperError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode

FRAMES_PER_EPOCH: Final = 5_000
"""Number of frames from a server in one epoch."""
MAX_DEPTH: Final = 1_500
"""Levels of the deepest invented path; Python allows about a thousand nested calls."""
FORECAST_FRAMES_PER_SECOND: Final = 15_000
"""Frames per second, used only for the forecast."""
_LISTS: Final = (OpCode.MULTI, OpCode.MULTI_READ)


class Call:
    """A request that must have exactly one outcome."""

    def __init__(
        self, op: int, body: bytes, deadline: float, idempotent: bool, then: Callable[..., None] | None = None
    ) -> None:
        self.op = op
        self.body = body
        self.path: str | None = "/a"
        self.deadline = deadline
        self.idempotent = idempotent
        self.then = then
        self.xid = 0
        self.retries_throttled = False
        self.sent_at = 0.0
        self.outcome: object = None
        self._done = False
        self._callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        self._callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        self._callbacks.remove(callback)
        return 1

    def decode(self, buf: bytes, at: int, stop: int) -> object:
        if self.op in _LISTS:
            return wire.decode_results(buf[:stop], at)
        operation = OPERATIONS.get(OpCode(self.op)) if self.op in list(OpCode) else None
        return operation.response.decode(buf, at, stop) if operation and operation.response else None

    def done(self) -> bool:
        return self._done

    def cancel(self) -> None:
        self._done = True
        for callback in list(self._callbacks):
            callback(self)

    def set_result(self, result: Any, /) -> None:
        engines.fail_unless(not self._done, "a call has two outcomes", self.op)
        self.outcome, self._done = result, True

    def set_exception(self, exception: BaseException, /) -> None:
        if not isinstance(exception, ZooKeeperError):
            raise exception
        self.set_result(exception)

    def refuse(self, error: ZooKeeperError) -> None:
        self.set_exception(error)


class BrokenServer:
    """A session and its server, whose output is mutated on the way to the session.

    Args:
        rng: Source of all choices.
        pool: Valid requests, for calls.
        number: Number of the epoch, which selects the settings of both sides.
    """

    def __init__(self, rng: Random, pool: list[bytes], number: int) -> None:
        self.rng = rng
        self.pool = pool
        self.number = number
        self.engine = engines.engine_for(number)
        self.lie = (0.02, 0.1, 0.4)[number % 3]
        self.now = 1.0
        self.frames = self.broken = 0
        self.calls: list[Call] = []
        self.session = self._fresh()
        self.connection = self._connect()

    def _fresh(self) -> ClientSession:
        rng = self.rng
        login = ("alice", rng.choice(("wonder", "x"))) if rng.random() < 0.4 else None
        session = ClientSession(rng.choice((4000, 40_000)), rng, read_only=rng.random() < 0.3, login=login)
        if rng.random() < 0.5:
            session.add_credential(
                "digest", rng.choice(frames.CREDENTIALS), Call(OpCode.AUTH, b"", self.now + 9, False)
            )
        session.watches.forget = lambda path, kind: self._submit(OpCode.REMOVE_WATCHES, put_str(path) + pack_int(kind))
        for path in ("/", "/a", "/a/b", "/c"):
            for kind in WatchKind:
                self._watch(session, kind, path)
        return session

    def _watch(self, session: ClientSession, kind: WatchKind, path: str) -> None:
        watch = Registration(kind, path, 50, lambda: None)
        session.watches.add(watch)
        if kind is WatchKind.RECURSIVE:
            watch.resync = SubtreeResync(path, watch.put, self._ask)

    def _ask(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        def then(found: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                answered(found)
            elif isinstance(error, NoNodeError):
                answered(None)

        if len(self.session.waiting) + len(self.session.parked) < 500:
            self._submit(OpCode.GET_CHILDREN2, put_str(path) + b"\0", then)

    def _submit(self, op: int, body: bytes, then: Callable[..., None] | None = None) -> None:
        if self.session.terminal_error is None:
            call = Call(op, body, self.now + 20, op in (3, 4, 8, 12), then)
            self.session.submit(call)
            self.calls.append(call)

    def _connect(self) -> engines.Connection:
        connection = engines.connection_to(self.engine, "127.0.0.1")
        self.session.start(self.now)
        return connection

    # --- one turn ---

    def turn(self) -> None:
        """Make some calls, let the server answer, and let the client read the mutated answers.

        Raises:
            Exception: The session raised anything but ConnectionBroken.
        """
        rng, session = self.rng, self.session
        self.now += rng.random() * 0.2
        for _ in range(rng.randrange(8)):
            whole = rng.choice(self.pool)
            op = int.from_bytes(whole[8:12], "big", signed=True)
            if op in OPERATIONS and op not in (OpCode.AUTH, OpCode.SASL, OpCode.PING, OpCode.CLOSE_SESSION):
                self._submit(op, whole[12:])
        if self.calls and rng.random() < 0.1:
            rng.choice(self.calls).cancel()
        if rng.random() < 0.03:
            self._watch(session, rng.choice(list(WatchKind)), rng.choice(frames.PATHS))
        try:
            if rng.random() < 0.1:
                self.now += rng.choice((0.0, 1.0, 3.0, 30.0))
                session.tick(self.now)
            session.flush(self.now)
            if session.out:
                sent = b"".join(session.out)
                session.out.clear()
                while engines.receive(self.connection, sent):
                    sent = b""
            answer = self._lied(b"".join(self.connection.client.outbox))
            self.connection.client.outbox.clear()
            if rng.random() < 0.2 and answer:
                at = rng.randrange(len(answer))
                session.receive(answer[:at], self.now)
                answer = answer[at:]
            session.receive(answer, self.now)
            if self.connection.client.closing or rng.random() < 0.005:
                self._lost("the server closed the connection")
        except ConnectionBroken as error:
            self.broken += 1
            self._lost(str(error))
        self.calls = [call for call in self.calls if not call.done()]
        waiting = {id(call) for call in (*session.waiting, *session.parked._entries, *session.inflight)}
        lost = [call for call in self.calls if id(call) not in waiting]
        engines.fail_unless(not lost, "a call was forgotten", [(call.op, call.body) for call in lost])

    def _lost(self, reason: str) -> None:
        self.connection.connection_lost()
        self.session.lost(reason, self.now)
        if self.session.id and self.now >= self.session.give_up_time():
            self.session.give_up()
        if self.session.terminal_error is not None or self.rng.random() < 0.02:
            self.session.close("over")
            engines.fail_unless(
                not (self.session.inflight or self.session.waiting or self.session.parked), "a closed session has calls"
            )
            self.session = self._fresh()
        self.engine = self.engine if self.rng.random() < 0.9 else engines.engine_for(self.number)
        self.connection = self._connect()

    # --- mutated and invented answers ---

    def _lied(self, data: bytes) -> bytes:
        """Mutate the server's output frame by frame, and add invented frames."""
        rng, parts, at = self.rng, [], 0
        while at < len(data):
            stop = at + 4 + int.from_bytes(data[at : at + 4], "big")
            whole = data[at:stop]
            self.frames += 1
            if rng.random() < self.lie:
                whole = self._broken(whole)
            parts.append(whole)
            at = stop
        if rng.random() < self.lie / 2:
            made = self._made_up()
            self.frames += len(made)
            parts[len(parts) // 2 : 0] = made
        return b"".join(parts)

    def _broken(self, whole: bytes) -> bytes:
        rng = self.rng
        how = rng.random()
        if how < 0.6:
            return frames.break_frame(rng, whole, self.pool)
        if how < 0.7:  # change the header: xid, zxid, error
            at = rng.choice((4, 8, 12, 16))
            return whole[:at] + rng.choice(frames.WORDS_OF_INTS) + whole[at + 4 :]
        if how < 0.8:
            return b""
        if how < 0.85:
            return whole + whole
        if how < 0.9 and self.session.phase is ConnectionPhase.SASL:
            token = rng.choice((b"", b'nonce="x"', b"nonce=" * 9, b'rspauth="', b'realm="a\\', b"\xff", b"rspauth=x"))
            return frame(whole[4:20] + put_bytes(token))
        return frame(whole[4 : 4 + rng.randrange(len(whole))])

    def _made_up(self) -> list[bytes]:
        rng = self.rng
        how = rng.random()
        if how < 0.5:
            return [encode_event(rng.choice((1, 2, 3, 4, 4, -1, 0, 5, 99)), frames.choose_path(rng) or "x")]
        if how < 0.52:
            depth = rng.choice((3, 30, MAX_DEPTH))
            return [
                *(encode_event(1, "/a" + "/x" * n) for n in range(1, depth)),
                encode_event(2, "/a/x"),
                encode_event(2, "/a"),
            ]
        if how < 0.6:
            answer = ConnectResponse(rng.choice(frames.INTS), rng.choice(frames.LONGS), rng.randbytes(16), None)
            return [frame(answer.encode())]
        if how < 0.75 and self.session.inflight:  # invent an answer to a pending call, with invalid names
            names = rng.choice((["x"], [""], ["", "/", "..", "a/b"], ["\0"], ["x"] * 50))
            stat = r.Stat(*[rng.choice(frames.LONGS) % 2**31 for _ in range(11)])
            body = r.GetChildren2Response(names, stat).encode()
            return [frame(r.ReplyHeader(self.session.inflight[0].xid, 5, 0).encode() + body)]
        return [rng.randbytes(rng.randrange(40))]


def encode_event(kind: int, path: str) -> bytes:
    """Encode a notification with its frame."""
    return frame(r.ReplyHeader(-1, 7, 0).encode() + r.WatcherEvent(kind, 3, path).encode())


def run_epoch(seed: int, number: int, pool: list[bytes], count: int = FRAMES_PER_EPOCH) -> tuple[int, int, str | None]:
    """Run one epoch.

    Returns:
        The number of frames, the number of ConnectionBroken errors, and the traceback of an unexpected error or None.
    """
    shell = BrokenServer(Random(f"{seed}:client:{number}"), pool, number)
    try:
        for _ in range(count):
            shell.turn()
            if shell.frames >= count:
                break
    except Exception:  # every other exception is a finding
        return shell.frames, shell.broken, traceback.format_exc()
    return shell.frames, shell.broken, None


def fuzz(seed: int, count: int) -> int:
    """Run epochs until *count* frames, and show progress. Return the number of findings."""
    began = shown = time.monotonic()
    pool = frames.make_pool(Random(seed), 5_000)
    done = broken = found = epoch = 0
    kinds: set[str] = set()
    while done < count:
        more, lost, what = run_epoch(seed, epoch, pool)
        done += more
        broken += lost
        if what is not None:
            found += 1
            kind = what.splitlines()[-1][:60]
            if kind not in kinds:
                kinds.add(kind)
                print(f"\nFOUND in epoch {epoch} of seed {seed}:\n{what[:1500]}\n...\n{what[-1500:]}")
                print(f"again: python -m fuzz.clientside --replay {seed}:{epoch}\n", flush=True)
        epoch += 1
        if time.monotonic() - shown > 5:
            shown = time.monotonic()
            print(
                f"{done:>12,} frames  {done / (shown - began):>7,.0f}/s  {broken:,} broken  {found} found", flush=True
            )
    took = time.monotonic() - began
    print(
        f"{done:,} frames from servers in {epoch} epochs and {took:.0f} s: {done / took:,.0f}/s, "
        f"{broken:,} times the connection was given up, {found} findings"
    )
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Fuzz the client's session in process.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", help="SEED:EPOCH")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.replay:
        seed, epoch = map(int, arguments.replay.split(":"))
        what = run_epoch(seed, epoch, frames.make_pool(Random(seed), 5_000))[2]
        print(what or "nothing was found")
        return what is not None
    seed = SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"client: seed {seed}, {arguments.frames:,} frames", flush=True)
    return fuzz(seed, arguments.frames) > 0


if __name__ == "__main__":
    sys.exit(main())

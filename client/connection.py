"""Drives a :class:`~zoolet.client.session.Session` over asyncio: connects, and connects again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from zoolet.client.backoff import Backoff
from zoolet.client.call import Call
from zoolet.client.hosts import Address, Hosts
from zoolet.client.session import ConnectionBroken, Phase, Session
from zoolet.client.states import State
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode

_log = logging.getLogger("zoolet.client")

PROBES: Final = Backoff(first=0.1, factor=2.0, longest=60.0, jitter=0.1, tries=None)
"""How often a client of a read-only server looks for one that takes writes."""
LASTING: Final = 1.0
"""Seconds after which a connection that breaks is worth an attempt at once, again and again."""
SHORTEST_ATTEMPT: Final = 0.2
"""Seconds that a server has at least to accept a connection and to answer, however short the session timeout is that
an earlier one has granted; unless the client itself has asked for a shorter one.
"""
CLOSING: Final = 2.0
"""Seconds that closing may take at the most."""


class Link(asyncio.Protocol):
    """One connection to a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.reason = "the server closed the connection"
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Shake hands."""
        self.transport = transport  # type: ignore[assignment] # uvloop's are not subclasses
        self._connection.linked(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what came."""
        self._connection.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the connection look for another server."""
        if exc is not None:
            self.reason = str(exc) or type(exc).__name__
        if not self.ended.done():
            self.ended.set_result(None)

    def cut(self, reason: str) -> None:
        """Drop the connection."""
        self.reason = reason
        if self.transport is not None:
            self.transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)


class Connection:
    """What keeps a session connected.

    Args:
        hosts: Where the servers are.
        session: Whose bytes these are.
        loop: Where it runs.
        random: Where host order and jitter come from.
        backoff: How long to wait between rounds over all servers.
        tls: For connections over TLS.
    """

    def __init__(
        self,
        hosts: Hosts,
        session: Session,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        backoff: Backoff,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.session = session
        self.loop = loop
        self._hosts = hosts
        self._rng = rng
        self._backoff = backoff
        self._tls = tls
        self._link: Link | None = None
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._next: Iterator[Address] = hosts.in_turn(rng)
        self._preferred: Address | None = None
        self.last_reason = ""
        self._ended = False

    # --- from the outside ---

    def start(self) -> None:
        """Connect, and stay connected until :meth:`stop`."""
        self._task = self.loop.create_task(self._run(), name="zoolet-client")

    def submit(self, call: Call[Any]) -> None:
        """Take a call; all that are made in one turn of the loop go out in one write."""
        self.session.submit(call)
        self.wake()

    def wake(self) -> None:
        """Send what there is to send at the end of this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self.flush)

    async def stop(self) -> None:
        """End the session and the connection; takes no longer than :data:`CLOSING` seconds."""
        session = self.session
        try:
            if session.terminal_error is None and session.phase is Phase.READY:
                goodbye = self._close_request()
                session.send_close(self.loop.time(), goodbye)
                self._write()
                with contextlib.suppress(TimeoutError, ZooKeeperError):
                    async with asyncio.timeout(min(CLOSING, session.timeout_ms / 1000)):
                        await goodbye
        finally:
            self._end()
        waiting = [task for task in (self._task, self._probe) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSING)
        self._task = self._probe = None

    def _end(self) -> None:
        """Take no more calls, and let go of everything."""
        if not self._ended:
            self._ended = True
            self.session.close("the client was closed", self.session.fatal_error)
        for task in (self._task, self._probe):
            if task is not None:
                task.cancel()
        if self._link is not None:
            self._link.cut("the client was closed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_request(self) -> Call[None]:
        def ignore(buf: bytes, at: int, stop: int) -> None:
            return None

        return Call(self.loop, OpCode.CLOSE_SESSION, b"", ignore, None, 0.0, False)

    # --- from the link ---

    def linked(self, link: Link) -> None:
        """A server was reached."""
        self._link = link
        self.session.begin(self.loop.time())
        self._write()

    def received(self, link: Link, data: bytes) -> None:
        """Bytes came."""
        if link is not self._link:
            return
        session = self.session
        before = session.phase
        try:
            session.receive(data, self.loop.time())
        except ConnectionBroken as error:
            link.cut(str(error))
            return
        if session.out:
            self._write()
        if before is not session.phase:
            self._reschedule()

    # --- sending, and time ---

    def flush(self) -> None:
        """Send what there is to send now."""
        self._flushing = False
        session = self.session
        if session.waiting:
            session.flush(self.loop.time())
        if session.out:
            self._write()
        if self._timer is None:
            self._schedule()
        elif session.phase is not Phase.READY and session.waiting:
            self._reschedule()  # a call that waits less long than all others may have come

    def _write(self) -> None:
        out = self.session.out
        if out and self._link is not None and self._link.transport is not None:
            self._link.transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _schedule(self) -> None:
        due = self.session.next_due()
        self._timer = self.loop.call_at(due, self._tick) if due is not None else None

    def _reschedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._schedule()

    def _tick(self) -> None:
        self._timer = None
        try:
            self.session.tick(self.loop.time())
        except ConnectionBroken as error:
            if self._link is not None:
                self._link.cut(str(error))
        self._write()
        self._schedule()

    # --- staying connected ---

    async def _run(self) -> None:
        count = len(self._hosts.addresses)
        delays = self._backoff.delays(self._rng)
        failed = 0
        while self.session.terminal_error is None:
            address, self._preferred = self._preferred or next(self._next), None
            began = self.loop.time()
            served = await self._serve(address)
            now = self.loop.time()
            if served and now - began > LASTING:
                delays, failed = self._backoff.delays(self._rng), 0
                continue
            failed += 1
            if not served and self.session.overdue(now):
                self.session.expired("no server could be reached for as long as the session lasts")
            if failed % count == 0 and not (served and failed <= count):
                await asyncio.sleep(next(delays, self._backoff.longest))

    async def _serve(self, address: Address) -> bool:
        """Be connected to one server for as long as it lasts; say whether it ever was ready, or said what matters."""
        session = self.session
        shortest = min(SHORTEST_ATTEMPT, session.wanted_ms / 1500)
        operation_timeout = max(shortest, session.timeout_ms / 1500 / len(self._hosts.addresses))
        before = session.id
        link: Link | None = None
        try:
            async with asyncio.timeout(operation_timeout):
                name = address.host if self._tls is not None else None
                _, link = await self.loop.create_connection(
                    lambda: Link(self), address.host, address.port, ssl=self._tls, server_hostname=name
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._failed(address, str(error) or f"no connection within {operation_timeout:.3f} s")
            return False
        ready = False
        try:
            # Whoever does not say hello within the patience is no better than one who is not there.
            await asyncio.wait([link.ended], timeout=operation_timeout)
            if not link.ended.done() and session.phase is not Phase.READY:
                link.cut(f"no answer to the handshake within {operation_timeout:.3f} s")
            ready = session.phase is Phase.READY
            if ready and session.read_only_now and self._probe is None:
                self._probe = self.loop.create_task(self._look_for_a_writable_server(), name="zoolet-client-probe")
            await link.ended
        finally:
            ready = ready or session.state in (State.CONNECTED, State.READ_ONLY)
            self._link = None
            link.cut(link.reason)
            session.lost(f"{address}: {link.reason}", self.loop.time())
            self._reschedule()
        self._failed(address, link.reason)
        return ready or (before != 0 and session.id == 0)

    def _failed(self, address: Address, reason: str) -> None:
        self.last_reason = f"{address}: {reason}"
        _log.debug("connection to %s ended: %s", address, reason)

    async def _look_for_a_writable_server(self) -> None:
        """While a read-only server serves, ask the others; go to the first that takes writes."""
        for delay in PROBES.delays(self._rng):
            await asyncio.sleep(delay)
            if not self.session.read_only_now:
                break
            for address in self._hosts.addresses:
                if await self._takes_writes(address) and self._link is not None and self.session.read_only_now:
                    self._preferred = address
                    self._link.cut(f"{address} takes writes")
                    self._probe = None
                    return
        self._probe = None

    async def _takes_writes(self, address: Address) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=self._tls)
                try:
                    writer.write(b"isro")
                    return await reader.read(16) == b"rw"
                finally:
                    writer.close()
        return False

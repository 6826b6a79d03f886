"""Drives a :class:`~zoolet.client.wire.session.Session` over asyncio: connects, and reconnects.

The loop is :meth:`Connection._stay_connected`. What becomes of the calls of a lost connection is decided by
:meth:`Session.lost <zoolet.client.wire.session.Session.lost>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from zoolet.client.aio.call import RequestCall
from zoolet.client.aio.dial import dial, dial_streams
from zoolet.client.aio.suspension import Suspensions
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.hosts import Address, Hosts
from zoolet.client.wire.session import ConnectionBroken, Phase, Session
from zoolet.client.wire.states import State
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode

_log = logging.getLogger("zoolet.client")

PROBES: Final = Backoff(first=0.1, factor=2.0, longest=60.0, jitter=0.1, tries=None)
"""How often a client of a read-only server looks for one that takes writes."""
STABLE_AFTER: Final = 1.0
"""Seconds after which a connection that breaks is worth an attempt at once, again and again."""
MIN_ATTEMPT: Final = 0.2
"""Seconds that a server has at least to accept a connection and to answer, however short the session timeout is that
an earlier one has granted; unless the client itself has asked for a shorter one.
"""
CLOSED: Final = "the server closed the connection"
CLOSE_TIMEOUT: Final = 2.0
"""Seconds that closing may take at the most."""


class ClientProtocol(asyncio.Protocol):
    """One connection to a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.reason = CLOSED
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self.transport = transport  # type: ignore[assignment] # uvloop's are not subclasses
        self._connection.connected_to(self)

    def data_received(self, data: bytes) -> None:
        """Forward what arrived."""
        self._connection.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record why the connection ended."""
        if exc is not None:
            self.reason = str(exc) or type(exc).__name__
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        self.reason = reason
        if self.transport is not None:
            self.transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)


class Connection:
    """Keeps a session connected.

    Args:
        hosts: Where the servers are.
        session: The session that is kept connected.
        loop: Where it runs.
        rng: Where host order and jitter come from.
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
        self._protocol: ClientProtocol | None = None
        self._flush_scheduled = False
        self._suspensions = Suspensions()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._next: Iterator[Address] = hosts.in_turn(rng)
        self._preferred: Address | None = None
        self.round_failed: asyncio.Future[None] = loop.create_future()
        """Done once all servers have been tried without success."""
        self._ended = False

    # --- called by the client ---

    def start(self) -> None:
        """Connect, and stay connected until :meth:`stop`."""
        self._task = self.loop.create_task(self._run(), name="zoolet-client")

    def submit(self, call: RequestCall[Any]) -> None:
        """Submit a call; all that are made in one turn of the loop are sent in one write."""
        self.session.submit(call)
        if not self._flush_scheduled:  # wake(), without a call of it for each request
            self._flush_scheduled = True
            self.loop.call_soon(self.flush)

    def wake(self) -> None:
        """Send what there is to send at the end of this turn of the loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self.flush)

    def now(self) -> float:
        """Return the loop's time plus that for which the machine was suspended: the time of the session."""
        return self.loop.time() + self._suspensions.total()

    def about_now(self) -> float:
        """Return :meth:`now` without looking whether the machine was suspended a moment ago: for deadlines of calls."""
        return self.loop.time() + self._suspensions.known

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a server now."""
        return self._protocol is not None

    @property
    def running(self) -> bool:
        """Whether the task that keeps the session connected runs."""
        return self._task is not None and not self._task.done()

    def abort(self, reason: str) -> None:
        """Close the connection to the present server at once; another one is looked for."""
        if self._protocol is not None:
            self._protocol.abort(reason)

    async def stop(self) -> None:
        """End the session and the connection; takes no longer than twice :data:`CLOSE_TIMEOUT` seconds."""
        session = self.session
        try:
            if session.terminal_error is None and session.phase is Phase.READY:
                request = self._close_request()
                session.send_close(self.now(), request)
                self._write()
                with contextlib.suppress(TimeoutError, ZooKeeperError):
                    async with asyncio.timeout(min(CLOSE_TIMEOUT, session.timeout_ms / 1000)):
                        await request
        finally:
            self._end()
        waiting = [task for task in (self._task, self._probe) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_TIMEOUT)
        self._task = self._probe = None

    def _end(self) -> None:
        """Refuse further calls, and close the connection."""
        if not self._ended:
            self._ended = True
            self.session.close("the client was closed", self.session.fatal_error)
        for task in (self._task, self._probe):
            if task is not None:
                task.cancel()
        if self._protocol is not None:
            self._protocol.abort("the client was closed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_request(self) -> RequestCall[None]:
        def ignore(buf: bytes, at: int, stop: int) -> None:
            return None

        return RequestCall(self.loop, OpCode.CLOSE_SESSION, b"", ignore, None, 0.0, False)

    # --- called by the protocol ---

    def connected_to(self, protocol: ClientProtocol) -> None:
        """Begin the handshake with a server that was reached."""
        self._protocol = protocol
        if self._advance(self.session.begin, self.now()):
            self._write()

    def received(self, protocol: ClientProtocol, data: bytes) -> None:
        """Feed bytes to the session."""
        if protocol is not self._protocol:
            return
        session = self.session
        before = session.phase
        if not self._advance(session.receive, data, self.now()):
            return
        if session.out:
            self._write()
        if before is not session.phase:
            self._reschedule()

    def _advance(self, step: Callable[..., None], *args: Any) -> bool:
        """Call a step of the session; return whether the connection is still of use.

        An error that is not the server's is logged, and costs the connection as the server's do: it must neither end
        the client silently nor leave calls that nothing answers.
        """
        try:
            step(*args)
        except ConnectionBroken as error:
            self.abort(str(error))
            return False
        except Exception as error:
            _log.exception("the session failed unexpectedly")
            self.abort(f"{type(error).__name__}: {error}")
            return False
        return True

    # --- sending, and time ---

    def flush(self) -> None:
        """Send what there is to send now."""
        self._flush_scheduled = False
        session = self.session
        if session.waiting:
            self._advance(session.flush, self.now())
        if session.out:
            self._write()
        if self._timer is None:
            self._schedule()
        elif session.waiting and session.phase is not Phase.READY:
            self._reschedule()  # a call that waits less long than all others may have come

    def _write(self) -> None:
        out = self.session.out
        if out and self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def _schedule(self) -> None:
        due = self.session.next_due()
        self._timer = self.loop.call_at(due - self._suspensions.total(), self._tick) if due is not None else None

    def _reschedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._schedule()

    def _tick(self) -> None:
        self._timer = None
        self._advance(self.session.tick, self.now())
        self._write()
        self._schedule()

    # --- staying connected ---

    async def _run(self) -> None:
        """Connect to one host after the other, and reconnect, until the client is closed."""
        try:
            await self._stay_connected()
        except asyncio.CancelledError:
            if not self._ended:  # by the end of the loop
                hosts = ",".join(map(str, self._hosts.addresses))
                text = f"a Client of {hosts} was not closed before its event loop ended: its session stays open"
                warnings.warn(text, ResourceWarning, stacklevel=1)
            raise

    async def _stay_connected(self) -> None:
        count = len(self._hosts.addresses)
        delays = self._backoff.delays(self._rng)
        failed = 0
        while self.session.terminal_error is None:
            address, self._preferred = self._preferred or next(self._next), None
            began = self.now()
            served = await self._supervised(address)
            now = self.now()
            if served and now - began > STABLE_AFTER:
                delays, failed = self._backoff.delays(self._rng), 0
                continue
            failed += 1
            if not served and self.session.overdue(now):
                self._advance(self._expire)
            if failed >= count and not self.round_failed.done():
                self.round_failed.set_result(None)
            if failed % count == 0 and not (served and failed <= count):
                await asyncio.sleep(next(delays, self._backoff.longest))

    def _expire(self) -> None:
        self.session.expired("no server could be reached for as long as the session lasts")

    async def _supervised(self, address: Address) -> bool:
        """Serve from one host; an unexpected error is logged and counts as a host that failed, with that reason."""
        try:
            return await self._serve(address)
        except Exception as error:  # a defect of ours must not end the client silently
            _log.exception("the connection to %s failed unexpectedly", address)
            self._failed(address, f"{type(error).__name__}: {error}")
            return False

    async def _serve(self, address: Address) -> bool:
        """Stay connected to one server for as long as it lasts; return whether it was ever ready, or had something
        essential to say.
        """
        session = self.session
        shortest = min(MIN_ATTEMPT, session.wanted_ms / 1500)
        # Two thirds of the session timeout, as after silence: the last third is for another server.
        attempt = max(shortest, session.timeout_ms / 1500 / len(self._hosts.addresses))
        session_id = session.id
        try:
            protocol = await self._connect(address, attempt)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._failed(address, str(error) or _reason(error, attempt, self._tls is not None))
            return False
        ready = False
        try:
            # A server that does not answer in that time is no better than one that is not there.
            await asyncio.wait([protocol.ended], timeout=attempt)
            if not protocol.ended.done() and session.phase is not Phase.READY:
                protocol.abort(f"no answer to the handshake within {attempt:.3f} s")
            ready = session.phase is Phase.READY
            if ready and session.read_only_now and self._probe is None:
                self._probe = self.loop.create_task(self._look_for_a_writable_server(), name="zoolet-client-probe")
            await protocol.ended
        finally:
            ready = ready or session.state in (State.CONNECTED, State.READ_ONLY)
            self._protocol = None
            if protocol.reason == CLOSED and not ready:
                hint = "serve TLS only" if self._tls is None else "want another certificate of this client"
                protocol.reason += f" in place of an answer: it may {hint}"
            protocol.abort(protocol.reason)
            session.lost(f"{address}: {protocol.reason}", self.now())
            self._reschedule()
        self._failed(address, protocol.reason)
        return ready or (session_id != 0 and session.id == 0)

    async def _connect(self, address: Address, seconds: float) -> ClientProtocol:
        async with asyncio.timeout(seconds):
            return await dial(address, lambda: ClientProtocol(self), self._tls)

    def _failed(self, address: Address, reason: str) -> None:
        self.session.last_reason = f"{address}: {reason}"
        _log.debug("connection to %s ended: %s", address, reason)

    async def _look_for_a_writable_server(self) -> None:
        """While a read-only server serves, ask the others; go to the first that takes writes."""
        for delay in PROBES.delays(self._rng):
            await asyncio.sleep(delay)
            if not self.session.read_only_now:
                break
            for address in self._hosts.addresses:
                if await self._takes_writes(address) and self._protocol is not None and self.session.read_only_now:
                    self._preferred = address
                    self._protocol.abort(f"{address} takes writes")
                    self._probe = None
                    return
        self._probe = None

    async def _takes_writes(self, address: Address) -> bool:
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await dial_streams(address, self._tls)
                try:
                    writer.write(b"isro")
                    return await reader.readexactly(2) == b"rw"
                finally:
                    writer.close()
        except (OSError, EOFError, TimeoutError):
            return False
        except Exception:  # the search must not end silently: the client would stay read-only
            _log.exception("asking %s whether it takes writes failed unexpectedly", address)
            return False


def _reason(error: Exception, attempt: float, tls: bool) -> str:
    """Return why a connection could not be made, of an error that does not say it."""
    if isinstance(error, TimeoutError):
        return f"no connection within {attempt:.3f} s"
    return f"{CLOSED}{' instead of beginning TLS: it may be a plain port' if tls else ''}"

"""The connection of a :class:`~zoolet.client.wire.session.ClientSession` over asyncio, with reconnects.

The reconnect loop is :meth:`Connection._stay_connected`. :meth:`ClientSession.lost
<zoolet.client.wire.session.ClientSession.lost>` decides what happens to the calls of a lost connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import warnings
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, Final

from ...protocol.errors import ZooKeeperError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ..wire.backoff import Backoff
from ..wire.diagnosis import CLOSED, RESET, early_close_reason, no_answer_reason
from ..wire.hosts import Address, Hosts, ServerAddress, has_several_servers, order_servers
from ..wire.operations import decode_nothing
from ..wire.phases import ConnectionBroken, ConnectionPhase
from ..wire.session import ClientSession
from ..wire.states import State
from .call import RequestCall, ignore_result
from .dial import connection_failure, dial, dial_streams, open_failure
from .lookup import Lookups
from .suspension import Suspensions

_log = logging.getLogger("zoolet.client")

PROBE_BACKOFF: Final = Backoff(first=0.1, factor=2.0, longest=60.0, jitter=0.1, tries=None)
"""Delays between searches for a server that accepts writes, while a read-only server serves the client."""
STABLE_SECONDS: Final = 1.0
"""A connection that lasted longer than this many seconds is replaced immediately when it breaks, without a delay."""
MIN_ATTEMPT_SECONDS: Final = 0.2
"""Minimum time in seconds for a server to accept a connection and to answer. It applies even if an earlier server
granted a shorter session timeout, but not if the client itself requested a shorter one.
"""
CLOSE_TIMEOUT: Final = 1.0
"""Maximum time in seconds that closing a client waits for its tasks to stop."""
ANSWER_TIMEOUT: Final = 0.8
"""Maximum time in seconds for the server to close the session. Commands therefore exit within a second, even if the
server is silent.
"""
MIN_ANSWER_TIMEOUT: Final = 0.2
"""Minimum wait in seconds for the reply to a close request, even if the server has been silent for longer. See
:meth:`Connection.stop`."""
DELAY_LIMIT_RANGE: Final = (0.1, 0.4)
"""Range of a random fraction. A delay between rounds is limited to this fraction of the time until the client gives up
the session."""
MIN_DELAY_LIMIT_SECONDS: Final = 0.05
"""Minimum of the limit that :data:`DELAY_LIMIT_RANGE` determines, in seconds."""
MAX_MOVE_DELAY_FRACTION: Final = 0.2
"""Maximum delay before the clients of a lost server move to others, as a fraction of the session timeout, up to 2 s.
The delay is random, because thousands of clients may move together.
"""


_Outcome = Enum("_Outcome", "FAILED SERVED ENDED")
"""Outcomes of an attempt to connect: it failed, its connection was lost when ready, or the server ended a session."""


class ClientProtocol(asyncio.Protocol):
    """The asyncio protocol of one connection to a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.reason = CLOSED
        self.closed_by_server = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake on the new connection."""
        self.transport = transport  # type: ignore[assignment] # uvloop's transports are not subclasses
        self._connection.start_handshake(self)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the session, and send the frames that it produces."""
        connection = self._connection
        if self is not connection.protocol:
            return
        session = connection.session
        before = session.phase
        try:
            # If the machine was suspended and no request or tick has noticed it yet, `known` is too low, and the bytes
            # look older. That is safe, because the server may have sent them before the suspension.
            session.receive(data, connection.loop.time() + connection.suspensions.known)
        except Exception as error:
            connection.fail(error)
            return
        if session.out:
            connection.write()
        if before is not session.phase:
            connection.reschedule()
            connection.probe_if_read_only()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record why the connection was lost."""
        if exc is not None:
            self.reason = connection_failure(exc)
        if not self.ended.done():
            self.closed_by_server = exc is None or isinstance(exc, ConnectionError)
            self.ended.set_result(None)

    def abort(self, reason: str) -> None:
        """Close the connection immediately, and record the reason."""
        self.reason = reason
        if self.transport is not None:
            self.transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)


class Connection:
    """The connection of a session, which is reopened whenever it breaks.

    Args:
        hosts: The servers.
        session: The session that is kept connected.
        loop: The client's event loop.
        rng: Random generator for host order and jitter.
        backoff: Delays between rounds over all servers.
        tls: TLS context for the connections; None for connections without TLS.
    """

    def __init__(
        self,
        hosts: Hosts,
        session: ClientSession,
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
        self.protocol: ClientProtocol | None = None
        self.flush_scheduled = False
        """Whether :meth:`flush` will be called at the end of this iteration of the event loop."""
        self.suspensions = Suspensions()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._lookups = Lookups(hosts.addresses, loop)
        self._last_server: ServerAddress | None = None  # the server of the latest attempt
        self._preferred_server: ServerAddress | None = None
        self._servers: list[ServerAddress] = []
        self._closed_by_server = False  # whether the server closed the latest connection
        self.round_failed: asyncio.Future[None] = loop.create_future()
        """Done once all servers have been tried without success."""
        self._ended = False

    # --- called by the client ---

    def start(self) -> None:
        """Connect, and stay connected until :meth:`stop`."""
        self._task = self.loop.create_task(self._run(), name="zoolet-client")

    def schedule_flush(self) -> None:
        """Send pending data at the end of this iteration of the event loop. Calls of one iteration share one write."""
        if not self.flush_scheduled:
            self.loop.call_soon(self.flush)  # called before the flag is set, because call_soon() may raise
            self.flush_scheduled = True

    def now(self) -> float:
        """Return the time of the session: the loop's time plus the time that the machine spent suspended."""
        return self.loop.time() + self.suspensions.total()

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a server now."""
        return self.protocol is not None

    @property
    def running(self) -> bool:
        """Whether the task that keeps the session connected is running."""
        return self._task is not None and not self._task.done()

    def abort(self, reason: str) -> None:
        """Close the connection to the current server immediately. The client then connects again."""
        if self.protocol is not None:
            self.protocol.abort(reason)

    async def stop(self) -> None:
        """Close the session within :data:`ANSWER_TIMEOUT`, and the connection within :data:`CLOSE_TIMEOUT` seconds.

        If an earlier request has not been answered, the time counts from that request, but the client still waits for
        :data:`MIN_ANSWER_TIMEOUT` seconds.
        """
        session = self.session
        limit = min(ANSWER_TIMEOUT, session.timeout_ms / 1000)
        silence = self.now() - session.inflight[0].sent_at if session.inflight else 0.0
        try:
            if (request := self._send_close()) is not None:
                with contextlib.suppress(TimeoutError, ZooKeeperError):
                    async with asyncio.timeout(max(limit - silence, MIN_ANSWER_TIMEOUT)):
                        await request
        finally:
            self._shut_down()
        waiting = [task for task in (self._task, self._probe) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_TIMEOUT)
        self._task = self._probe = None

    def _send_close(self) -> RequestCall[None] | None:
        """Send a request to close the session. Return its call, or None if the connection is not ready."""
        if self.session.terminal_error is not None or self.session.phase is not ConnectionPhase.READY:
            return None
        request = RequestCall(self.loop, OpCode.CLOSE_SESSION, b"", decode_nothing, None, 0.0, False)
        self.session.send_close(self.now(), request)
        self.write()
        return request

    def close_nowait(self) -> None:
        """Close the session and the connection without waiting for the server's answer."""
        transport = self.protocol.transport if self.protocol is not None else None
        if (request := self._send_close()) is not None and transport is not None:
            request.add_done_callback(ignore_result)
            transport.close()  # the transport first sends the request
            assert self.protocol is not None
            self.protocol.transport = None
        self._shut_down()

    def _shut_down(self) -> None:
        """Reject further calls, stop the tasks and the timer, and close the connection."""
        if not self._ended:
            self._ended = True
            self.session.close("the client was closed", self.session.fatal_error)
        for task in (self._task, self._probe):
            if task is not None:
                task.cancel()
        if self.protocol is not None:
            self.protocol.abort("the client was closed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- called by the protocol ---

    def start_handshake(self, protocol: ClientProtocol) -> None:
        """Start the handshake with a server."""
        self.protocol = protocol
        if self._advance(self.session.start, self.now()):
            self.write()

    def _advance(self, step: Callable[..., None], *args: Any) -> bool:
        """Call a step of the session, and return True. If it fails, close the connection and return False."""
        try:
            step(*args)
        except Exception as error:
            self.fail(error)
            return False
        return True

    def fail(self, error: Exception) -> None:
        """Close the connection because a step of the session failed.

        An unexpected error is logged, and closes the connection like a protocol violation by the server. Otherwise it
        would stop the client silently, or leave calls without an answer.
        """
        if isinstance(error, ConnectionBroken):
            self.abort(str(error))
        else:
            session = hexadecimal(self.session.id)
            _log.error("session %s: closing the connection after an internal error", session, exc_info=error)
            self.abort(f"{type(error).__name__}: {error}")

    # --- sending, and the timer ---

    def flush(self) -> None:
        """Write the requests of this iteration of the event loop to the socket."""
        self.flush_scheduled = False
        session = self.session
        if session.waiting:
            try:
                session.flush(self.loop.time() + self.suspensions.total())
            except Exception as error:
                self.fail(error)
        out = session.out
        if out and self.protocol is not None and self.protocol.transport is not None:  # write() is inlined for speed
            try:
                self.protocol.transport.write(b"".join(out))
            except RuntimeError:  # uvloop has closed the transport; connection_lost() follows
                _log.debug("the connection was closed before a write")
            del out[:]
        if self._timer is None:
            self._schedule()
        elif session.phase is not ConnectionPhase.READY:
            self.reschedule()  # a new call may have an earlier deadline than all others

    def write(self) -> None:
        """Pass the frames of the session to the transport."""
        out = self.session.out
        if out and self.protocol is not None and self.protocol.transport is not None:
            try:
                self.protocol.transport.write(b"".join(out))  # join() does not copy a single frame
            except RuntimeError:  # uvloop has closed the transport; connection_lost() follows
                _log.debug("the connection was closed before a write")
            del out[:]

    def _schedule(self) -> None:
        due = self.session.next_due()
        self._timer = self.loop.call_at(due - self.suspensions.total(), self._tick) if due is not None else None

    def probe_if_read_only(self) -> None:
        """If the current server is read-only, start to search for a server that accepts writes."""
        if self.session.phase is ConnectionPhase.READY and self.session.read_only_now and self._probe is None:
            self._probe = self.loop.create_task(self._find_writable_server(), name="zoolet-client-probe")

    def reschedule(self) -> None:
        """Set the timer again, because the next tick may be due at a different time."""
        if self._timer is not None:
            self._timer.cancel()
        self._schedule()

    def _tick(self) -> None:
        self._timer = None
        self._advance(self.session.tick, self.now())
        self.write()
        self._schedule()

    # --- staying connected ---

    async def _run(self) -> None:
        """Stay connected until the client is closed. Warn if the event loop ends first."""
        try:
            await self._stay_connected()
        except asyncio.CancelledError:
            if not self._ended:  # the event loop is being closed
                hosts = ",".join(map(str, self._hosts.addresses))
                text = f"a Client of {hosts} was not closed before its event loop ended: its session stays open"
                warnings.warn(text, ResourceWarning, stacklevel=1)
            raise

    async def _stay_connected(self) -> None:
        delays = self._backoff.delays(self._rng)
        retried = False  # whether a connection that broke early has been replaced without a delay
        while True:
            outcome, began = _Outcome.FAILED, 0.0
            for server in await self._next_round():
                self._last_server, began = server, self.now()
                outcome = await self._serve_safely(server)
                if self.session.terminal_error is not None:
                    return
                if outcome is not _Outcome.FAILED:
                    break
                self.session.tried = True
                self.reschedule()
            if outcome is _Outcome.ENDED:
                self._preferred_server = self._last_server
            elif outcome is _Outcome.SERVED and self.now() - began > STABLE_SECONDS:
                delays, retried = self._backoff.delays(self._rng), False
                if self._closed_by_server and has_several_servers(self._servers) and self._preferred_server is None:
                    await asyncio.sleep(
                        self._rng.uniform(0, min(2.0, self.session.timeout_ms / 1000 * MAX_MOVE_DELAY_FRACTION))
                    )
            elif outcome is _Outcome.SERVED and not retried:
                retried = True
            else:
                if outcome is _Outcome.FAILED and not self.round_failed.done():
                    self.round_failed.set_result(None)
                await asyncio.sleep(self._limit_delay(next(delays, self._backoff.longest)))

    def _limit_delay(self, delay: float) -> float:
        """Return a delay, shortened to leave time for further rounds before the client gives up the session."""
        if not self.session.id:
            return delay
        left = self.session.give_up_time() - self.now()
        return min(delay, max(left * self._rng.uniform(*DELAY_LIMIT_RANGE), MIN_DELAY_LIMIT_SECONDS))

    async def _next_round(self) -> list[ServerAddress]:
        """Look up the host names, and return the servers of the next round in the order of the attempts."""
        self._servers = await self._lookups.refresh(self._seconds_for(1))
        for address, failure in self._lookups.failures.items():
            self._record_failure(address, connection_failure(failure))
        preferred, self._preferred_server = self._preferred_server, None
        return order_servers(self._servers, self._rng, self._last_server, preferred)

    def _seconds_for(self, servers: int) -> float:
        """Return the time limit of an attempt to connect to one of several servers.

        The servers of a round share two thirds of the session timeout. As with a server that falls silent, the last
        third is kept for reaching a different server in time.
        """
        shortest = min(MIN_ATTEMPT_SECONDS, self.session.wanted_ms / 1500)
        return max(shortest, self.session.timeout_ms / 1500 / servers)

    async def _serve_safely(self, server: ServerAddress) -> _Outcome:
        """Connect to a server and stay connected. An unexpected error is logged, and the attempt counts as failed."""
        try:
            return await self._serve(server)
        except Exception as error:  # a bug in zoolet must not stop the client silently
            _log.exception("the connection to %s failed unexpectedly", server)
            self._record_failure(server, f"{type(error).__name__}: {error}")
            return _Outcome.FAILED

    async def _serve(self, server: ServerAddress) -> _Outcome:
        """Connect to a server, wait until the connection ends, and return the outcome."""
        session = self.session
        attempt = self._seconds_for(len(self._servers))
        had_session = session.has_session
        try:
            async with asyncio.timeout(attempt):
                protocol = await dial(server, lambda: ClientProtocol(self), self._tls)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._record_failure(server, open_failure(error, attempt, self._tls is not None))
            return _Outcome.FAILED
        ready = False
        try:
            # A server that does not answer in this time is treated like one that cannot be reached.
            await asyncio.wait([protocol.ended], timeout=attempt)
            if not protocol.ended.done() and session.phase is not ConnectionPhase.READY:
                protocol.abort(no_answer_reason(attempt, self._tls is not None))
            ready = session.phase is ConnectionPhase.READY
            await protocol.ended
        finally:
            ready = ready or session.state in (State.CONNECTED, State.READ_ONLY)
            self.protocol = None
            self._closed_by_server = protocol.closed_by_server
            if session.phase is ConnectionPhase.HANDSHAKE and protocol.reason in (CLOSED, RESET):
                refuses = not session.accepts_read_only
                protocol.reason = early_close_reason(protocol.reason, self._tls is not None, refuses)
            protocol.abort(protocol.reason)
            session.lost(f"{server}: {protocol.reason}", self.now(), by_server=protocol.closed_by_server)
            self.reschedule()
        self._record_failure(server, protocol.reason)
        if ready:
            return _Outcome.SERVED
        return _Outcome.ENDED if session.answered and had_session and not session.has_session else _Outcome.FAILED

    def _record_failure(self, server: ServerAddress | Address, reason: str) -> None:
        self.session.last_reason = f"{server}: {reason}"
        _log.debug("connection to %s ended: %s", server, reason)

    async def _find_writable_server(self) -> None:
        """Query all servers until one accepts writes, and move to it. Stop if the current server accepts writes."""
        for delay in PROBE_BACKOFF.delays(self._rng):
            await asyncio.sleep(delay)
            if not self.session.read_only_now:
                break
            self._servers = await self._lookups.refresh(self._seconds_for(1))
            for server in self._servers:
                if await self._accepts_writes(server) and self.protocol is not None and self.session.read_only_now:
                    self._preferred_server = server
                    self.protocol.abort(f"{server} accepts writes")
                    self._probe = None
                    return
        self._probe = None

    async def _accepts_writes(self, server: ServerAddress) -> bool:
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await dial_streams(server, self._tls)
                try:
                    writer.write(b"isro")
                    return await reader.readexactly(2) == b"rw"
                finally:
                    writer.close()
        except (OSError, EOFError, TimeoutError):
            return False
        except Exception:  # the search must not stop silently, because the client would stay read-only
            _log.exception("unexpected error while checking whether %s accepts writes", server)
            return False

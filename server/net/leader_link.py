"""The socket of an observer: it finds the leader, follows it until it is lost, and starts again.

Only the leader answers on its quorum port. All members are queried at the same time, because a paused process accepts
connections but does not answer. The observer follows the first leader whose epoch is not older than the previous
leader's, and closes all other connections. During an outage, no problem is logged twice.

If the observer was following a leader and loses it, the search for a new one starts after a short delay. If a leader
cannot be followed, or the replica needs a new snapshot, the delay doubles with each attempt, because each attempt may
cost the ensemble a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final, NoReturn

from ...protocol.addresses import host_and_port
from ...protocol.hexadecimal import hexadecimal
from ..learner.errors import LearnerError, ObserverRefusedError, ReplicaError
from ..learner.learner import SILENCE_MS, Learner, LearnerState
from ..learner.replica import ReplicaEngine
from .connections import Connections

_log = logging.getLogger("zoolet.server")
Address = tuple[str, int]
CHUNK_BYTES: Final = 1 << 16
"""Maximum number of bytes from the leader that are processed before clients are served, which takes about 10 ms."""
CONNECT_SECONDS: Final = 5.0
"""Maximum time for connecting to a member, in seconds."""
FIRST_DELAY_SECONDS: Final = 0.1
"""Delay in seconds before the second attempt. It doubles with each further attempt."""
MAX_INTERVAL_SECONDS: Final = 2.0
"""Maximum number of seconds between two attempts to connect to one member."""
MAX_DELAY_SECONDS: Final = 30.0
"""Maximum number of seconds between two attempts to follow a leader."""
STEADY_MS: Final = 10_000
"""A leader that was followed for this many milliseconds resets the delay to :data:`FIRST_DELAY_SECONDS`."""


class LeaderLink:
    """The link of an observer to its ensemble, which keeps the replica up to date.

    Args:
        replica: The replica.
        addresses: The quorum addresses of all members.
        sid: The number of this observer.
        connections: The clients, and the source of time.

    Attributes:
        caught_up: An event that is set while the replica follows a leader.
    """

    def __init__(
        self, replica: ReplicaEngine, addresses: tuple[Address, ...], sid: int, connections: Connections
    ) -> None:
        self.caught_up = asyncio.Event()
        self._replica = replica
        self._addresses = addresses
        self._sid = sid
        self._connections = connections
        self._problems: dict[Address, str] = {}
        self._has_warned = False

    @property
    def problem(self) -> str:
        """The reason why no leader is followed, in one line; empty while a leader is followed."""
        if self.caught_up.is_set():
            return ""
        problems = (f"{host_and_port(*address)}: {problem}" for address, problem in self._problems.items())
        return "no leader: " + ("; ".join(problems) or "waiting for the first answer of a member")

    async def run(self) -> NoReturn:
        """Find and follow a leader, repeatedly, until the task is cancelled.

        Raises:
            ObserverRefusedError: The observer cannot take part in the ensemble.
        """
        delay, metrics = FIRST_DELAY_SECONDS, self._replica.learning
        while True:
            connection = await self._find_leader()
            address = metrics.leader = host_and_port(*connection.address)
            started = self._replica.monotonic_ms
            needs_snapshot = False
            try:
                await self._follow(connection)
            except ObserverRefusedError:
                raise
            except ReplicaError as error:
                needs_snapshot = True
                problem = f"{error}; taking a new snapshot"
            except (LearnerError, OSError) as error:
                problem = _reason(error)
            finally:
                was_followed = self.caught_up.is_set()
                metrics.leader = ""
                self._stop_serving()
                connection.close()
            _log.warning("lost the leader %s: %s; searching for a leader", address, problem)
            self._problems = {connection.address: problem}
            if needs_snapshot:
                self._replica.forget()
            if self._replica.monotonic_ms - started >= STEADY_MS or (was_followed and not needs_snapshot):
                delay = FIRST_DELAY_SECONDS
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_DELAY_SECONDS)

    def _stop_serving(self) -> None:
        self.caught_up.clear()
        self._connections.set_time()
        self._replica.stop_serving()
        self._connections.deliver()

    # --- finding the leader ---

    async def _find_leader(self) -> _MemberLink:
        """Query all members at the same time until one of them leads. Return the connection to that member."""
        tasks = [asyncio.create_task(self._ask(address)) for address in self._addresses]
        chosen = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            chosen = next(task for task in tasks if task.done())
            return chosen.result()
        finally:
            for task in tasks:
                task.cancel()
            for task, result in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                if isinstance(result, _MemberLink) and task is not chosen:
                    result.close()

    async def _ask(self, address: Address) -> _MemberLink:
        """Query one member repeatedly until it leads, and return the connection.

        Raises:
            ObserverRefusedError: The observer cannot take part in the ensemble.
        """
        delay = FIRST_DELAY_SECONDS
        while True:
            connection = None
            try:
                connection = await _MemberLink.open(address, self._replica, self._sid, self._connections)
                while connection.learner.state is LearnerState.GREETING:
                    await connection.receive()
                invited, connection = connection, None
                return invited
            except ObserverRefusedError:
                raise
            except TimeoutError:
                self._note(address, f"did not answer within {CONNECT_SECONDS:.0f} s")
            except (LearnerError, OSError) as error:
                self._note(address, _reason(error))
            except UnicodeError:
                self._note(address, "not a valid host name")
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_INTERVAL_SECONDS)

    def _note(self, address: Address, problem: str) -> None:
        """Record the problem of a member. Once in an outage, log the problems of all members."""
        self._problems[address] = problem
        if not self._has_warned and self._problems.keys() >= set(self._addresses):
            self._has_warned = True
            _log.warning("%s; trying again", self.problem)

    # --- following the leader ---

    async def _follow(self, connection: _MemberLink) -> NoReturn:
        """Follow a leader until it is lost.

        Raises:
            LearnerError: The connection cannot be continued.
            OSError: The connection is broken.
        """
        learner = connection.learner
        learner.join()
        self._replica.learning.connections += 1
        while True:
            await connection.receive()
            self._connections.deliver()
            if learner.state is LearnerState.FOLLOWING and not self.caught_up.is_set():
                self.caught_up.set()
                self._problems, self._has_warned = {}, False
                zxid, leader = hexadecimal(self._replica.last), host_and_port(*connection.address)
                _log.info("following the leader %s in epoch %d from zxid %s", leader, learner.epoch, zxid)


def _reason(error: Exception) -> str:
    """Return the text of a connection error, without the address."""
    number = getattr(error, "errno", None) or 0
    return os.strerror(number).lower() if number > 0 else getattr(error, "strerror", None) or str(error)


class _MemberLink:
    """A connection to a member."""

    def __init__(
        self,
        address: Address,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        learner: Learner,
        connections: Connections,
    ) -> None:
        self.address = address
        self.learner = learner
        self._reader, self._writer = streams
        self._connections = connections

    @classmethod
    async def open(cls, address: Address, replica: ReplicaEngine, sid: int, connections: Connections) -> _MemberLink:
        """Connect to a member.

        Raises:
            LearnerError: The observer cannot take part in the ensemble.
            OSError: The member does not accept connections.
        """
        connections.set_time()
        learner = Learner(replica, sid)  # created before connecting, because an invalid sid must not be sent
        async with asyncio.timeout(CONNECT_SECONDS):
            streams = await asyncio.open_connection(*address, limit=CHUNK_BYTES)
        return cls(address, streams, learner, connections)

    async def receive(self) -> None:
        """Send the pending bytes. Then receive and process at most :data:`CHUNK_BYTES` bytes.

        Raises:
            LearnerError: The member was silent for too long, closed the connection, or cannot be followed.
            OSError: The connection is broken.
        """
        learner = self.learner
        self._writer.write(learner.data_to_send())
        try:
            async with asyncio.timeout(SILENCE_MS / 1000):
                data = await self._reader.read(CHUNK_BYTES)
        except TimeoutError:
            raise LearnerError(f"nothing was received for {SILENCE_MS / 1000:.0f} s") from None
        except ConnectionError:
            data = b""
        if not data and learner.state is LearnerState.GREETING:
            raise LearnerError(
                "closed the connection without an answer; the port is not a quorum port (the first port of server.N), "
                "or requires TLS or a login"
            )
        if not data:
            raise LearnerError("the leader has closed the connection")
        self._connections.set_time()
        learner.receive_data(data)
        self._writer.write(learner.data_to_send())
        await asyncio.sleep(0)  # serve clients, because reading buffered bytes does not suspend

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

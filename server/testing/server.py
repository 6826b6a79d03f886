"""An embedded ZooKeeper server: in its own thread for blocking code, in the running event loop for asyncio code.

This is the public interface; the other modules implement it. :mod:`.runner` starts and stops the server and calls
functions in its loop; :mod:`.interceptor`, which every frame passes, applies pauses and faults.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from random import Random, SystemRandom
from typing import Any, ClassVar, Self

from zoolet.server.app import assemble
from zoolet.server.core.engine import Engine
from zoolet.server.net.clock import Clock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.turns import TURN
from zoolet.server.testing import arguments, clients, views, waiting
from zoolet.server.testing.actions import Action
from zoolet.server.testing.clock import ManualClock, advance
from zoolet.server.testing.faults import Fault
from zoolet.server.testing.history import History, Snapshot
from zoolet.server.testing.interceptor import Interceptor
from zoolet.server.testing.populate import populate
from zoolet.server.testing.runner import Runner


class Server:
    """A ZooKeeper for tests.

    ``with Server() as server:`` serves in its own thread, ``async with Server() as server:`` in the running event loop.
    All methods are plain calls that have taken effect when they return, in blocking and in asyncio code and from any
    thread; only :meth:`wait_for` must be awaited when it is called in the server's loop. All methods except
    :meth:`start` and :meth:`stop` raise a RuntimeError while the server does not run.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one.
        clock: ``"real"``, or ``"manual"`` for a clock that only :meth:`advance` moves.
        seed: The seed of all randomness; by default a random one. The same seed leads to the same faults, and with a
            manual clock to the same session ids and times.
        data_dir: Must be None: this server keeps everything in memory.
        config: A zoo.cfg's path, or a dict of its keys and values.
        compat: The release whose behaviour to reproduce, ``"3.8"`` or ``"3.9"``; None for the newest.
        initial_zxid: The last zxid of a server that this one replaces. By default zxids begin at 0 with a seed or a
            manual clock, and otherwise above those of every server that was started before.

    Attributes:
        seed: The seed, given or random.

    Raises:
        ValueError: An argument is invalid.
    """

    turn: ClassVar[float] = TURN
    """Seconds for which one connection is served before the others get their turn."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: str = "real",
        seed: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        compat: str | None = None,
        initial_zxid: int | None = None,
    ) -> None:
        arguments.check_address(host, port)
        arguments.check_numbers(seed, initial_zxid)
        arguments.check_data_dir(data_dir)
        self.seed = SystemRandom().getrandbits(32) if seed is None else seed
        self._clock: Clock = arguments.make_clock(clock, seed)
        self._config = arguments.read_config(config, compat)
        self._config.settings.exact_deadlines = clock == "manual"
        repeatable = seed is not None or clock == "manual"
        self._initial_zxid = 0 if initial_zxid is None and repeatable else initial_zxid
        self._runner = Runner(self._assemble, host, port)
        self._faults_made = 0
        self._interceptor: Interceptor
        self._history: History

    def __repr__(self) -> str:
        return f"<zoolet Server {self.hosts}>" if self.running else f"<zoolet Server, {self._runner.state.value}>"

    # --- starting and stopping ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self._runner.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.close()

    def start(self) -> None:
        """Start in a new thread; return once clients can connect.

        Raises:
            OSError: The address is in use or is not this machine's.
            RuntimeError: The server runs already.
        """
        self._runner.start()

    def stop(self) -> None:
        """Stop, and disconnect all clients; do nothing if the server does not run, or in a forked child.

        Raises:
            RuntimeError: The server runs in an ``async with`` block, whose end stops it.
        """
        self._runner.stop()

    def _assemble(self) -> Daemon:
        """Return a new daemon; called inside the server's loop."""
        daemon = assemble(
            self._config,
            clock=self._clock,
            rng=Random(self.seed),
            initial_zxid=self._initial_zxid,
            connection_factory=lambda connection, resume: self._interceptor.wrap(connection, resume),
            turn=self.turn,
        )
        loop = asyncio.get_running_loop()
        call_later = self._clock.call_later if isinstance(self._clock, ManualClock) else loop.call_later
        self._interceptor = Interceptor(daemon.engine, call_later)
        self._history = History(daemon.engine)
        return daemon

    @property
    def _engine(self) -> Engine:
        return self._runner.daemon.engine

    # --- state and address ---

    @property
    def running(self) -> bool:
        """Whether the server was started and has not been stopped since; in a forked child, as it was at the fork."""
        return self._runner.running

    @property
    def port(self) -> int:
        """The port."""
        return self._runner.port

    @property
    def hosts(self) -> str:
        """The connection string for clients: ``host:port``."""
        return self._runner.hosts

    @property
    def admin_url(self) -> str | None:
        """The URL of the admin server: None, because there is none."""
        return None

    # --- sessions and connections ---

    def expire(self, who: Any) -> None:
        """Expire sessions: when this returns, their ephemeral nodes are deleted, the watches of other clients have
        fired, and their connections are closed.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not alive on this server, or the client has none.
        """
        self._runner.call(lambda: clients.expire(self._interceptor, who))

    def drop(self, who: Any) -> None:
        """Close the connections of sessions, which stay alive. Arguments and errors are those of :meth:`expire`."""
        self._runner.call(lambda: clients.drop(self._runner.daemon, who))

    def pause(self, who: Any, *, missing_ok: bool = False) -> None:
        """Stop reading from a client and writing to it until :meth:`resume`, on this connection and all later ones, as
        if the network lost every packet. Errors are those of :meth:`expire`.

        Args:
            who: As for :meth:`expire`.
            missing_ok: Accept the id of a session that is not alive: a client that asks to resume it gets no answer.
        """
        self._runner.call(lambda: clients.pause(self._interceptor, who, missing_ok=missing_ok))

    def resume(self, who: Any) -> None:
        """End a pause: the requests that arrived during it are answered now. The sessions may have expired.

        Arguments and errors are those of :meth:`expire`.
        """
        self._runner.call(lambda: clients.resume(self._interceptor, who))

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`; open connections stay open."""
        self._runner.call(self._refuse_connections)

    def accept_connections(self) -> None:
        """Accept connections again."""
        self._runner.call(self._accept_connections)

    def _refuse_connections(self) -> None:
        self._runner.daemon.refuse_connections()

    def _accept_connections(self) -> None:
        self._runner.daemon.accept_connections()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are disconnected, and those that accept the mode reconnect."""
        self._runner.call(lambda: self._engine.set_read_only(on))

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Advance a manual clock: sessions, TTL nodes and containers that are due on the way expire, each in time.

        Args:
            seconds: By how much; 0 or more.

        Raises:
            ValueError: *seconds* is negative, or the clock is the real one.
        """
        self._runner.call(lambda: advance(self._engine, self._clock, seconds))

    # --- faults ---

    def fault(
        self,
        action: Action,
        op: str | int | None = None,
        path: str | None = None,
        *,
        client: Any = None,
        nth: int | Collection[int] | None = None,
        probability: float | None = None,
        times: int | None = None,
        strict: bool = False,
    ) -> Fault:
        """Inject a fault, until the ``with`` block of the result ends.

        Several faults may apply to one request: it waits for all of them, and of their effects the first one applies,
        in the order drop_request, error, lose_reply, close_after.

        Args:
            action: What the fault does to the requests or events that match.
            op: An operation, such as ``"create"``, ``"getData"``, ``"get_children2"``, ``"connect"``; None for all.
                A name that clients use for several op codes stands for all of them. A transaction is a ``"multi"``.
            path: A glob, in which ``*`` also matches slashes; a transaction matches with any of its paths.
            client: The client that sends the requests or receives the events; as *who* of :meth:`expire`, but it need
                not be connected yet.
            nth: Of the requests or events that match so far only the one with this number, counted from 1; or a set of
                numbers.
            probability: Of these each one with this probability.
            times: Of these only so many.
            strict: Raise an AssertionError at the end of the block if the fault was never applied.

        Raises:
            ValueError: An argument is invalid.
        """
        self._runner.check_callable()
        self._faults_made += 1
        fault = Fault(
            action,
            op=op,
            path=path,
            session=clients.follow(client),
            nth=nth,
            probability=probability,
            times=times,
            strict=strict,
            rng=Random(f"{self.seed} {self._faults_made}"),
            end=self._end_fault,
            release=lambda fault: self._runner.call(lambda: self._interceptor.release(fault)),
        )
        self._runner.call(lambda: self._interceptor.add(fault))
        return fault

    def heal(self) -> None:
        """End all faults and pauses, and accept connections: requests that were held are executed now, and events that
        were withheld are lost.
        """

        def heal() -> None:
            self._accept_connections()
            self._interceptor.heal()

        self._runner.call(heal)

    def _end_fault(self, fault: Fault) -> None:
        if self._runner.is_ours():
            self._runner.call(lambda: self._interceptor.remove(fault))

    # --- state ---

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Create nodes: ``{"/app": b"x", "/app/workers": {"w1": "a", "w2": "b"}}``.

        Args:
            nodes: The nodes by path or name. A value is bytes, text, None, a :class:`~zoolet.server.testing.Znode`, or
                a dict of the nodes below. Missing parents are created with empty data.

        Raises:
            ValueError: A path or a value is invalid; no node is created then.
        """
        self._runner.call(lambda: populate(self._engine, nodes))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the tree, in constant time."""
        return self._runner.call(lambda: self._history.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the tree of a snapshot, in time proportional to the changes since.

        Sessions, watches, the zxid and the clock are not changed, and no watch fires. Ephemeral nodes of sessions that
        have ended since are not restored.

        Raises:
            ValueError: The snapshot is of another server.
        """
        if not isinstance(snapshot, Snapshot):
            raise ValueError(f"restore({snapshot!r}): this is not a snapshot; snapshot() returns one")
        self._runner.call(lambda: self._history.restore_to(snapshot))

    def reset(self) -> None:
        """Remove all sessions, connections, faults, pauses and nodes, accept connections, and end read-only mode. The
        clock, zxids and session ids continue.

        Unless the port was chosen, it changes: a client from before, which somebody has forgotten to stop, never gets
        in again. With a chosen port it is answered that its session has expired.
        """

        def reset() -> None:
            self._interceptor.reset()
            self._engine.set_read_only(False)
            for session in list(self._engine.sessions.alive.values()):
                self._engine.close_session(session)
            clients.drop(self._runner.daemon, "all")
            self._accept_connections()
            self._runner.move()
            self._history.restore_to(self._history.start)
            self._faults_made = 0

        self._runner.call(reset)

    # --- views ---

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path; the root and ``/zookeeper`` only if *path* names them."""
        return self._runner.call(lambda: views.tree(self._engine, path))

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, by id."""
        return self._runner.call(lambda: views.sessions(self._engine))

    def watches(self) -> tuple[views.WatchView, ...]:
        """Return all watches."""
        return self._runner.call(lambda: views.watches(self._engine))

    def zxid(self) -> int:
        """Return the zxid of the last transaction."""
        return self._runner.call(lambda: self._engine.zxid)

    def op_count(self) -> int:
        """Return the number of requests that were read since the start or the last :meth:`reset`."""
        return self._runner.call(lambda: self._interceptor.count)

    def ops(self, last: int | None = None, *, since: int | None = None) -> tuple[views.OpView, ...]:
        """Return the last requests, oldest first; 1,000 are kept.

        Args:
            last: The most requests to return.
            since: An earlier result of :meth:`op_count`; only later requests are returned.

        Raises:
            ValueError: A number is negative.
        """
        arguments.check_counts(last=last, since=since)
        requests, count = self._runner.call(lambda: (list(self._interceptor.seen), self._interceptor.count))
        return views.ops(views.select(requests, count, last, since))

    def wait_for(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait until a predicate is true, and return what it returned.

        In the server's loop the result is a coroutine to await; anywhere else the call blocks.

        Args:
            predicate: Called without arguments, or with this server if it has a parameter.
            timeout: Seconds of real time; in the server's loop, of that loop's time.

        Raises:
            TimeoutError: The predicate was not true in time; the message has the last operations.
        """
        self._runner.check_callable()
        in_loop = self._runner.in_server_thread()

        def too_late() -> TimeoutError:
            return waiting.timeout_error(predicate, timeout, self.ops(5), blocking=not in_loop)

        wait = waiting.wait_in_loop if in_loop else waiting.wait
        return wait(waiting.bind(predicate, self), timeout, too_late)

"""A member of a cluster: a server with its own address, engine and connections, and a copy of the shared state."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from ...server.app import assemble
from ...server.core.engine import Engine
from ...server.core.server_connection import ServerConnection
from ...server.net.daemon import Daemon
from ..frames.core_executor import make_queue
from ..frames.frame_queue import FrameQueue
from ..frames.interceptor import Interceptor
from ..run import arguments, clients
from ..run.arguments import make_refusal
from ..run.place import Place
from ..server import Server
from ..signatures import Direction, Who
from ..state_calls import StateCalls
from .executor import MemberExecutor
from .figures import ensemble_metrics
from .gateway import Gateway
from .replica import MemberStatus, Replica
from .shared import Shared

Role = Literal["participant", "observer"]


class MemberEngine(Engine):
    """The engine of a member. It applies the leader's transactions and never expires anything by itself."""

    on_tick: Callable[[], bool]

    def tick(self) -> bool:
        """Do the work that is due for the member, and for the ensemble if it leads. Return whether more is due."""
        more = super().tick()
        return self.on_tick() or more


class Member(StateCalls):
    """A member of a :class:`~zoolet.testing.Cluster`, which creates it.

    It provides the methods of a :class:`~zoolet.testing.server.Server` that do not affect the whole cluster. Views
    show the member's own copy of the state, faults apply to its own connections, and changes go through the leader.

    Args:
        shared: State shared with the other members.
        number: The member's number, starting at 1.
        role: ``"participant"``, or ``"observer"`` for a member that does not vote.
        host: The address to listen on.
        port: The port, or 0 for a free port.
        place: The event loop or thread that runs the member.

    Attributes:
        gateway: The gateway that forwards requests of the member's connections to the leader.
        number: The server number in the ensemble's configuration; at first, one more than the index.
    """

    gateway: Gateway
    _replica: Replica | None = None

    def __init__(self, shared: Shared, number: int, role: Role, host: str, port: int, place: Place) -> None:
        self._shared = shared
        self.number = number
        super().__init__(host, port, hash((shared.seed, number)), shared.clock, shared.config)
        self._shown_seed = shared.seed
        self._clock = shared.clock
        self._runner.context, self.tls_ca = shared.tls
        self._role = role
        self._runner.after_call = self._pump
        self.move_to(place)

    def __repr__(self) -> str:
        if self._replica is None:
            return f"<zoolet Member {self.number - 1}, not started>"
        return f"<zoolet Member {self.index}: {self.status}>"

    @property
    def replica(self) -> Replica:
        """The member's copy of the state.

        Raises:
            RuntimeError: The cluster has not been started.
        """
        if self._replica is None:
            raise RuntimeError("the Cluster is not started; use it as 'with Cluster() as cluster:'")
        return self._replica

    @property
    def index(self) -> int:
        """The index in the cluster, starting at 0, or -1 once removed. Removing earlier members changes the index."""
        numbers = list(self._shared.ensemble.replicas)
        return numbers.index(self.number) if self.number in numbers else -1

    @property
    def role(self) -> Role:
        """``"participant"``, or ``"observer"`` if the member does not vote."""
        return "participant" if self.replica.votes else "observer"

    @property
    def status(self) -> str:
        """``leader``, ``follower`` or ``observer``; ``looking`` or ``read-only`` without a leader; or ``down``."""
        return self.replica.status.value

    @property
    def is_leader(self) -> bool:
        """Whether the member is the leader."""
        return self._shared.ensemble.leader is self.replica

    @property
    def behind(self) -> int:
        """The number of committed transactions that the member has not applied."""
        return self._shared.ensemble.behind(self.replica)

    @property
    def address(self) -> str:
        """The member's ``host:port``, even while it is stopped."""
        return self._runner.hosts

    @property
    def running(self) -> bool:
        """Whether the cluster is running and the member has not been stopped or killed."""
        return self._runner.running and self.replica.is_up

    # --- starting and stopping ---

    def _assemble(self) -> Daemon:
        self._runner.without_waiting = self._place.without_waiting
        now, monotonic_ms = self._clock.read()
        rng = Random(self.seed)
        engine = MemberEngine(self._config.settings, now=now, monotonic_ms=monotonic_ms, server_id=self.number, rng=rng)
        engine.sessions.set_key(self._shared.key)
        engine.frozen = True
        engine.on_tick = self._tick
        daemon = assemble(
            self._config,
            engine,
            clock=self._clock,
            connection_factory=lambda connection, resume: make_queue(
                self._interceptor, connection, resume, self._make_executor
            ),
            turn=self._place.turn,
        )
        assert daemon.observed is not None
        daemon.observed.role = lambda: self.status
        daemon.observed.quorum = lambda: ensemble_metrics(self._shared.ensemble, self.replica)
        above = self._shared.interceptor
        self._intercept(Interceptor(above.call_later, above.now, above))
        self._interceptor.filter_events_of(engine)
        self._replica = Replica(
            self.number,
            engine,
            self._role == "participant",
            self._on_status,
            daemon.connections.deliver,
            lambda session_id: self.gateway.is_local(session_id),
        )
        shared = self._shared
        self.gateway = Gateway(
            self.replica, shared.ensemble, local=shared.local_sessions, upgrades=shared.upgrades_sessions
        )
        return daemon

    def _make_executor(self, queue: FrameQueue, connection: ServerConnection) -> MemberExecutor:
        return MemberExecutor(queue, connection, self.gateway)

    def start(self) -> None:
        """Start the member again after :meth:`stop` or :meth:`kill`. It catches up and then serves clients.

        Raises:
            RuntimeError: The member was removed from its cluster. ``stop``, ``kill``, ``pause`` and ``restart`` raise
                this error as well.
        """
        self._call(self.start_in_loop)

    def _call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop.

        Raises:
            RuntimeError: The member was removed from its cluster.
        """

        def call() -> None:
            if self.index < 0:
                raise RuntimeError("the member was removed from its cluster")
            function()

        self._shared.call(call)

    def start_in_loop(self) -> None:
        """Start the member if it is down. Call this in the loop."""
        self._end_downtime()
        if not self.replica.is_up:
            self.replica.set_status(MemberStatus.LOOKING)
            self._shared.ensemble.start_read_only_timer(self.replica)
            self._set_refusing(down=False)
            self._shared.ensemble.settle()

    def start_in_loop_later(self, seconds: float) -> None:
        """Start the member after some seconds, unless it is started or stopped before. Call this in the loop."""
        if seconds:
            self._downtime = self._interceptor.call_later(seconds, lambda: self._shared.call(self.start_in_loop))
        else:
            self.start_in_loop()

    def stop(self) -> None:
        """Stop the member and disconnect its clients. Its data is kept. If it led, the others elect a new leader."""
        self._call(lambda: self.halt(abort=False))

    def kill(self) -> None:
        """Kill the member: like :meth:`stop`, but connections are reset and unsent output is lost."""
        self._call(lambda: self.halt(abort=True))

    def halt(self, *, abort: bool) -> None:
        """Stop the member. With *abort*, reset its connections, as if it was killed. Call this in the loop."""
        self._end_downtime()
        if self.replica.is_up:
            self._set_refusing(down=True)
            if abort:
                clients.drop(self._runner.daemon, set(), all_connections=True)
            if self.replica.is_paused:
                self._interceptor.all_paused = None  # a new process is not paused
            self.replica.is_paused = False
            self._shared.ensemble.forget(self.replica)
            self.replica.set_status(MemberStatus.DOWN)
            self._shared.ensemble.settle()

    def pause(self, who: Who | None = None, *, direction: Direction = "both", missing_ok: bool = False) -> None:
        """Pause the whole member, as SIGSTOP would pause its process. With *who*, pause clients of the member.

        Until :meth:`resume`, a paused member answers no requests, applies no transactions and does not lead. The
        arguments are as for :meth:`Server.pause`.
        """
        if who is not None:
            super().pause(who, direction=direction, missing_ok=missing_ok)
            return

        def pause() -> None:
            if not self.replica.is_up:
                return
            clients.pause(self._interceptor, None, "both")
            self.replica.is_paused = True
            self._shared.ensemble.settle()

        self._call(pause)

    def resume(self, who: Who | None = None) -> None:
        """Resume the whole member, or the clients that *who* names."""
        if who is not None:
            super().resume(who)
            return

        def resume() -> None:
            self._shared.ensemble.resume(self.replica)  # the new status must precede the answers to clients
            self._interceptor.all_paused = None
            self._interceptor.recheck()

        self._call(resume)

    # --- called by the cluster, in the loop ---

    async def open(self) -> None:
        """Start to listen on the member's port."""
        await self._runner.open()

    async def close(self) -> None:
        """Stop the member permanently, and close its port."""
        await self._runner.close()

    def end_faults(self) -> None:
        """End the member's own faults and pauses, and accept connections."""
        self._interceptor.heal()
        self.set_refusing(False)

    def set_refusing(self, on: bool) -> None:
        """Refuse new connections to this member, or accept them."""
        self._set_refusing(by_test=on)

    def forget_clients(self) -> None:
        """Close all connections, and remove faults and recorded requests."""
        self._interceptor.reset()
        clients.drop(self._runner.daemon, set(), all_connections=True)
        self.replica.forget_requests()

    def restore_role(self) -> None:
        """Restore the role that the member was created with."""
        self.replica.votes = self._role == "participant"
        self.replica.observes = not self.replica.votes

    def start_after_reset(self) -> None:
        """Start the member after a reset. It moves to a new port, unless the test has chosen its port."""
        self._end_downtime()
        self.replica.set_status(MemberStatus.LOOKING)
        self._set_refusing(by_test=False, down=False)
        self._runner.move()

    def _on_status(self, before: MemberStatus) -> None:
        """Disconnect all clients, close local sessions, and set read-only mode as the new status requires."""
        engine, status = self.replica.engine, self.replica.status
        self.gateway.close_all_local()
        if (status is MemberStatus.READ_ONLY) != engine.read_only:
            engine.set_read_only(status is MemberStatus.READ_ONLY)
        for client in list(engine.connections):
            engine.close_connection(client)
        self._runner.daemon.connections.deliver()

    def _tick(self) -> bool:
        self.gateway.expire_local()
        return self.is_leader and self._shared.ensemble.tick()

    def _pump(self) -> None:
        self._shared.ensemble.pump()

    @property
    def daemon(self) -> Daemon:
        """The daemon in the cluster's event loop."""
        return self._runner.daemon

    @property
    def _engine(self) -> Engine:
        return self._runner.daemon.engine

    @property
    def _writer(self) -> Engine:
        return self._shared.writer()

    def expire(self, who: Who) -> None:
        """Expire sessions that this member knows, like :meth:`Server.expire`.

        Raises:
            LookupError: No session matches *who*.
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """
        self._shared.call(lambda: self._shared.expire(who, self._engine, [self.gateway]))

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Stop the member and start it again.

        Args:
            keep: Must be true, because a single member cannot lose its state.
            downtime: Seconds of the cluster's clock until the member starts again. This call does not wait.

        Raises:
            ValueError: *keep* is false, or *downtime* is negative.
        """
        arguments.check_seconds("downtime", downtime)
        if not keep:
            raise ValueError("a single member cannot lose its state; for all members, call cluster.restart(keep=False)")

        def restart() -> None:
            self.halt(abort=False)
            self.start_in_loop_later(downtime)

        self._call(restart)

    set_read_only = make_refusal(
        Server.set_read_only,
        "a member becomes read-only without a quorum: use cluster.partition(...), not set_read_only()",
    )
    snapshot, restore, reset, advance = (
        make_refusal(method, f"a member has no {method.__name__}(): call cluster.{method.__name__}()")
        for method in (Server.snapshot, Server.restore, Server.reset, Server.advance)
    )

"""A member of a cluster: a server with an address, an engine and connections of its own, and a part of one state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Literal

from zoolet.server.app import assemble
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.cluster.executor import MemberExecutor
from zoolet.server.testing.cluster.figures import figures
from zoolet.server.testing.cluster.gateway import Gateway
from zoolet.server.testing.cluster.interceptor import MemberInterceptor
from zoolet.server.testing.cluster.replica import Replica, Status
from zoolet.server.testing.cluster.shared import Shared
from zoolet.server.testing.frames.frame_queue import FrameQueue
from zoolet.server.testing.run import arguments, clients
from zoolet.server.testing.server import Server
from zoolet.server.testing.signatures import Direction, Who
from zoolet.server.testing.state.history import Snapshot

Role = Literal["participant", "observer"]


class MemberEngine(Engine):
    """The engine of a member: it applies what the leader has prepared, and lets nothing expire by itself."""

    on_tick: Callable[[], bool]

    def tick(self) -> bool:
        """Do what is due for its connections, and for the ensemble if it leads."""
        super().tick()
        return self.on_tick()


class Member(Server):
    """A member of a :class:`~zoolet.server.testing.Cluster`, which makes it. It has the calls of a
    :class:`~zoolet.server.testing.server.Server`: views are of its own copy of the state, faults apply to its own
    connections, and changes go through the leader.

    Args:
        shared: What it has in common with the other members.
        number: Its number, from 1.
        role: Whether it votes.

    Attributes:
        gateway: What its connections ask.
        number: As given; the server number in the configuration of the ensemble, one more than its index.
    """

    gateway: Gateway
    _replica: Replica | None = None

    def __init__(self, shared: Shared, number: int, role: Role, host: str, port: int) -> None:
        self._shared = shared
        self.number = number
        super().__init__(host, port, seed=hash((shared.seed, number)), config=None)
        self._shown_seed = shared.seed
        self._clock = shared.clock
        self._config = shared.config
        self._role = role
        self._runner.after_call = self._pump
        self._runner.at_once = True

    def __repr__(self) -> str:
        if self._replica is None:
            return f"<zoolet Member {self.number - 1}, not started>"
        return f"<zoolet Member {self.index}: {self.status}>"

    @property
    def replica(self) -> Replica:
        """Its copy of the state.

        Raises:
            RuntimeError: The cluster has not been started.
        """
        if self._replica is None:
            raise RuntimeError("this member's Cluster is not started; use it as 'with Cluster() as cluster:'")
        return self._replica

    @property
    def index(self) -> int:
        """Its place in the cluster, from 0, which changes when one before it is removed; -1 for a removed one."""
        numbers = list(self._shared.ensemble.replicas)
        return numbers.index(self.number) if self.number in numbers else -1

    @property
    def role(self) -> Role:
        """``"participant"``, or ``"observer"`` if it does not vote."""
        return "participant" if self.replica.votes else "observer"

    @property
    def status(self) -> str:
        """``leader``, ``follower`` or ``observer``; ``looking`` or ``read-only`` without a leader; or ``down``."""
        return self.replica.status.value

    @property
    def is_leader(self) -> bool:
        """Whether it leads."""
        return self._shared.ensemble.leader is self.replica

    @property
    def behind(self) -> int:
        """How many committed transactions it has not applied."""
        return self._shared.ensemble.behind(self.replica)

    @property
    def address(self) -> str:
        """Its ``host:port``, while it does not run, too."""
        return self._runner.hosts

    @property
    def running(self) -> bool:
        """Whether it runs: it was not stopped or killed, and its cluster runs."""
        return self._runner.running and self.replica.is_up

    # --- starting and stopping ---

    def _assemble(self) -> Daemon:
        now, monotonic_ms = self._clock.read()
        rng = Random(self.seed)
        engine = MemberEngine(self._config.settings, now=now, monotonic_ms=monotonic_ms, server_id=self.number, rng=rng)
        engine.sessions.set_key(self._shared.key)
        engine.frozen = True
        engine.on_tick = self._tick
        daemon = assemble(
            self._config,
            clock=self._clock,
            rng=rng,
            connection_factory=self._frame_queue,
            turn=self.turn,
            engine=engine,
        )
        assert daemon.observed is not None
        daemon.observed.role = lambda: self.status
        daemon.observed.quorum = lambda: figures(self._shared.ensemble, self.replica)
        interceptor = MemberInterceptor(self._shared.interceptor)
        self._intercept(interceptor, partial(self._filter_events, engine))
        interceptor.whole.on_event_faults_of.append(lambda: interceptor.check_event_faults())
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

    def _executor(self, queue: FrameQueue, connection: ServerConnection) -> MemberExecutor:
        return MemberExecutor(queue, connection, self.gateway)

    def start(self) -> None:
        """Start it again after :meth:`stop` or :meth:`kill`: it catches up, and serves.

        Raises:
            RuntimeError: It was removed from its cluster; so do ``stop``, ``kill``, ``pause`` and ``restart``.
        """
        self._call(self.go_on)

    def _call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, unless the member was removed."""

        def call() -> None:
            if self.index < 0:
                raise RuntimeError("this member was removed from its cluster")
            function()

        self._shared.call(call)

    def go_on(self) -> None:
        """Start again; called in the loop."""
        self._end_downtime()
        if not self.replica.is_up:
            self.replica.set_status(Status.LOOKING)
            self._shared.ensemble.count_alone(self.replica)
            self._set_refusing(down=False)
            self._shared.ensemble.settle()

    def go_on_later(self, seconds: float) -> None:
        """Start again after some seconds, unless it is started or stopped until then; called in the loop."""
        if seconds:
            self._downtime = self._interceptor.call_later(seconds, lambda: self._shared.call(self.go_on))
        else:
            self.go_on()

    def stop(self) -> None:
        """Stop it: its clients are disconnected, and others elect a leader if it was that. Its data stays."""
        self._call(lambda: self.halt(abort=False))

    def kill(self) -> None:
        """Kill it: as :meth:`stop`, but connections are reset, and what was not sent is lost."""
        self._call(lambda: self.halt(abort=True))

    def halt(self, *, abort: bool) -> None:
        """Stop, or with *abort* be killed; called in the loop."""
        self._end_downtime()
        if self.replica.is_up:
            self._set_refusing(down=True)
            if abort:
                clients.drop(self._runner.daemon, set(), everybody=True)
            if self.replica.is_paused:
                self._interceptor.all_paused = None  # a new process is not stopped
            self.replica.is_paused = False
            self._shared.ensemble.forget(self.replica)
            self.replica.set_status(Status.DOWN)
            self._shared.ensemble.settle()

    def pause(self, who: Who | None = None, *, direction: Direction = "both", missing_ok: bool = False) -> None:
        """Pause clients, as :meth:`Server.pause`; or without *who* the whole member, as if SIGSTOP had stopped its
        process: it answers nothing, applies nothing, and leads nobody, until :meth:`resume`.
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
        """End a pause, of clients or of the whole member."""
        if who is not None:
            super().resume(who)
            return

        def resume() -> None:
            self._shared.ensemble.resume(self.replica)  # first: its clients are answered as what it is by then
            self._interceptor.all_paused = None
            self._interceptor.recheck()

        self._call(resume)

    # --- for its cluster, in the loop ---

    async def open(self) -> None:
        """Begin to listen."""
        await self._runner.open()

    async def close(self) -> None:
        """Stop for good."""
        await self._runner.close()

    def end_faults(self) -> None:
        """End its own faults and pauses, and accept connections."""
        self._interceptor.heal()
        self.set_refusing(False)

    def set_refusing(self, on: bool) -> None:
        """Refuse new connections, or accept them."""
        self._set_refusing(by_test=on)

    def forget_clients(self) -> None:
        """Close all connections, and remove faults and recorded requests."""
        self._interceptor.reset()
        clients.drop(self._runner.daemon, set(), everybody=True)
        self.replica.forget_requests()

    def restore_role(self) -> None:
        """Vote, or not, as at the start."""
        self.replica.votes = self._role == "participant"

    def begin_again(self) -> None:
        """Run, on another port unless it was chosen."""
        self._end_downtime()
        self.replica.set_status(Status.LOOKING)
        self._set_refusing(by_test=False, down=False)
        self._runner.move()

    def _on_status(self, before: Status) -> None:
        """Disconnect the clients of a leader that is gone, and serve as the new status allows."""
        engine, status = self.replica.engine, self.replica.status
        self.gateway.close_all_local()
        if (status is Status.READ_ONLY) != engine.read_only:
            engine.set_read_only(status is Status.READ_ONLY)
        for client in list(engine.connections):
            engine.close_connection(client)
        self._runner.daemon.connections.deliver()

    def _tick(self) -> bool:
        self.gateway.expire_local()
        return self.is_leader and self._shared.ensemble.tick()

    def _pump(self) -> None:
        self._shared.ensemble.pump()

    @property
    def _writer(self) -> Engine:
        return self._shared.writer()

    # --- what a cluster has, and a member has not ---

    def expire(self, who: Who) -> None:
        """Expire sessions of the ensemble that are known to this member, as :meth:`Server.expire`."""

        self._shared.call(lambda: self._shared.expire(who, self._engine, [self.gateway]))

    def set_read_only(self, on: bool) -> None:
        """Refuse: a member is read-only when it reaches no quorum.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"a member becomes read-only without a quorum: cluster.partition(...), not set_read_only({on})"
        )

    def snapshot(self) -> Snapshot:
        """Refuse, as ``restore``, ``reset`` and ``advance`` do: they are for the whole cluster.

        Raises:
            ValueError: Always.
        """
        raise _whole("snapshot")

    def restore(self, snapshot: Snapshot) -> None:
        """Refuse.

        Raises:
            ValueError: Always.
        """
        raise _whole("restore")

    def reset(self) -> None:
        """Refuse.

        Raises:
            ValueError: Always.
        """
        raise _whole("reset")

    def advance(self, seconds: float) -> None:
        """Refuse.

        Raises:
            ValueError: Always.
        """
        raise _whole("advance")

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Stop it and start it again.

        Raises:
            ValueError: *keep* is false, or *downtime* is negative.
        """
        arguments.check_seconds(f"restart(downtime={downtime!r})", downtime)
        if not keep:
            raise ValueError("restart(keep=False) is for the whole cluster: a member gets the state of the others")

        def restart() -> None:
            self.halt(abort=False)
            self.go_on_later(downtime)

        self._call(restart)


def _whole(name: str) -> ValueError:
    return ValueError(f"{name}() is for the whole cluster: call it there, and not on one member")

"""``@zoolet_schedules(100)``: run an asyncio test in virtual time, under a hundred schedules of its messages."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from zoolet.server.testing.frames.requests import OpView, RecordedRequest, view_of
from zoolet.server.testing.recording.recording import Recording
from zoolet.server.testing.signatures import CompatName
from zoolet.server.testing.sim.schedule import Schedule, reduce
from zoolet.server.testing.sim.simulation import Simulation
from zoolet.server.testing.sim.trouble import OF_A_CLUSTER, Trouble
from zoolet.server.testing.state.clock import MANUAL_CLOCK_START

if TYPE_CHECKING:
    from zoolet.client import Client

Test = Callable[..., Coroutine[Any, Any, object]]
OURS: Final = ("sim", "server", "cluster", "connect", "trouble")
"""The parameters that the decorator passes to a test; the others are fixtures."""
_NO_FAILURES: Final = ("Skipped", "Exit", "XFailed")
"""Raised by pytest for a test that has not failed; its failures are no Exceptions either."""
LINES: Final = 60
"""The most lines of a story; of a longer one the last."""


def zoolet_schedules(
    count: int = 100,
    *,
    seed: int = 0,
    lose_replies: float = 0.0,
    drop_requests: float = 0.0,
    close_connections: float = 0.0,
    expire_sessions: float = 0.0,
    pause_sessions: float = 0.0,
    outages: float = 0.0,
    cancel_attempts: float = 0.0,
    members: int | None = None,
    kill_leaders: float = 0.0,
    partitions: float = 0.0,
    lags: float = 0.0,
    limit: float = 86_400.0,
    config: Any = None,
    compat: CompatName | None = None,
) -> Callable[[Test], Callable[..., None]]:
    """Run an asyncio test in a :class:`Simulation` under many schedules: messages are late, in another way for each
    seed, so that requests of several clients meet in another order.

    The test may have the parameters ``server`` (a :class:`Server` that runs), ``connect`` (a coroutine function that
    returns a connected ``Client``, with its arguments), ``trouble`` (``trouble.end()`` ends what goes wrong,
    ``await trouble.attempt(coroutine)`` runs what may be cancelled) and ``sim`` (the :class:`Simulation`); with
    ``members=3`` it has ``cluster`` (a :class:`Cluster` that runs) in place of ``server``. Other parameters are
    fixtures. It is run in virtual time, so that it may sleep for hours.

    A schedule that fails is reduced to what matters, and the error has a note with its story: what the clients
    requested, what the server answered, and what was late or lost. ``@zoolet_schedules(1, seed=N)`` repeats it.

    Args:
        count: The number of schedules.
        seed: The seed of the first one; the others follow.
        lose_replies: The probability for each request that it is applied and its reply lost with the connection.
        drop_requests: The probability for each request that it is lost, with the connection.
        close_connections: The probability for each request that the connection is lost soon after.
        expire_sessions: The same, for the end of its session.
        pause_sessions: The same, for a pause of its session of up to 10 s, as by :meth:`Server.pause`.
        outages: The same, for all connections being lost, and none accepted for up to 10 s.
        cancel_attempts: The probability that what ``trouble.attempt()`` runs is cancelled.
        members: How many members a cluster has; None for a server.
        kill_leaders: The probability for each request that the leader is killed soon after, and starts again within
            10 s.
        partitions: The same, for a member that reaches no other for up to 10 s, which may be noticed later.
        lags: The same, for a member that is late by up to a second, for up to 10 s.
        limit: Virtual seconds after which a run fails.
        config: As for :class:`Server`.
        compat: As for :class:`Server`.

    Raises:
        ValueError: A number is invalid.
        TypeError: The test is not a coroutine function.
    """
    probabilities = {
        "lose_replies": lose_replies,
        "drop_requests": drop_requests,
        "close_connections": close_connections,
        "expire_sessions": expire_sessions,
        "pause_sessions": pause_sessions,
        "outages": outages,
        "cancel_attempts": cancel_attempts,
        "kill_leaders": kill_leaders,
        "partitions": partitions,
        "lags": lags,
    }
    return partial(_decorate, _Plan(count, seed, probabilities, members, limit, {"config": config, "compat": compat}))


@dataclass(frozen=True)
class _Plan:
    """The arguments of the decorator.

    Raises:
        ValueError: One is invalid.
    """

    count: int
    first: int
    probabilities: dict[str, float]
    members: int | None
    limit: float
    server_options: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ValueError(f"zoolet_schedules({self.count!r}) is invalid; the number of schedules must be 1 or more")
        if not isinstance(self.first, int) or isinstance(self.first, bool):
            raise ValueError(f"seed is {self.first!r}; it must be an int")
        for name, probability in self.probabilities.items():
            if not isinstance(probability, int | float) or not 0 <= probability <= 1:
                raise ValueError(f"{name} is {probability!r}; it must be a probability, from 0 to 1")
        if self.members is not None and (not isinstance(self.members, int) or self.members < 1):
            raise ValueError(f"members is {self.members!r}; it must be the number of members of a cluster, or None")
        for name in OF_A_CLUSTER:
            if self.members is None and self.probabilities[name]:
                raise ValueError(f"{name} is for a cluster: members=3")

    def decorator(self, seed: int) -> str:
        """Return what repeats the schedule of a seed."""
        options = {name: value for name, value in self.probabilities.items() if value}
        options |= {"members": self.members} if self.members is not None else {}
        options |= {name: value for name, value in self.server_options.items() if value is not None}
        return f"@zoolet_schedules(1, seed={seed}{''.join(f', {name}={options[name]!r}' for name in options)})"


def _decorate(plan: _Plan, test: Test) -> Callable[..., None]:
    """Return a test that runs an asyncio test under each schedule of a plan, with the parameters that are not ours."""
    if not inspect.iscoroutinefunction(test):
        raise TypeError(f"@zoolet_schedules is for async tests; {test.__qualname__} is not one")
    signature = inspect.signature(test)
    passed = [name for name in OURS if name in signature.parameters]
    missing, instead = ("server", "cluster") if plan.members is not None else ("cluster", "server")
    if missing in passed:
        with_members = "with" if plan.members is not None else "without"
        raise TypeError(f"{test.__qualname__} has the parameter {missing}; {with_members} members= it is {instead}")

    def run(*arguments: Any, **fixtures: Any) -> None:
        __tracebackhide__ = True
        for seed in range(plan.first, plan.first + plan.count):
            _Run(plan, seed, partial(test, *arguments, **fixtures), passed).check()

    run.__name__, run.__qualname__ = test.__name__, test.__qualname__
    run.__doc__, run.__module__ = test.__doc__, test.__module__
    run.__dict__.update(vars(test))  # pytest's marks
    others = [entry for name, entry in signature.parameters.items() if name not in passed]
    run.__signature__ = signature.replace(parameters=others, return_annotation=None)  # type: ignore[attr-defined]
    return run


@contextmanager
def _silence() -> Iterator[None]:
    """Log nothing of zoolet's."""

    def is_foreign(record: logging.LogRecord) -> bool:
        return not f"{record.name}.".startswith("zoolet.")

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(is_foreign)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_foreign)


class _Run:
    """One seed of one test.

    Args:
        plan: The arguments of the decorator.
        seed: The seed.
        test: The test, with its fixtures.
        passed: The parameters of ours that it has.
    """

    def __init__(self, plan: _Plan, seed: int, test: Test, passed: list[str]) -> None:
        self._plan = plan
        self._seed = seed
        self._test = test
        self._passed = passed
        self._schedule: Schedule
        self._requests: list[RecordedRequest] = []

    def check(self) -> None:
        """Run; if that fails, reduce the schedule, and raise the error of the reduced one with its story.

        Raises:
            BaseException: The error of the test.
        """
        __tracebackhide__ = True
        with _silence():  # the log would be that of all runs; the last one below is what the reader needs
            error = self._error(None)
        if error is None:
            return
        all_keys = list(self._schedule.deviations)

        def still_fails(kept: Collection[Hashable]) -> bool:
            return type(self._error(kept)) is type(error)

        with _silence():
            kept = reduce(all_keys, still_fails)
        reduced = self._error(kept)
        if reduced is not None and type(reduced) is type(error):
            error = reduced
        error.add_note(self._story(len(all_keys)))
        raise error

    def _error(self, kept: Collection[Hashable] | None) -> BaseException | None:
        """Run with some of the deviations; return the error of the test."""
        sim = Simulation(self._seed, limit=self._plan.limit)
        self._schedule = sim.network.schedule = Schedule(self._seed, self._plan.probabilities, kept, sim.time)
        self._requests = []
        try:
            sim.run(self._main(sim))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # of the test, whatever it is: check() raises it
            if type(error).__name__ in _NO_FAILURES:
                raise
            return error
        return None

    async def _main(self, sim: Simulation) -> None:
        async with AsyncExitStack() as stack:
            members, options = self._plan.members, self._plan.server_options
            server = await stack.enter_async_context(
                sim.server(**options) if members is None else sim.cluster(members, **options)
            )
            recording: Recording = stack.enter_context(server.recording())
            stack.callback(lambda: self._keep(recording))
            trouble = Trouble(server, self._schedule)

            async def connect(hosts: str | None = None, **options: Any) -> Client:
                from zoolet.client import Client

                return await stack.enter_async_context(Client(hosts or server.hosts, **options))

            ours = {"sim": sim, "server": server, "cluster": server, "connect": connect, "trouble": trouble}
            await self._test(**{name: ours[name] for name in self._passed})

    def _keep(self, recording: Recording) -> None:
        self._requests = [entry for entry in recording.entries if isinstance(entry, RecordedRequest)]

    def _story(self, deviations: int) -> str:
        """Return what happened in the last run, line by line."""
        names: dict[int, str] = {}
        sessions: dict[int, int] = {}
        for request in self._requests:
            names.setdefault(request.session, f"client {len(names) + 1}")
            sessions[request.connection] = request.session
        lines = [
            (request.time - MANUAL_CLOCK_START / 1000, 1, names[request.session], _line(view_of(request)))
            for request in self._requests
        ]
        for deviation in self._schedule.deviations.values():
            session = deviation.session or sessions.get(deviation.connection, 0)
            lines.append((deviation.time, 0, names.get(session, "a client"), f"({deviation.what})"))
        lines.sort(key=lambda line: line[:2])
        left = len(self._schedule.deviations)
        title = (
            f"schedule {self._seed} fails, of the {self._plan.count} from {self._plan.first}; "
            f"of {deviations} deviations {left} matter. Repeat it with {self._plan.decorator(self._seed)}:"
        )
        story = [f"{time * 1000:10.0f} ms  {name:10} {text}" for time, _, name, text in lines]
        skipped = [f"  ... {len(story) - LINES} lines"] if len(story) > LINES else []
        return "\n".join([title, *skipped, *story[-LINES:]])


def _line(op: OpView) -> str:
    data = f" {op.data!r}" if op.data else ""
    watch = ", with a watch" if op.watch else ""
    return f"{op.title}{data}{watch} -> {op.outcome}"

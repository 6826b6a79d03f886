"""The decorator ``@zoolet_schedules(100)``, which runs an asyncio test in virtual time under a hundred schedules."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..frames.requests import RecordedRequest, recorded_view
from ..recording.recording import Recording
from ..signatures import CompatName
from ..state.clock import MANUAL_CLOCK_START
from .chaos import REQUIRED_ENDPOINTS, Chaos
from .schedule import Schedule, reduce
from .simulation import Simulation

if TYPE_CHECKING:
    from ...client import Client

Test = Callable[..., Coroutine[Any, Any, object]]
PROVIDED_PARAMETERS: Final = ("sim", "server", "cluster", "connect", "chaos")
"""The parameters that the decorator passes to a test. All other parameters are fixtures."""
_OUTCOME_EXCEPTIONS: Final = ("Skipped", "Exit", "XFailed")
"""Names of the exceptions that pytest raises for tests that did not fail. Most are not subclasses of Exception."""
MAX_STORY_LINES: Final = 60
"""Maximum number of lines of a story. Only the last lines of a longer story are shown."""


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
    """Run an asyncio test in a :class:`Simulation` under many schedules.

    Each seed delays messages differently, so requests of several clients arrive in different orders. The test runs in
    virtual time and may sleep for hours. It may have these parameters. All others are fixtures:

    - ``server``: a running :class:`Server`, or with ``members=3``, ``cluster``: a running :class:`Cluster`.
    - ``connect``: a coroutine function that returns a connected ``Client`` for the client's arguments.
    - ``chaos``: ``chaos.stop()`` ends all faults; ``await chaos.attempt(coroutine)`` runs a coroutine that the
      schedule may cancel.
    - ``sim``: the :class:`Simulation`.

    A failing schedule is reduced to the relevant deviations. The error gets a note with its story: the requests, the
    answers, and the late and lost messages. ``@zoolet_schedules(1, seed=N)`` repeats it.

    Args:
        count: Number of schedules.
        seed: Seed of the first schedule. The other schedules use the following numbers.
        lose_replies: Probability for each request that it is applied, but its reply and the connection are lost.
        drop_requests: Probability for each request that it is lost together with the connection.
        close_connections: Probability for each request that the connection is lost soon after.
        expire_sessions: Probability for each request that its session expires soon after.
        pause_sessions: Probability for each request that its session is paused for up to 10 s, as by
            :meth:`Server.pause`.
        outages: Probability for each request that all connections are lost and new ones refused for up to 10 s.
        cancel_attempts: Probability that a coroutine run by ``chaos.attempt()`` is cancelled.
        members: Number of cluster members, or None for a server.
        kill_leaders: Probability for each request that the leader is killed soon after and restarted within 10 s.
        partitions: Probability for each request that one member is isolated for up to 10 s. The members may notice
            this later.
        lags: Probability for each request that one member lags by up to a second, for up to 10 s.
        limit: Virtual seconds after which a run fails.
        config: Configuration, as for :class:`Server`.
        compat: ZooKeeper release, as for :class:`Server`.

    Raises:
        ValueError: A number is invalid.
        TypeError: The test is not a coroutine function, or has a parameter that does not fit *members*.
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
    return partial(
        _decorate, _ScheduleOptions(count, seed, probabilities, members, limit, {"config": config, "compat": compat})
    )


@dataclass(frozen=True)
class _ScheduleOptions:
    """The arguments of the decorator.

    Raises:
        ValueError: An argument is invalid.
    """

    count: int
    first: int
    probabilities: dict[str, float]
    members: int | None
    limit: float
    server_options: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ValueError(f"zoolet_schedules: the number of schedules must be 1 or more, not {self.count!r}")
        if not isinstance(self.first, int) or isinstance(self.first, bool):
            raise ValueError(f"seed must be an int, not {self.first!r}")
        for name, probability in self.probabilities.items():
            if not isinstance(probability, int | float) or not 0 <= probability <= 1:
                raise ValueError(f"{name} must be a probability from 0 to 1, not {probability!r}")
        if self.members is not None and (not isinstance(self.members, int) or self.members < 1):
            raise ValueError(f"members must be the number of members of a cluster, or None, not {self.members!r}")
        for name, needed in REQUIRED_ENDPOINTS.items():
            if needed == "cluster" and self.members is None and self.probabilities[name]:
                raise ValueError(f"{name} needs a cluster; add members=3")

    def decorator(self, seed: int) -> str:
        """Return the text of the decorator that repeats the schedule of a seed."""
        options = {name: value for name, value in self.probabilities.items() if value}
        options |= {"members": self.members} if self.members is not None else {}
        options |= {name: value for name, value in self.server_options.items() if value is not None}
        return f"@zoolet_schedules(1, seed={seed}{''.join(f', {name}={options[name]!r}' for name in options)})"


def _decorate(plan: _ScheduleOptions, test: Test) -> Callable[..., None]:
    """Return a function that runs an asyncio test under each schedule. Its parameters are the test's fixtures."""
    if not inspect.iscoroutinefunction(test):
        raise TypeError(f"@zoolet_schedules needs an async test; {test.__qualname__} is not async")
    signature = inspect.signature(test)
    passed = [name for name in PROVIDED_PARAMETERS if name in signature.parameters]
    missing, instead = ("server", "cluster") if plan.members is not None else ("cluster", "server")
    if missing in passed:
        with_members = "with" if plan.members is not None else "without"
        raise TypeError(f"{test.__qualname__} has the parameter {missing}; {with_members} members=, use {instead}")

    def run(*arguments: Any, **fixtures: Any) -> None:
        __tracebackhide__ = True
        for seed in range(plan.first, plan.first + plan.count):
            _SeedRuns(plan, seed, partial(test, *arguments, **fixtures), passed).check()

    run.__name__, run.__qualname__ = test.__name__, test.__qualname__
    run.__doc__, run.__module__ = test.__doc__, test.__module__
    run.__dict__.update(vars(test))  # the attributes include pytest's marks
    others = [entry for name, entry in signature.parameters.items() if name not in passed]
    run.__signature__ = signature.replace(parameters=others, return_annotation=None)  # type: ignore[attr-defined]
    return run


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress zoolet's log messages in the handlers of the root logger."""

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


class _SeedRuns:
    """The runs of one test with one seed.

    Args:
        plan: The arguments of the decorator.
        seed: The seed.
        test: The test, with its fixtures.
        passed: The test's parameters that the decorator passes.
    """

    def __init__(self, plan: _ScheduleOptions, seed: int, test: Test, passed: list[str]) -> None:
        self._plan = plan
        self._seed = seed
        self._test = test
        self._passed = passed
        self._schedule: Schedule
        self._requests: list[RecordedRequest] = []

    def check(self) -> None:
        """Run the test. If it fails, reduce the schedule and raise the error of the reduced run with its story.

        Raises:
            BaseException: The test failed.
        """
        __tracebackhide__ = True
        with _silence():  # only the last, reduced run is logged
            error = self._run_once(None)
        if error is None:
            return
        all_keys = list(self._schedule.deviations)

        def still_fails(kept: Collection[Hashable]) -> bool:
            return type(self._run_once(kept)) is type(error)

        with _silence():
            kept = reduce(all_keys, still_fails)
        reduced = self._run_once(kept)
        if reduced is not None and type(reduced) is type(error):
            error = reduced
        error.add_note(self._story(len(all_keys)))
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not _SeedRuns._main.__code__:
            trace = trace.tb_next
        raise error if trace is None else error.with_traceback(trace.tb_next)  # keep only the frames of the test

    def _run_once(self, kept: Collection[Hashable] | None) -> BaseException | None:
        """Run the test with only the *kept* deviations. Return its error, or None if it passes."""
        sim = Simulation(self._seed, limit=self._plan.limit)
        self._schedule = sim.network.schedule = Schedule(self._seed, self._plan.probabilities, kept, sim.time)
        self._requests = []
        try:
            sim.run(self._main(sim))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # check() raises any error of the test
            if type(error).__name__ in _OUTCOME_EXCEPTIONS:
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
            stack.callback(lambda: self._keep_requests(recording))
            chaos = Chaos(server, self._schedule)

            async def connect(hosts: str | None = None, **options: Any) -> Client:
                from ...client import Client

                return await stack.enter_async_context(Client(hosts or server.hosts, **options))

            connect.__qualname__ = "connect"  # pytest shows this name among the arguments of a failed test
            ours = {"sim": sim, "server": server, "cluster": server, "connect": connect, "chaos": chaos}
            await self._test(**{name: ours[name] for name in self._passed})

    def _keep_requests(self, recording: Recording) -> None:
        self._requests = [entry for entry in recording.entries if isinstance(entry, RecordedRequest)]

    def _story(self, deviations: int) -> str:
        """Return the requests and deviations of the last run, line by line."""
        names: dict[int, str] = {}
        sessions: dict[int, int] = {}
        for request in self._requests:
            names.setdefault(request.session, f"client {len(names) + 1}")
            sessions[request.connection] = request.session
        lines = [
            (request.time - MANUAL_CLOCK_START / 1000, 1, names[request.session], recorded_view(request).summary)
            for request in self._requests
        ]
        for deviation in self._schedule.deviations.values():
            session = deviation.session or sessions.get(deviation.connection, 0)
            lines.append((deviation.time, 0, names.get(session, "a client"), f"({deviation.description})"))
        lines.sort(key=lambda line: line[:2])
        left = len(self._schedule.deviations)
        title = (
            f"schedule {self._seed} fails, of the {self._plan.count} from {self._plan.first}; "
            f"{left} of {deviations} deviations matter. Repeat it with {self._plan.decorator(self._seed)}:"
        )
        story = [f"{time * 1000:10.0f} ms  {name:10} {text}" for time, _, name, text in lines]
        skipped = [f"  ... {len(story) - MAX_STORY_LINES} lines"] if len(story) > MAX_STORY_LINES else []
        return "\n".join([title, *skipped, *story[-MAX_STORY_LINES:]])

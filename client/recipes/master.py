"""A master that assigns tasks to workers, with standby masters."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any, Final

from ...protocol import paths
from ...protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, SessionExpiredError
from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.one_shot_event import OneShotEvent
from ..aio.operations import BaseClient
from ..aio.reliable import (
    MAX_REFUSALS,
    RETRY_DELAY,
    create_protected,
    delete_protected,
    delete_until_gone,
    ensure_container,
    repeat,
)
from ..aio.supervision import first_event
from ..wire.arguments import checked_count, checked_node_name, checked_timeout
from ._base import SupervisedRecipe
from ._follow import read_children, read_values
from ._lease import Lease, LockLostError
from .children_cache import ChildrenCache
from .election import Election
from .worker import ACKS, ASSIGNED, COMMANDS, PROGRESS, RESULTS, TASKS, WORKERS

_TASK_PREFIX: Final = "task-"
"""Prefix of the names of tasks without a key."""


class Master(SupervisedRecipe):
    """A master that assigns tasks: ``async with Master(zk, "/jobs") as master: await master.submit({"do": "this"})``.

    Znodes: ``PATH/master/<name>``, an Election; ``PATH/tasks/task-<seq>``, persistent and sequential, the tasks;
    ``PATH/assigned/<worker>/<task>``. It also uses the nodes of Worker. All values are JSON.

    Guarantees: every submitted task is assigned to a worker, and is reassigned if that worker dies. Each assignment is
    one transaction by a master that the server still considers the leader, so a task has one worker at a time. It has
    one result, from the worker that it was assigned to. If the master cannot continue, the block is cancelled and
    raises the reason.

    Limits: only one of the masters is active. The others stand by and take over. The block can be entered while no
    server can be reached. To submit a task, a client need not be inside the block. A task may be processed more than
    once (see Worker).

    Args:
        client: Client that submits, assigns and reads tasks.
        path: Path of the tasks and of their workers.
        name: Name of the master.
        per_worker: Maximum number of tasks that are assigned to one worker at a time.

    Attributes:
        active: Set when this master becomes active for the first time.
        leadership: Lease of the active master, or None while this one is not active.
    """

    _serializer = serializers.json

    def __init__(self, client: BaseClient[Any], path: str, name: str = "", *, per_worker: int = 1) -> None:
        super().__init__(client, path)
        self._per_worker = checked_count("per_worker", per_worker, 1)
        self._election = Election(self._client, self._child_path("master"), name.encode())
        self.active = OneShotEvent(self._client._core.loop)
        self.leadership: Lease | None = None
        self._refusals: Counter[str] = Counter()  # number of refused assignments of each task
        self._task_czxids: dict[str, int] = {}  # czxids of the tasks at their last assignment

    # --- for every client ---

    async def submit(self, task: Any, *, key: str | None = None) -> str:
        """Submit a task, and return its name.

        Args:
            task: The task, any JSON value.
            key: Name of the task, chosen by the caller. A key that was submitted before is not submitted again until
                its result has been forgotten. So you can repeat the call after any error.

        Raises:
            ConnectionLossError: The connection was lost, and the task may have been submitted.
            SessionExpiredError: The session ended, and the task may have been submitted.
            ValueError: The key is not a valid node name, or starts with ``task-``.
        """
        if key is not None:
            if key.startswith(_TASK_PREFIX):
                raise ValueError(
                    f"invalid key {key!r}: names that start with {_TASK_PREFIX!r} are reserved for tasks without a key"
                )
            await self._submit_once(task, checked_node_name(key))
            return key
        node = await self._client.create(self._child_path(TASKS, _TASK_PREFIX), task, sequential=True, parents=True)
        return paths.name(node)

    async def _submit_once(self, task: Any, name: str) -> None:
        while True:
            transaction = self._client.transaction()
            transaction.create(self._child_path(RESULTS, name), None)  # the create fails if the task has a result
            transaction.delete(self._child_path(RESULTS, name))
            transaction.create(self._child_path(TASKS, name), task)
            try:
                await transaction.commit()
            except NodeExistsError:
                return
            except NoNodeError:
                for parent in (RESULTS, TASKS):
                    await self._client.ensure_path(self._child_path(parent))
                continue
            return

    async def result(self, task: str, timeout: float | None = None) -> Any:
        """Wait for a task's result, and return it: a dict with ``worker``, and with ``result`` or ``error``.

        If no worker could read the task, ``worker`` is missing.

        Raises:
            TimeoutError: The task had no result in time.
        """
        path = self._child_path(RESULTS, task)
        async with timeout_with_message(timeout, lambda: f"no result of {task}") as limit:
            while True:
                async with self._client.watch_exists(path) as watch:
                    if watch.initial is not None:
                        return (await self._client.get(path))[0]
                    limit.check_may_wait()
                    await watch.next()

    async def forget(self, task: str) -> None:
        """Delete a task's result, if it exists. Its key can then be submitted again."""
        with contextlib.suppress(NoNodeError):
            await self._client.delete(self._child_path(RESULTS, task))

    async def progress(self, task: str) -> AsyncIterator[Any]:
        """Yield the progress reports of the task's worker, until there is a result."""
        client, report, result = self._client, self._child_path(PROGRESS, task), self._child_path(RESULTS, task)
        last: Any = self
        while True:
            try:
                async with client.watch_exists(report) as reported, client.watch_exists(result) as finished:
                    if finished.initial is not None:
                        return
                    for value in (await read_values(client, self._child_path(PROGRESS), [task])).values():
                        if value != last:
                            last = value
                            yield value
                    await first_event(reported, finished)
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(RETRY_DELAY)

    async def workers(self) -> dict[str, Any]:
        """Return the last heartbeat of each running worker, by worker name: a dict with ``beat`` and ``busy``."""
        names = sorted(await read_children(self._client, self._child_path(WORKERS)))
        return await read_values(self._client, self._child_path(WORKERS), names)

    async def command(self, value: Any, timeout: float | None = None) -> dict[str, Any]:
        """Send a command to all running workers, and wait until each has acknowledged it or has stopped.

        Args:
            value: The command, any JSON value.
            timeout: Longest wait in seconds, or None for no limit.

        Returns:
            Acknowledgements by worker name, each a dict with ``answer`` or ``error``.

        Raises:
            TimeoutError: Some workers have not acknowledged in time, and the command was withdrawn.
        """
        checked_timeout(timeout)
        client, name = self._client, self._client._core.new_uuid()
        path, data = self._child_path(COMMANDS, f"command-{name}-"), {"id": name, "command": value}
        try:
            for parent in (self._child_path(ACKS), self._child_path(ACKS, name)):
                await ensure_container(client, parent)
            async with asyncio.timeout(timeout):
                create = lambda: client.create(path, data, sequential=True)
                await create_protected(
                    client,
                    self._child_path(COMMANDS),
                    name,
                    create,
                    create_parent=partial(ensure_container, client),
                    ephemeral=False,
                )
                return await self._wait_for_acknowledgements(name)
        finally:
            client._core.spawn(self._withdraw(name))

    async def _withdraw(self, name: str) -> None:
        await delete_protected(self._client, self._child_path(COMMANDS), name)
        await delete_until_gone(self._client, lambda: self._client.delete(self._child_path(ACKS, name), recursive=True))

    async def _wait_for_acknowledgements(self, name: str) -> dict[str, Any]:
        watch, path = self._client.watch_children, self._child_path(ACKS, name)
        expected = set(await read_children(self._client, self._child_path(WORKERS)))
        while True:
            try:
                async with watch(path) as acks, watch(self._child_path(WORKERS)) as workers:
                    if expected.intersection(workers.initial) <= set(acks.initial):
                        return await read_values(self._client, path, sorted(acks.initial))
                    await first_event(acks, workers)
            except NoNodeError:  # containers are deleted after their last child
                for name in (path, self._child_path(WORKERS)):
                    await ensure_container(self._client, name)

    # --- the active master ---

    async def _run(self) -> None:
        while True:
            await repeat(self._lead, done=(LockLostError,), limits_refusals=False)

    async def _lead(self) -> None:
        try:
            async with self._election as self.leadership:
                self.active.set("elected")
                await self._assign_until_lost(self.leadership)
        finally:
            self.leadership = None

    async def _assign_until_lost(self, leadership: Lease) -> None:
        for name in (TASKS, ASSIGNED, RESULTS):
            await self._client.ensure_path(self._child_path(name))
        assigned = await self._read_assignments()
        self._task_czxids = {}
        changed = asyncio.Event()
        workers, tasks = (ChildrenCache(self._client, self._child_path(name)) for name in (WORKERS, TASKS))
        async with workers, tasks:
            relays = [self._block.spawn(_relay(cache, changed)) for cache in (workers, tasks)]
            try:
                while True:
                    changed.clear()
                    for task, error in tasks.errors_by_name.items():
                        await self._report_error(leadership, task, error)
                    self._forget_reused_names(assigned, {name: stat.czxid for name, stat in tasks.stats.items()})
                    if not await self._assign_all(leadership, assigned, workers.values, tasks.values):
                        for worker in workers.values:  # the node is missing if a restart lost the server's data
                            await ensure_container(self._client, self._child_path(ASSIGNED, worker))
                        assigned = await self._read_assignments()
                        await asyncio.sleep(RETRY_DELAY)  # not changed.wait(), because no change may follow
                        continue
                    await changed.wait()
            finally:
                for relay in relays:
                    relay.cancel()

    async def _read_assignments(self) -> dict[str, str]:
        """Return the worker of each task. The active master updates the result itself, as the only one that assigns."""
        names = await self._client.children(self._child_path(ASSIGNED))
        return {
            task: name for name in names for task in await read_children(self._client, self._child_path(ASSIGNED, name))
        }

    def _forget_reused_names(self, assigned: dict[str, str], current_czxids: dict[str, int]) -> None:
        """Forget the workers of finished tasks whose names are reused by new tasks with the same key."""
        for task in self._task_czxids.keys() & current_czxids.keys():
            if self._task_czxids[task] != current_czxids[task]:
                assigned.pop(task, None)
        self._task_czxids = {
            task: zxid for task, zxid in self._task_czxids.items() if task in assigned
        } | current_czxids

    async def _assign_all(
        self, leadership: Lease, assigned: dict[str, str], workers: Iterable[str], tasks: Mapping[str, Any]
    ) -> bool:
        """Assign the tasks that have no worker. Return False if *assigned* turned out to be wrong."""
        for task in assigned.keys() - tasks.keys():
            if await self._client.exists(self._child_path(TASKS, task)) is None:
                del assigned[task]  # the task has a result
        loads = dict.fromkeys(workers, 0)
        for worker in assigned.values():
            if worker in loads:
                loads[worker] += 1
        for task in sorted(tasks):
            if assigned.get(task) in loads:
                continue
            load, worker = min(((load, name) for name, load in loads.items()), default=(self._per_worker, ""))
            if load >= self._per_worker:
                break
            try:
                await self._assign(leadership, task, assigned.get(task), worker, tasks[task])
            except (NoNodeError, NodeExistsError) as error:
                if error.path != self._child_path(TASKS, task):
                    return False
                continue  # the task has a result
            except (ValueError, ConnectionLossError) as error:
                refusals = getattr(error, "refusals", MAX_REFUSALS)
                self._refusals[task] += refusals
                if not refusals or self._refusals[task] < MAX_REFUSALS:
                    raise
                await self._report_error(leadership, task, error)
                del self._refusals[task]
                continue
            self._refusals.pop(task, None)
            assigned[task] = worker
            loads[worker] += 1
        return True

    async def _report_error(self, leadership: Lease, task: str, error: Exception) -> None:
        """Finish a task that is unreadable, or too large to be assigned, with the error as its result."""
        with contextlib.suppress(NoNodeError, NodeExistsError):  # the task may have been withdrawn or already reported
            async with leadership.transaction() as transaction:
                transaction.delete(self._child_path(TASKS, task))
                transaction.create(self._child_path(RESULTS, task), {"error": str(error)})

    async def _assign(self, leadership: Lease, task: str, before: str | None, worker: str, value: Any) -> None:
        async with leadership.transaction() as transaction:
            transaction.check(self._child_path(TASKS, task))
            if before is not None:
                transaction.delete(self._child_path(ASSIGNED, before, task))
            transaction.create(self._child_path(ASSIGNED, worker, task), value)

    async def _start_tasks(self) -> None:
        self._block.spawn(self._run())


async def _relay(cache: ChildrenCache[Any], changed: asyncio.Event) -> None:
    async for _ in cache.changes():
        changed.set()

"""A worker that processes the tasks assigned by a master."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from ...protocol.errors import ConnectionLossError, NoAuthError, NodeExistsError, NoNodeError
from .. import serializers
from ..aio.operations import BaseClient
from ..aio.reliable import delete_in_background, ensure_container, repeat, repeat_despite_errors
from ..wire.arguments import checked_count, checked_node_name
from ._base import STOP_TIMEOUT, SupervisedRecipe
from .children_cache import ChildrenCache
from .persistent_ephemeral import PersistentEphemeral

WORKERS, TASKS, ASSIGNED, PROGRESS, RESULTS = "workers", "tasks", "assigned", "progress", "results"
COMMANDS, ACKS = "commands", "acks"


class Worker(SupervisedRecipe):
    """A worker that processes tasks: ``async with Worker(zk, "/jobs", "w-1", handler): ...``.

    Znodes: ``PATH/workers/<name>``, ephemeral, JSON with the number of the last heartbeat, ``beat``, and the tasks that
    it is ``busy`` with; ``PATH/assigned/<name>/<task>``, created by the master; ``PATH/progress/<task>``, ephemeral,
    the last :meth:`report`; ``PATH/results/<task>``, persistent, the result. All values are JSON. The parent nodes are
    containers, except ``PATH/assigned`` and ``PATH/results``.

    Guarantees: an assigned task is processed at least once, unless the master reassigns it first. One transaction
    writes the result and deletes the task. Only the worker that the task is assigned to can commit it, so there is one
    result. If the worker cannot continue, the block is cancelled and raises the reason.

    Limits: a worker that is stopped for longer than its session timeout may process a task at the same time as another
    worker. Use the unique name of the task to make external effects idempotent.

    Args:
        client: Client whose session owns the node of the worker.
        path: Path of the master.
        name: Name of the worker, unique among workers.
        handler: Function that is called with a task's name and value, and returns the result. An exception is
            also a result.
        on_command: Function that is called with each command of the master, and returns the acknowledgement.
        heartbeat_interval: Seconds between two heartbeats, at least 0.001.
        concurrency: Maximum number of tasks to process at the same time.
        stop_timeout: As for PersistentEphemeral.
    """

    _serializer = serializers.json

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        name: str,
        handler: Callable[[str, Any], Awaitable[Any]],
        *,
        on_command: Callable[[Any], Awaitable[Any]] | None = None,
        heartbeat_interval: float = 1.0,
        concurrency: int = 1,
        stop_timeout: float = STOP_TIMEOUT,
    ) -> None:
        super().__init__(client, path)
        self._name = checked_node_name(name)
        self._handler = handler
        self._on_command = on_command
        self._heartbeat_interval = checked_count("heartbeat_interval", heartbeat_interval, 0.001)
        self._free_slots = asyncio.Semaphore(checked_count("concurrency", concurrency, 1))
        self._busy_tasks: dict[str, asyncio.Task[Any]] = {}
        self._node = PersistentEphemeral(
            self._client, self._child_path(WORKERS, name), {"beat": 0, "busy": []}, stop_timeout=stop_timeout
        )

    async def report(self, task: str, progress: Any) -> None:
        """Publish the progress of a task. The report is deleted when the task or the session of the worker ends.

        Raises:
            RuntimeError: The worker was not entered.
        """
        self._check_entered()
        path = self._child_path(PROGRESS, task)
        try:
            await self._client.set(path, progress)
        except NoNodeError:
            try:
                await ensure_container(self._client, self._child_path(PROGRESS))
                await self._client.create(path, progress, ephemeral=True)
            except NodeExistsError:
                await self._client.set(path, progress)

    async def _follow_tasks(self) -> None:
        async with ChildrenCache(self._client, self._child_path(ASSIGNED, self._name)) as cache:
            async for _ in cache.changes():
                assigned = cache.values
                for task in self._busy_tasks.keys() - assigned.keys():
                    self._busy_tasks.pop(task).cancel()  # the task was reassigned or withdrawn
                for task in sorted(assigned.keys() - self._busy_tasks.keys()):
                    self._busy_tasks[task] = self._block.spawn(self._process(task, assigned[task]))

    async def _process(self, task: str, value: Any) -> None:
        client = self._client

        async def commit(outcome: dict[str, Any]) -> None:
            await client.ensure_path(self._child_path(RESULTS))
            async with client.transaction() as transaction:
                transaction.delete(self._child_path(ASSIGNED, self._name, task))
                transaction.delete(self._child_path(TASKS, task))
                transaction.create(self._child_path(RESULTS, task), {"worker": self._name, **outcome})

        try:
            async with self._free_slots:
                await _write_outcome(commit, await _call_handler("result", self._handler, task, value))
        finally:  # the end of the assignment cancels this task, even before it receives the reply to its commit
            delete_in_background(client, self._child_path(PROGRESS, task))

    async def _heartbeat(self) -> None:
        for number in count(1):
            await asyncio.sleep(self._heartbeat_interval)
            write = partial(self._node.set, {"beat": number, "busy": sorted(self._busy_tasks)})
            await repeat(partial(repeat_despite_errors, self._client, write, fatal=(NoAuthError,)))

    async def _follow_commands(self) -> None:
        done: set[str] = set()
        async with ChildrenCache(self._client, self._child_path(COMMANDS)) as cache:
            async for _ in cache.changes():
                commands = cache.values
                for name in sorted(commands.keys() - done):
                    done.add(name)
                    if isinstance(commands[name], dict) and "id" in commands[name]:
                        await self._acknowledge(commands[name]["id"], commands[name].get("command"))

    async def _acknowledge(self, command_id: str, command: Any) -> None:
        outcome: dict[str, Any] = {"error": "this worker accepts no commands"}
        if self._on_command is not None:
            outcome = await _call_handler("answer", self._on_command, command)
        await _write_outcome(
            lambda outcome: self._client.create(self._child_path(ACKS, command_id, self._name), outcome), outcome
        )

    async def _start_tasks(self) -> None:
        self._busy_tasks.clear()
        await ensure_container(self._client, self._child_path(ASSIGNED, self._name))
        await ensure_container(self._client, self._child_path(COMMANDS))
        await self._node.start(self._block)
        for follow in (self._follow_tasks, self._follow_commands):  # repeated, because a cache gives up early
            self._block.spawn(repeat(follow, limits_refusals=False))
        self._block.spawn(self._heartbeat())

    async def stop(self) -> None:
        """Stop processing tasks, and delete the worker's node."""
        await super().stop()
        await self._node.stop()


async def _call_handler(key: str, handler: Callable[..., Awaitable[Any]], *arguments: Any) -> dict[str, Any]:
    """Call a handler. Return a dict with its result under *key*, or with its error under ``error``."""
    try:
        return {key: await handler(*arguments)}
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # the worker stops, or the task was reassigned
            raise
        return {"error": f"a call that the handler awaited was cancelled {error}".rstrip()}
    except Exception as error:  # the master receives every error
        return {"error": f"{type(error).__name__}: {error}"}


async def _write_outcome(write: Callable[[dict[str, Any]], Awaitable[Any]], outcome: dict[str, Any]) -> None:
    """Write an outcome, and repeat this until the server answers. Write an error if the outcome cannot be written."""
    done = (NoNodeError, NodeExistsError)  # the task was withdrawn, or the reply to an earlier attempt was lost
    try:
        await repeat(lambda: write(outcome), done=done)
    except (TypeError, ValueError, ConnectionLossError) as error:  # the serializer or the server refuses it
        message = f"the {next(iter(outcome))} cannot be written: {error}"
        await repeat(lambda: write({"error": message}), done=done)

"""A worker, which processes the tasks that a master assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import delete_in_background, ensure_container, repeat, repeat_despite_errors
from zoolet.client.recipes._base import SupervisedRecipe
from zoolet.client.recipes.children_cache import ChildrenCache
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.wire.arguments import checked_count, checked_node_name
from zoolet.protocol.errors import NoAuthError, NodeExistsError, NoNodeError

WORKERS, TASKS, ASSIGNED, PROGRESS, RESULTS = "workers", "tasks", "assigned", "progress", "results"
COMMANDS, ACKS = "commands", "acks"


class Worker(SupervisedRecipe):
    """Processes tasks: ``async with Worker(zk, "/jobs", "w-1", handler): ...``.

    Znodes: ``PATH/workers/<name>`` ephemeral, JSON with the number of the last heartbeat, ``beat``, and the tasks that
    it is ``busy`` with; ``PATH/assigned/<name>/<task>`` created by the master; ``PATH/progress/<task>`` ephemeral, the
    last :meth:`report`; ``PATH/results/<task>`` persistent, the result. All values are JSON. The nodes above these are
    containers, except ``PATH/assigned`` and ``PATH/results``.

    Guarantees: a task that is assigned to a worker is processed at least once, unless the master assigns it to another
    first. The result is written, and the task deleted, in one transaction, which only the worker that has it assigned
    can commit: there is one result. If the worker cannot go on, the block is cancelled and raises the reason.

    Limits: a worker that is stopped longer than its session timeout may process a task that another one does too. The
    task's name, which is unique, can make effects outside idempotent.

    Args:
        path: The master's.
        name: Unique among workers.
        handler: Called with a task's name and value, returns its result; what it raises is a result too.
        on_command: Called with each command that the master sends to all, returns the acknowledgement.
        heartbeat_interval: Seconds between two heartbeats, from 0.001.
        concurrency: Tasks that are processed at the same time.
    """

    _serializer = serializers.json

    def __init__(
        self,
        client: Client,
        path: str,
        name: str,
        handler: Callable[[str, Any], Awaitable[Any]],
        *,
        on_command: Callable[[Any], Awaitable[Any]] | None = None,
        heartbeat_interval: float = 1.0,
        concurrency: int = 1,
    ) -> None:
        super().__init__(client, path)
        self._name = checked_node_name(name)
        self._handler = handler
        self._on_command = on_command
        self._heartbeat_interval = checked_count("heartbeat_interval", heartbeat_interval, 0.001)
        self._room = asyncio.Semaphore(checked_count("concurrency", concurrency, 1))
        self._busy: dict[str, asyncio.Task[Any]] = {}
        self._node = PersistentEphemeral(self._client, self._at(WORKERS, name), {"beat": 0, "busy": []})

    async def report(self, task: str, progress: Any) -> None:
        """Publish how far a task is; it goes with the worker's session.

        Raises:
            RuntimeError: The worker was not entered.
        """
        self._check_entered()
        path = self._at(PROGRESS, task)
        try:
            await self._client.set(path, progress)
        except NoNodeError:
            try:
                await ensure_container(self._client, self._at(PROGRESS))
                await self._client.create(path, progress, ephemeral=True)
            except NodeExistsError:
                await self._client.set(path, progress)

    async def _follow_tasks(self) -> None:
        async with ChildrenCache(self._client, self._at(ASSIGNED, self._name)) as cache:
            async for _ in cache.changes():
                assigned = cache.values
                for task in self._busy.keys() - assigned.keys():
                    self._busy.pop(task).cancel()  # assigned to another, or withdrawn
                for task in sorted(assigned.keys() - self._busy.keys()):
                    self._busy[task] = self._block.spawn(self._process(task, assigned[task]))

    async def _process(self, task: str, value: Any) -> None:
        client = self._client

        async def commit(outcome: dict[str, Any]) -> None:
            await client.ensure_path(self._at(RESULTS))
            async with client.transaction() as transaction:
                transaction.delete(self._at(ASSIGNED, self._name, task))
                transaction.delete(self._at(TASKS, task))
                transaction.create(self._at(RESULTS, task), {"worker": self._name, **outcome})

        async with self._room:
            await _write(commit, await _outcome("result", self._handler, task, value))
        delete_in_background(client, self._at(PROGRESS, task))  # for this ends with its assignment

    async def _heartbeat(self) -> None:
        for number in count(1):
            await asyncio.sleep(self._heartbeat_interval)
            write = partial(self._node.set, {"beat": number, "busy": sorted(self._busy)})
            await repeat(partial(repeat_despite_errors, self._client, write, fatal=(NoAuthError,)))

    async def _follow_commands(self) -> None:
        done: set[str] = set()
        async with ChildrenCache(self._client, self._at(COMMANDS)) as cache:
            async for _ in cache.changes():
                commands = cache.values
                for name in sorted(commands.keys() - done):
                    done.add(name)
                    if isinstance(commands[name], dict) and "id" in commands[name]:
                        await self._acknowledge(commands[name]["id"], commands[name].get("command"))

    async def _acknowledge(self, command_id: str, command: Any) -> None:
        outcome: dict[str, Any] = {"error": "this worker accepts no commands"}
        if self._on_command is not None:
            outcome = await _outcome("answer", self._on_command, command)
        await _write(lambda outcome: self._client.create(self._at(ACKS, command_id, self._name), outcome), outcome)

    async def _begin(self) -> None:
        self._busy.clear()
        await ensure_container(self._client, self._at(ASSIGNED, self._name))
        await ensure_container(self._client, self._at(COMMANDS))
        await self._node.start(self._block)
        for job in (self._follow_tasks(), self._heartbeat(), self._follow_commands()):
            self._block.spawn(job)

    async def stop(self) -> None:
        """Delete the worker's node."""
        await super().stop()
        await self._node.stop()


async def _outcome(key: str, handler: Callable[..., Awaitable[Any]], *arguments: Any) -> dict[str, Any]:
    """Call a handler; return its result under a key, or its error."""
    try:
        return {key: await handler(*arguments)}
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # this worker ends, or the task was assigned to another
            raise
        return {"error": f"what the handler awaited was cancelled {error}".rstrip()}
    except Exception as error:  # whatever it is, the master receives it
        return {"error": f"{type(error).__name__}: {error}"}


async def _write(write: Callable[[dict[str, Any]], Awaitable[Any]], outcome: dict[str, Any]) -> None:
    """Write an outcome, or that it cannot be written, until the server has answered."""
    done = (NoNodeError, NodeExistsError)  # it was withdrawn, or the reply to an earlier try was lost
    try:
        await repeat(lambda: write(outcome), done=done)
    except (TypeError, ValueError) as error:
        message = f"the {next(iter(outcome))} cannot be written: {error}"
        await repeat(lambda: write({"error": message}), done=done)

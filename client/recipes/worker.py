"""Who does the tasks that a master assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from zoolet.client import serializers
from zoolet.client.recipes.children_cache import ChildrenCache
from zoolet.client.recipes.persistent_ephemeral import PersistentEphemeral
from zoolet.client.reliable import delete_guaranteed
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, SessionExpiredError

WORKERS: Final = "workers"
TASKS: Final = "tasks"
ASSIGNED: Final = "assigned"
PROGRESS: Final = "progress"
RESULTS: Final = "results"
COMMANDS: Final = "commands"
ACKS: Final = "acks"


class Worker:
    """Does tasks: ``async with Worker(zk, "/jobs", "w-1", handler): ...``.

    Znodes: ``PATH/workers/<name>`` ephemeral, JSON with ``beat`` and ``busy``: it is there, and how often it said so;
    ``PATH/assigned/<name>/<task>`` made by the master; ``PATH/progress/<task>`` ephemeral, what :meth:`report` said;
    ``PATH/results/<task>`` persistent, what came of it. All values are JSON.

    Guarantees: a task that is assigned to a worker is done by it at least once, unless the master assigns it to
    another first. The result is written, and the task removed, in one transaction, which only the worker that has it
    assigned can do: there is one result. What is reported goes with the worker's session.

    Limits: a worker that is stopped longer than its session timeout may do a task that another one does too. Tasks with
    effects outside need a fencing token; the task's name is one per task, the Master's ``token`` grows with masters.

    Args:
        client: Whose session it is in.
        path: The master's.
        name: Unique among workers.
        handler: Does a task: given its name and its value, gives the result; what it raises is a result too.
        on_command: Called with each command that the master sends to all, and gives the acknowledgement.
        heartbeat_interval: Seconds between two heartbeats.
        concurrency: Tasks that are done at the same time.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        name: str,
        handler: Callable[[str, Any], Awaitable[Any]],
        *,
        on_command: Callable[[Any], Awaitable[Any]] | None = None,
        heartbeat_interval: float = 1.0,
        concurrency: int = 1,
    ) -> None:
        client.add_chroot(path)
        if not name or "/" in name:
            raise ValueError(f"name is {name!r}; it is the name of a node, and must have no slash")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency!r}; it must be 1 or more")
        if not heartbeat_interval > 0:
            raise ValueError(f"heartbeat_interval is {heartbeat_interval!r} s; it must be above 0")
        self._client = client.with_serializer(serializers.json)
        self._path = path
        self._name = name
        self._handler = handler
        self._on_command = on_command
        self._heartbeat_interval = heartbeat_interval
        self._room = asyncio.Semaphore(concurrency)
        self._busy: dict[str, asyncio.Task[Any]] = {}
        self._beats = 0
        self._mine = PersistentEphemeral(self._client, self._at(WORKERS, name), {"beat": 0, "busy": []})
        self._tasks: list[asyncio.Task[Any]] = []

    def _at(self, *names: str) -> str:
        path = self._path
        for name in names:
            path = paths.join(path, name)
        return path

    async def report(self, task: str, progress: Any) -> None:
        """Return how far a task is; whoever follows it sees it."""
        path = self._at(PROGRESS, task)
        try:
            await self._client.set(path, progress)
        except NoNodeError:
            try:
                await self._client.create(path, progress, ephemeral=True, parents=True)
            except NodeExistsError:
                await self._client.set(path, progress)

    async def _follow_tasks(self) -> None:
        async with ChildrenCache(self._client, self._at(ASSIGNED, self._name)) as cache:
            async for _ in cache.changes():
                assigned = cache.values
                for task in [task for task in self._busy if task not in assigned]:
                    self._busy.pop(task).cancel()  # given to another, or withdrawn
                for task, value in sorted(assigned.items()):
                    if task not in self._busy:
                        self._busy[task] = self._client.spawn(self._work(task, value))

    async def _work(self, task: str, value: Any) -> None:
        async with self._room:
            try:
                result = {"worker": self._name, "result": await self._handler(task, value)}
            except Exception as error:  # whatever it is, the master is to know
                result = {"worker": self._name, "error": f"{type(error).__name__}: {error}"}
            await self._hand_in(task, result)

    async def _hand_in(self, task: str, result: Any) -> None:
        """Write the result and be done with the task, in one transaction: only whoever has it assigned can."""
        client = self._client
        while True:
            try:
                await client.ensure_path(self._at(RESULTS))
                async with client.transaction() as transaction:
                    transaction.delete(self._at(ASSIGNED, self._name, task))
                    transaction.delete(self._at(TASKS, task))
                    transaction.create(self._at(RESULTS, task), result)
                break
            except (NoNodeError, NodeExistsError):  # it was given to another, or the reply to this was lost
                break
            except (TypeError, ValueError) as error:
                result = {"worker": self._name, "error": f"the result cannot be written: {error}"}
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(0.05)
        client.spawn(delete_guaranteed(client, self._at(PROGRESS, task)))  # for this job ends with its assignment

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_interval)
            self._beats += 1
            try:
                await self._mine.set({"beat": self._beats, "busy": sorted(self._busy)})
            except (ConnectionLossError, SessionExpiredError):
                continue

    async def _follow_commands(self) -> None:
        done: set[str] = set()
        async with ChildrenCache(self._client, self._at(COMMANDS)) as cache:
            async for _ in cache.changes():
                for command, value in sorted(cache.values.items()):
                    if command in done:
                        continue
                    done.add(command)
                    if isinstance(value, dict) and "id" in value:
                        await self._acknowledge(value["id"], await self._answer(value.get("command")))

    async def _answer(self, command: Any) -> dict[str, Any]:
        if self._on_command is None:
            return {"error": "this worker obeys no commands"}
        try:
            return {"answer": await self._on_command(command)}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    async def _acknowledge(self, command: str, answer: Any) -> None:
        while True:
            try:
                await self._client.create(self._at(ACKS, command, self._name), answer)
                return
            except (NodeExistsError, NoNodeError):  # it is there, or the command was withdrawn
                return
            except (TypeError, ValueError) as error:
                answer = {"error": f"the answer cannot be written: {error}"}
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(0.05)

    async def __aenter__(self) -> Self:
        await self._client.ensure_path(self._at(ASSIGNED, self._name))
        await self._client.ensure_path(self._at(COMMANDS))
        await self._mine.__aenter__()
        followed = [self._follow_tasks(), self._heartbeat(), self._follow_commands()]
        self._tasks = [self._client.spawn(one) for one in followed]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in (*self._tasks, *self._busy.values()):
            job.cancel()
        # In the background, so that a cancellation here does not keep the node.
        await asyncio.wait((self._client.spawn(self._mine.__aexit__(None, None, None)),))

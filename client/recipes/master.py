"""Who assigns tasks to workers; others stand by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from zoolet.client import serializers
from zoolet.client.one_shot_event import OneShotEvent
from zoolet.client.recipes._lease import Lease, LockLostError
from zoolet.client.recipes.election import Election
from zoolet.client.recipes.node_cache import ended
from zoolet.client.recipes.tree_cache import TreeCache
from zoolet.client.recipes.worker import ACKS, ASSIGNED, COMMANDS, PROGRESS, RESULTS, TASKS, WORKERS
from zoolet.client.reliable import create_protected
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, SessionExpiredError


class Master:
    """Assigns tasks: ``async with Master(zk, "/jobs", "m-1") as master: name = await master.submit({"do": "this"})``.

    Any number may run; one is active, the others stand by and take over.

    Znodes: ``PATH/master/<name>`` an Election; ``PATH/tasks/task-<seq>`` persistent and sequential, the tasks;
    ``PATH/assigned/<worker>/<task>``; those of Worker. All values are JSON.

    Guarantees: every task that was submitted is assigned to a worker that is there; to another one when that one goes;
    in one transaction each, so that a task is assigned to one worker at a time, and only by a master whose election
    holds at that moment on the server. There is one result of each task: that of the worker that had it assigned.

    Limits: a task may be done more than once (Worker says when). Who submits need not be the active master, nor a
    master that is entered at all.

    Args:
        client: Whose session it is in.
        path: Where all of it is.
        name: Who this is.
        per_worker: Tasks that one worker is given at a time.
    """

    def __init__(self, client: ClientSurface, path: str, name: str = "", *, per_worker: int = 1) -> None:
        client.add_chroot(path)
        if per_worker < 1:
            raise ValueError(f"per_worker is {per_worker!r}; it must be 1 or more")
        self._client = client.with_serializer(serializers.json)
        self._path = path
        self._per_worker = per_worker
        self._election = Election(client, self._at("master"), name.encode())
        self._job: asyncio.Task[Any] | None = None
        self.active = OneShotEvent()
        """Happens when this one becomes the active master for the first time."""
        self.leadership: Lease | None = None
        """What it leads by; None while another one does."""

    def _at(self, *names: str) -> str:
        path = self._path
        for name in names:
            path = paths.join(path, name)
        return path

    # --- for everybody ---

    async def submit(self, task: Any) -> str:
        """Hand in a task; give its name.

        Raises:
            ConnectionLossError: It may have been handed in.
        """
        node = await self._client.create(self._at(TASKS, "task-"), task, sequential=True, parents=True)
        return node.rpartition("/")[2]

    async def result(self, task: str, timeout: float | None = None) -> Any:
        """Wait for what came of a task: a dict with ``worker`` and ``result``, or ``error``.

        Raises:
            TimeoutError: Nothing did in time.
        """
        path = self._at(RESULTS, task)
        async with asyncio.timeout(timeout):
            while True:
                async with self._client.watch_exists(path) as watch:
                    if watch.initial is not None:
                        return (await self._client.get(path))[0]
                    await watch.next()

    async def forget(self, task: str) -> None:
        """Remove what came of a task."""
        try:
            await self._client.delete(self._at(RESULTS, task))
        except NoNodeError:
            return

    async def progress(self, task: str) -> AsyncIterator[Any]:
        """Iterate what the task's worker reports; ends when there is a result."""
        last: Any = self
        while True:
            async with self._client.watch_exists(self._at(PROGRESS, task)) as reported:
                if await self._client.exists(self._at(RESULTS, task)) is not None:
                    return
                if reported.initial is not None:
                    try:
                        value, _ = await self._client.get(self._at(PROGRESS, task))
                    except NoNodeError:
                        value = last
                    if value != last:
                        last = value
                        yield value
                async with self._client.watch_exists(self._at(RESULTS, task)) as done:
                    if done.initial is not None:
                        return
                    waits = [asyncio.ensure_future(reported.next()), asyncio.ensure_future(done.next())]
                    try:
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for wait in waits:
                            wait.cancel()

    async def workers(self) -> dict[str, Any]:
        """Return the workers that are there, by name, with what their last heartbeat said."""
        found = {}
        try:
            names = sorted(await self._client.children(self._at(WORKERS)))
        except NoNodeError:
            return {}
        calls = [self._client.get(self._at(WORKERS, name)) for name in names]
        for name, answer in zip(names, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, NoNodeError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer[0]
        return found

    async def command(self, value: Any, timeout: float | None = None) -> dict[str, Any]:
        """Send a command to all workers that are there, and wait until each has acknowledged it or is gone.

        Returns:
            Their acknowledgements by name, each a dict with ``answer`` or ``error``.

        Raises:
            TimeoutError: Some have not; the command is withdrawn.
        """
        name = self._client.new_uuid()
        above = self._at(COMMANDS)
        try:
            await self._client.ensure_path(self._at(WORKERS))
            await self._client.ensure_path(self._at(ACKS, name))
            async with asyncio.timeout(timeout):

                async def make() -> str:
                    path = paths.join(above, f"command-{name}-")
                    return await self._client.create(path, {"id": name, "command": value}, sequential=True)

                await create_protected(self._client, above, name, make, ephemeral=False)
                return await self._acknowledged(name)
        finally:
            self._client.spawn(self._withdraw(above, name))

    async def _withdraw(self, above: str, name: str) -> None:
        """Remove a command and its acknowledgements, however often the connection is lost."""
        while True:
            try:
                await self._client.sync(above)
                for found in await self._client.children(above):
                    if name in found:
                        await self._client.delete(paths.join(above, found))
                await self._client.delete(self._at(ACKS, name), recursive=True)
                return
            except NoNodeError:
                return
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(0.1)

    async def _acknowledged(self, name: str) -> dict[str, Any]:
        wanted = set(await self.workers())
        while True:
            async with (
                self._client.watch_children(self._at(ACKS, name)) as acks,
                self._client.watch_children(self._at(WORKERS)) as there,
            ):
                if not (wanted & set(there.initial)) - set(acks.initial):
                    break
                waits = [asyncio.ensure_future(acks.next()), asyncio.ensure_future(there.next())]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
        found = {}
        for worker in sorted(await self._client.children(self._at(ACKS, name))):
            found[worker] = (await self._client.get(self._at(ACKS, name, worker)))[0]
        return found

    # --- the active master ---

    async def _run(self) -> None:
        while True:
            try:
                self.leadership = await self._election.lead()
            except (ConnectionLossError, SessionExpiredError):
                await asyncio.sleep(0.05)
                continue
            try:
                self.active.set("elected")
                await self._govern(self.leadership)
            except (ConnectionLossError, SessionExpiredError, LockLostError):
                await asyncio.sleep(0.05)
            finally:
                leadership, self.leadership = self.leadership, None
                await leadership.release()

    async def _govern(self, leadership: Lease) -> None:
        for name in (WORKERS, TASKS, ASSIGNED, RESULTS):
            await self._client.ensure_path(self._at(name))
        held = await self._assignments()
        async with AsyncExitStack() as stack:
            workers = await stack.enter_async_context(TreeCache(self._client, self._at(WORKERS)))
            tasks = await stack.enter_async_context(TreeCache(self._client, self._at(TASKS)))
            turns = [workers.changes(), tasks.changes()]
            waits: dict[asyncio.Task[Any], Any] = {_next(turn): turn for turn in turns}
            lost = asyncio.ensure_future(leadership.lost.wait())
            try:
                while not lost.done():
                    done, _ = await asyncio.wait((*waits, lost), return_when=asyncio.FIRST_COMPLETED)
                    for wait in [wait for wait in waits if wait in done]:
                        turn = waits.pop(wait)
                        waits[_next(turn)] = turn
                    if not await self._assign(leadership, held, workers, tasks):
                        held = await self._assignments()
            finally:
                lost.cancel()
                for wait in waits:
                    wait.cancel()
                await asyncio.wait(waits)
        raise LockLostError(leadership.path, leadership.lost.reason)

    async def _assignments(self) -> dict[str, str]:
        """Read which worker has which task; from then on the active master knows, for nobody else assigns."""
        held = {}
        for worker in await self._client.children(self._at(ASSIGNED)):
            try:
                for task in await self._client.children(self._at(ASSIGNED, worker)):
                    held[task] = worker
            except NoNodeError:
                continue
        return held

    async def _assign(self, leadership: Lease, held: dict[str, str], workers: TreeCache, tasks: TreeCache) -> bool:
        """Compare what is with what should be, and do the difference, each step in a transaction.

        Returns:
            False if *held* was found to be wrong.
        """
        there = _names(workers, self._at(WORKERS))
        open_tasks = sorted(_names(tasks, self._at(TASKS)))
        for task in [task for task in held if task not in open_tasks]:
            if self._at(TASKS, task) not in tasks.nodes and await self._client.exists(self._at(TASKS, task)) is None:
                del held[task]  # done: whoever did it has removed both
        loads = {name: 0 for name in there}
        for name in held.values():
            if name in loads:
                loads[name] += 1
        for task in open_tasks:
            if held.get(task) in loads:
                continue
            free = sorted((load, name) for name, load in loads.items() if load < self._per_worker)
            if not free:
                break
            name = free[0][1]
            value = tasks.nodes[self._at(TASKS, task)].value
            before = self._at(ASSIGNED, held[task], task) if task in held else None
            outcome = await self._step(leadership, task, before, self._at(ASSIGNED, name, task), value)
            if outcome is None:
                continue
            if not outcome:
                return False
            held[task] = name
            loads[name] += 1
        return True

    async def _step(self, leadership: Lease, task: str, before: str | None, after: str, value: Any) -> bool | None:
        """Assign a task if the leadership holds; False if it was not assigned as thought, None if it is done."""
        leadership.raise_if_lost()
        transaction = self._client.transaction()
        transaction.check(leadership.path)
        transaction.check(self._at(TASKS, task))
        if before is not None:
            transaction.delete(before)
        transaction.create(after, value)
        try:
            await transaction.commit()
        except (NoNodeError, NodeExistsError) as error:
            if error.path == leadership.path:
                raise LockLostError(leadership.path, "its node is gone") from None
            return None if error.path == self._at(TASKS, task) else False
        return True

    async def __aenter__(self) -> Self:
        self._job = self._client.spawn(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await ended(self._job)


def _next(turn: AsyncIterator[Any]) -> asyncio.Task[Any]:
    async def step() -> Any:
        return await anext(turn)

    return asyncio.ensure_future(step())


def _names(cache: TreeCache, above: str) -> list[str]:
    return [path.rpartition("/")[2] for path in cache.nodes if path != above and paths.parent(path) == above]

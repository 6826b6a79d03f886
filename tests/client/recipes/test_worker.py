"""Workers: the number of their assigned tasks, progress, heartbeats, and the effect of a lost session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.crew import Crew, double, echo, run_forever, run_with_crew
from support.leftovers import nodes_below
from support.simulation import Connect, eventually, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Master, Worker
from zoolet.testing import Server, Simulation

# --- tasks ---


def test_worker_gets_at_most_allowed_number_of_tasks() -> None:
    async def main(crew: Crew) -> None:
        server = crew.server
        most: dict[str, int] = {}
        master, _ = await crew.master(per_worker=2)

        async def look(task: str, value: Any) -> Any:
            for _ in range(20):
                assigned = [path.split("/")[1] for path in nodes_below(server, "/jobs") if path.count("/") == 2]
                for worker in set(assigned):
                    most[worker] = max(most.get(worker, 0), assigned.count(worker))
                await asyncio.sleep(0.05)

        for number in range(2):
            await crew.worker(f"w-{number}", look, concurrency=2)
        names = await asyncio.gather(*[master.submit(number) for number in range(20)])
        for name in names:
            await master.result(name, timeout=300)
        assert most == {"w-0": 2, "w-1": 2}

    run_with_crew(main)


# --- dead workers ---


def test_worker_losing_session_continues_in_next() -> None:
    async def main(crew: Crew) -> None:
        began: list[str] = []

        async def slow(task: str, value: Any) -> Any:
            began.append(task)
            await asyncio.sleep(30)
            return value

        master, _ = await crew.master()
        _, zk = await crew.worker("w", slow)
        name = await master.submit(1)
        await eventually(lambda: began)
        crew.server.expire(zk)
        assert (await master.result(name, timeout=200))["result"] == 1

    run_with_crew(main)


def test_worker_stops_task_that_was_reassigned() -> None:
    async def main(crew: Crew) -> None:
        stopped = asyncio.Event()

        async def slow(task: str, value: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        master, _ = await crew.master()
        _, zk = await crew.worker("w-1", slow)
        name = await master.submit(1)
        await eventually(lambda: f"assigned/w-1/{name}" in nodes_below(crew.server, "/jobs"))
        await asyncio.sleep(5)
        await crew.worker("w-2")
        crew.server.expire(zk)
        await master.result(name, timeout=60)
        await asyncio.wait_for(stopped.wait(), 60)

    run_with_crew(main)


# --- progress, heartbeat ---


def test_master_iterates_progress_of_task_until_it_is_done() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        worker: Worker

        async def steps(task: str, value: Any) -> Any:
            for number in range(3):
                await worker.report(task, {"done": number})
                await asyncio.sleep(1)

        worker, _ = await crew.worker("w", steps)
        name = await master.submit("x")
        async with asyncio.timeout(60):
            delivered = [progress async for progress in master.progress(name)]
        assert delivered == [{"done": 0}, {"done": 1}, {"done": 2}]
        async with asyncio.timeout(5):
            assert [progress async for progress in master.progress(name)] == []

    run_with_crew(main)


def test_workers_are_listed_with_heartbeat_times() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        assert await Master(await crew.client(), "/nothing").workers() == {}
        await crew.worker("w-1", run_forever, heartbeat_interval=2.0)
        _, zk = await crew.worker("w-2")
        name = await master.submit(1)
        await asyncio.sleep(11)
        found = await master.workers()
        assert set(found) == {"w-1", "w-2"}
        assert found["w-1"] == {"beat": 5, "busy": [name]}
        await zk.aclose()
        assert set(await master.workers()) == {"w-1"}

    run_with_crew(main)


# --- arguments ---


@pytest.mark.parametrize("name", ["", pytest.param("a/b"), "..", "a\0"])
def test_invalid_worker_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        Worker(Client("127.0.0.1:1"), "/jobs", name, double)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": -1}, {"concurrency": 0}, {"heartbeat_interval": 0}, {"heartbeat_interval": -1}],
)
def test_invalid_worker_options_are_refused(options: Any) -> None:
    with pytest.raises(ValueError):
        Worker(Client("127.0.0.1:1"), "/jobs", "w", double, **options)


# --- lost replies, cancellation ---


def test_cancelled_worker_block_cleans_up() -> None:
    async def work(zk: Client) -> None:
        async with Worker(zk, "/jobs", "w", double, on_command=echo):
            await asyncio.sleep(3)

    cancel_everywhere(work)


def test_report_of_worker_is_deleted_with_task() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()

        async def do(task: str, value: Any) -> Any:
            await worker.report(task, "half")
            return value

        worker = Worker(zk, "/jobs", "w", do)
        async with worker:
            await zk.create("/jobs/tasks/t", b"1", parents=True)
            await zk.create("/jobs/assigned/w/t", b"1", parents=True)
            await asyncio.sleep(2)
            assert not [path for path in server.tree() if path.startswith("/jobs/progress/")]

    simulate_clients(main)


def test_worker_survives_outage_right_after_its_start() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        _, zk = await crew.worker("w")
        crew.server.refuse_connections()
        crew.server.drop(zk)
        await asyncio.sleep(60)
        crew.server.accept_connections()

        assert (await master.result(await master.submit(2), timeout=60))["result"] == 4

    run_with_crew(main)

"""A master assigns every task to a present worker, and a new master continues where the old one stopped."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.crew import Crew, run_forever, run_with_crew
from support.leftovers import nodes_below
from support.simulation import eventually

from zoolet.client import Client, ConnectionLossError, NoNodeError
from zoolet.client.recipes import Master
from zoolet.protocol.errors import ErrorCode
from zoolet.testing import delay, drop_request, error, hold, lose_reply

# --- tasks ---


def test_worker_does_task_and_master_gets_result() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        await crew.worker("w-1")
        name = await master.submit(21)
        assert name == "task-0000000000"
        assert await master.result(name, timeout=30) == {"worker": "w-1", "result": 42}
        await asyncio.sleep(5)
        assert {path for path in nodes_below(crew.server, "/jobs") if name in path} == {f"results/{name}"}
        await master.forget(name)
        await master.forget(name)
        assert not [path for path in nodes_below(crew.server, "/jobs") if name in path]

    run_with_crew(main)


def test_each_task_is_done_once_by_several_workers() -> None:
    async def main(crew: Crew) -> None:
        done: list[str] = []

        async def note(task: str, value: Any) -> Any:
            done.append(task)
            await asyncio.sleep(1)

        master, _ = await crew.master()
        for number in range(3):
            await crew.worker(f"w-{number}", note)
        names = [await master.submit(number) for number in range(12)]
        results = [await master.result(name, timeout=300) for name in names]
        assert sorted(done) == names
        assert {result["worker"] for result in results} == {"w-0", "w-1", "w-2"}

    run_with_crew(main)


def test_keyed_task_is_submitted_once_until_forgotten() -> None:
    async def main(crew: Crew) -> None:
        calls = []

        async def note(task: str, value: Any) -> Any:
            calls.append(task)
            return value

        master, zk = await crew.master()
        with (
            crew.server.fault(lose_reply(), "multi", "/jobs/tasks/order-7", times=1),
            contextlib.suppress(ConnectionLossError),
        ):
            await master.submit(1, key="order-7")
        assert await Master(zk, "/jobs").submit(1, key="order-7") == "order-7"
        await crew.worker("w", note)
        assert (await master.result("order-7", timeout=30))["result"] == 1
        assert await master.submit(1, key="order-7") == "order-7"
        await asyncio.sleep(10)
        assert calls == ["order-7"]
        await master.forget("order-7")
        await master.submit(2, key="order-7")
        assert (await master.result("order-7", timeout=30))["result"] == 2

    run_with_crew(main)


def test_task_with_reused_key_is_assigned_after_master_stalls() -> None:
    async def main(crew: Crew) -> None:
        begun, start_in_loop = asyncio.Event(), asyncio.Event()

        async def do(task: str, value: int) -> int:
            begun.set()
            await start_in_loop.wait()
            return value * 2

        master, of_master = await crew.master()
        await crew.worker("w", do)
        await master.active
        seeker = Master(await crew.client(), "/jobs")
        await seeker.submit(1, key="K")
        await begun.wait()
        await asyncio.sleep(1)  # by now the master knows that the task is assigned
        crew.server.pause(of_master)
        start_in_loop.set()
        assert (await seeker.result("K", timeout=5))["result"] == 2
        await seeker.forget("K")
        await seeker.submit(1000, key="K")
        crew.server.resume(of_master)
        assert (await seeker.result("K", timeout=30))["result"] == 2000

    run_with_crew(main)


@pytest.mark.parametrize("key", ["task-0000000001", "", "a/b"])
def test_task_key_that_is_invalid_or_looks_generated_is_refused(key: str) -> None:
    async def main(crew: Crew) -> None:
        with pytest.raises(ValueError):
            await Master(await crew.client(), "/jobs").submit(1, key=key)

    run_with_crew(main)


def test_tasks_wait_for_workers_and_for_a_master() -> None:
    async def main(crew: Crew) -> None:
        zk = await crew.client()
        outside = Master(zk, "/jobs")
        name = await outside.submit("x")
        await crew.worker("w")
        with pytest.raises(TimeoutError):
            await outside.result(name, timeout=10)
        await crew.master()
        assert (await outside.result(name, timeout=30))["result"] == "xx"

    run_with_crew(main)


def test_failed_task_has_error_as_result() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()

        async def fail(task: str, value: Any) -> Any:
            raise KeyError(value)

        await crew.worker("w", fail)
        assert await master.result(await master.submit("x"), timeout=30) == {"worker": "w", "error": "KeyError: 'x'"}

    run_with_crew(main)


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(object(), id="object"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(float("nan"), id="nan"),
        pytest.param("x" * 2_000_000, id="long"),
    ],
)
def test_unserializable_result_becomes_error(result: Any) -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()

        async def do(task: str, value: Any) -> Any:
            return result

        await crew.worker("w", do)
        assert "error" in await master.result(await master.submit("x"), timeout=60)

    run_with_crew(main)


def test_unserializable_task_is_refused() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        with pytest.raises(TypeError):
            await master.submit(object())

    run_with_crew(main)


def test_task_is_assigned_to_one_worker() -> None:
    async def main(crew: Crew) -> None:
        master, zk = await crew.master()
        await crew.worker("w-2", run_forever, heartbeat_interval=1000)
        await asyncio.sleep(5)
        with crew.server.fault(hold(), "multi", client=zk, nth=1) as held:
            task = await master.submit("x")
            await eventually(lambda: held.hits)
            await crew.worker("w-1", run_forever, heartbeat_interval=1000)
            await asyncio.sleep(1)
            held.release()
            await asyncio.sleep(5)
        assert len([path for path in nodes_below(crew.server, "/jobs/assigned") if path.endswith(task)]) == 1

    run_with_crew(main)


def test_task_forgotten_right_after_result_does_not_block_worker() -> None:
    async def main(crew: Crew) -> None:
        _, zk = await crew.master()
        await crew.worker("w")
        with crew.server.fault(hold(), "getData", "/jobs/*", client=zk) as held:
            name = await Master(await crew.client(), "/jobs").submit(1)
            other = Master(await crew.client(), "/jobs")
            await eventually(lambda: held.hits)
            held.release()
            await other.result(name, timeout=30)
            await other.forget(name)
        await asyncio.sleep(5)
        assert (await other.result(await other.submit(2), timeout=60))["result"] == 4

    run_with_crew(main)


# --- dead masters and workers ---


@pytest.mark.parametrize("how", ["expire", "close"])
def test_task_of_dead_worker_is_reassigned(how: str) -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        _, dying = await crew.worker("w-1", run_forever)
        name = await master.submit(1)
        await eventually(lambda: f"assigned/w-1/{name}" in nodes_below(crew.server, "/jobs"))
        await crew.worker("w-2")
        if how == "close":
            await dying.aclose()
        else:
            crew.server.pause(dying)
            crew.server.expire(dying)
            crew.server.refuse_connections()
        assert await master.result(name, timeout=60) == {"worker": "w-2", "result": 2}
        crew.server.accept_connections()

    run_with_crew(main)


@pytest.mark.parametrize("how", ["leave", "expire", "delete"])
def test_backup_master_takes_over(how: str) -> None:
    async def main(crew: Crew) -> None:
        first, zk = await crew.master("m-1")
        await first.active
        second, _ = await crew.master("m-2")
        await asyncio.sleep(5)
        assert not second.active.is_set()
        assert second.leadership is None
        assert first.leadership is not None
        token = first.leadership.token
        await crew.worker("w")
        if how == "leave":
            await zk.aclose()
        elif how == "expire":
            crew.server.expire(zk)
        else:
            await (await crew.client()).delete(first.leadership.path)
        await asyncio.wait_for(second.active.wait(), 60)
        assert second.leadership is not None
        assert second.leadership.token > token
        assert (await second.result(await second.submit(2), timeout=60))["result"] == 4

    run_with_crew(main)


def test_tasks_continue_after_all_sessions_end() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master("m-1")
        await crew.master("m-2")
        for number in range(2):
            await crew.worker(f"w-{number}")
        names = [await master.submit(number) for number in range(4)]
        crew.server.expire("all")
        seeker = Master(await crew.client(), "/jobs")
        for number, name in enumerate(names):
            assert (await seeker.result(name, timeout=120))["result"] == number * 2

    run_with_crew(main)


def test_first_of_two_results_of_task_is_kept() -> None:
    async def main(crew: Crew) -> None:
        zk = await crew.client()
        await zk.create("/jobs/results/task-0000000000", b'{"worker":"other","result":1}', parents=True)
        master = Master(zk, "/jobs")
        await crew.worker("w")
        name = await master.submit(5)
        await crew.master()
        await asyncio.sleep(10)
        assert await master.result(name) == {"worker": "other", "result": 1}

    run_with_crew(main)


# --- arguments ---


@pytest.mark.parametrize("number", [0, -1])
def test_invalid_tasks_per_worker_is_refused(number: int) -> None:
    with pytest.raises(ValueError):
        Master(Client("127.0.0.1:1"), "/jobs", per_worker=number)


# --- lost replies, cancellation ---


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("op", ["create", "multi", "getData", "setData", "delete", "exists", "create2", "addWatch"])
def test_lost_replies_and_requests_lose_no_task(op: str, action: Any) -> None:
    async def main(crew: Crew) -> None:
        seeker = Master(await crew.client(), "/jobs")
        names = [await seeker.submit(number) for number in range(4)]
        with crew.server.fault(action(), op, nth=range(1, 20, 2)):
            await crew.master()
            for number in range(2):
                while True:
                    try:
                        await crew.worker(f"w-{number}")
                    except ConnectionLossError:
                        continue
                    break
            for number, name in enumerate(names):
                assert (await seeker.result(name, timeout=200))["result"] == number * 2
        await asyncio.sleep(10)
        assert not [
            path for path in nodes_below(crew.server, "/jobs") if "assigned/w-0/" in path or "assigned/w-1/" in path
        ]

    run_with_crew(main)


def test_cancelled_master_block_cleans_up() -> None:
    async def govern(zk: Client) -> None:
        async with Master(zk, "/jobs", "m") as master:
            await master.active
            await master.submit(1)
            await asyncio.sleep(3)

    cancel_everywhere(govern)


def test_cancelled_wait_for_result_cleans_up() -> None:
    async def wait(zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await Master(zk, "/jobs").result("task-0000000000", timeout=5)

    cancel_everywhere(wait)


# --- errors around tasks ---


def test_undecodable_task_gets_error_result() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        await crew.worker("w")
        crew.server.populate({"/jobs/tasks/task-bad": b"{not json"})

        result = await master.result("task-bad", timeout=30)

        assert "the data is not JSON" in result["error"]
        assert not nodes_below(crew.server, "/jobs/tasks")
        assert (await master.result(await master.submit("x"), timeout=30))["result"] == "xx"

    run_with_crew(main)


@pytest.mark.parametrize("op", ["multi", "exists", "getData", "getChildren"])
@pytest.mark.parametrize("after", [0.0, 0.001, 0.002, 0.004, 0.01])
def test_deleting_task_during_assignment_does_not_stop_others(after: float, op: str) -> None:
    async def main(crew: Crew) -> None:
        master, zk = await crew.master(per_worker=10)
        await crew.worker("w", concurrency=10)
        outside = await crew.client()
        with crew.server.fault(delay(0.003), op, client=zk, probability=0.5):
            for _ in range(20):
                one, two = await master.submit(1), await master.submit(2)
                await asyncio.sleep(after)
                with contextlib.suppress(NoNodeError):
                    await outside.delete(f"/jobs/tasks/{one}")
                assert (await master.result(two, timeout=60))["result"] == 4

    run_with_crew(main)


def test_missing_task_does_not_delay_assignment_of_others() -> None:
    async def main(crew: Crew) -> None:
        zk = await crew.client()
        crew.server.populate({"/jobs/tasks/b": "", "/jobs/assigned/w": "", "/jobs/results": ""})
        assigned: dict[str, str] = {}
        async with zk.lock("/leader") as leadership:
            assert await Master(zk, "/jobs")._assign_all(leadership, assigned, ["w"], {"a": b"1", "b": b"2"})
        assert assigned == {"b": "w"}

    run_with_crew(main)


def test_heartbeat_continues_after_temporary_error() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        _, zk = await crew.worker("w", heartbeat_interval=1.0)
        throttled = error(ErrorCode.THROTTLED_OP)
        with crew.server.fault(throttled, "setData", "/jobs/workers/w", client=zk, times=3, strict=True):
            await asyncio.sleep(30)
        before = (await master.workers())["w"]["beat"]
        await asyncio.sleep(5)
        assert (await master.workers())["w"]["beat"] > before

    run_with_crew(main)

"""Commands of a master to its workers: acknowledged by all present workers, and withdrawn in time."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.crew import Crew, echo, run_with_crew
from support.leftovers import nodes_below
from support.simulation import make_client, simulate

from zoolet.client import Client
from zoolet.client.recipes import Master
from zoolet.testing import Server, Simulation

# --- commands ---


def test_command_is_acknowledged_by_all_workers() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()

        async def refuse(value: Any) -> Any:
            raise KeyError("no")

        await crew.worker("w-1", on_command=echo)
        await crew.worker("w-2", on_command=refuse)
        assert await master.command("stop", timeout=30) == {
            "w-1": {"answer": "stop"},
            "w-2": {"error": "KeyError: 'no'"},
        }
        await asyncio.sleep(5)
        assert not [path for path in nodes_below(crew.server, "/jobs") if "command-" in path]

    run_with_crew(main)


def test_command_does_not_wait_for_departed_worker() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()

        async def never(value: Any) -> Any:
            await asyncio.Event().wait()

        await crew.worker("w-1", on_command=echo)
        _, zk = await crew.worker("w-2", on_command=never)
        commanding = asyncio.ensure_future(master.command("x", timeout=60))
        await asyncio.sleep(5)
        assert not commanding.done()
        await zk.aclose()
        assert await commanding == {"w-1": {"answer": "x"}}

    run_with_crew(main)


def test_closing_master_waits_for_command_sent_right_before() -> None:
    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server) as zk:
            await zk.ensure_path("/jobs/workers")
            assert await Master(zk, "/jobs").command("x", timeout=10) == {}

    simulate(main)
    gc.collect()  # forces the warning about coroutines that were never awaited


@pytest.mark.parametrize("governed", [True, pytest.param(False)])
def test_command_without_workers_returns_no_answers(governed: bool) -> None:
    async def main(crew: Crew) -> None:
        if governed:
            await crew.master()
            await asyncio.sleep(1)
        assert await Master(await crew.client(), "/jobs").command("x", timeout=10) == {}

    run_with_crew(main)


def test_command_without_answer_at_timeout_is_withdrawn() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()

        async def slow(value: Any) -> Any:
            await asyncio.sleep(20)

        await crew.worker("w", on_command=slow)
        with pytest.raises(TimeoutError):
            await master.command("x", timeout=5)
        await asyncio.sleep(40)
        assert not [path for path in nodes_below(crew.server, "/jobs") if "command-" in path]

    run_with_crew(main)


def test_unserializable_answer_becomes_error() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        answers = iter([object(), "fine"])

        async def odd(value: Any) -> Any:
            return next(answers)

        await crew.worker("w", on_command=odd)
        assert "error" in (await master.command("x", timeout=30))["w"]
        assert (await master.command("y", timeout=30))["w"] == {"answer": "fine"}

    run_with_crew(main)


def test_worker_without_handler_does_not_block_command() -> None:
    async def main(crew: Crew) -> None:
        master, _ = await crew.master()
        await crew.worker("w-1", on_command=echo)
        await crew.worker("w-2")
        assert (await master.command("x", timeout=30))["w-1"] == {"answer": "x"}

    run_with_crew(main)


# --- lost replies, cancellation ---


def test_cancelled_command_is_withdrawn() -> None:
    async def command(zk: Client) -> None:
        with pytest.raises(TimeoutError):
            await Master(zk, "/jobs").command("x", timeout=5)

    async def gone(server: Server, zk: Client) -> None:
        assert not [path for path in nodes_below(server, "/jobs") if "command-" in path]

    cancel_everywhere(command, after=gone, nodes={"/jobs": {"workers": {"w": "{}"}}})

"""Fragments of Python on the pages, which are parts of a program, run with the names that their pages mention."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from zoolet import client
from zoolet.client import Client, recipes
from zoolet.testing import Simulation

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = (
    "client",
    "locks",
    "choose-a-lock",
    "fenced-storage",
    "recipes",
    "glossary",
    "tutorial",
    *(f"reference/{name}" for name in ("acl", "barriers", "caches", "client", "counters", "discovery", "elections")),
    *(f"reference/{name}" for name in ("errors", "leases", "locks", "queues", "serializers", "workers")),
)
ENDLESS_STATEMENTS: Final = re.compile(r"\.states\(\)|in events|\.run\(lead\)")
"""Statements that run until they are cancelled."""
LIMIT_S: Final = 2.0
"""Limit for a statement, in virtual seconds."""


class Fragment(NamedTuple):
    """A block of Python without imports."""

    page: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def fragments() -> list[Fragment]:
    """Return the fragments of all pages, except fragments that show a mistake."""
    return [
        Fragment(page, text.count("\n", 0, match.start(1)), match[1])
        for page in PAGES
        for text in [(DOCS / f"{page}.md").read_text()]
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if "import " not in match[1] and "# wrong" not in match[1]
    ]


@contextlib.asynccontextmanager
async def open_namespace(simulation: Simulation) -> AsyncIterator[dict[str, Any]]:
    """Start a server with nodes that change, and yield the names that fragments use."""
    async with simulation.server() as server, Client(server.hosts) as zk, Client(server.hosts) as other:
        server.populate({"/app": {str(n): b"" for n in range(1000)}, "/a": b"0"})
        server.populate({"/app/greeting": b"hello", "/state": b"", "/report": b"", "/locks": b""})
        for _ in range(3):
            server.set("/a", b"1")  # to version 3, which fragments expect

        async def change() -> None:
            while True:
                await other.set("/app/greeting", b"hi")
                await asyncio.sleep(0.1)

        changing = asyncio.create_task(change())
        async with other.lock("/held") as lease:
            yield {
                **vars(client),
                **{name: getattr(recipes, name) for name in recipes.__all__},
                **{"asyncio": asyncio, "contextlib": contextlib, "hosts": server.hosts, "zk": zk, "lease": lease},
                **{"body": b"...", "url": "http://storage/report", "requests": mock.Mock()},
                "write_report": mock.AsyncMock(),
            }
        changing.cancel()


async def run_statement(statement: ast.stmt, fragment: Fragment, namespace: dict[str, Any]) -> bool:
    """Run one statement. Return whether it ended without being cancelled."""
    module = ast.Module([statement], type_ignores=[])
    code = compile(module, str(fragment), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = types.FunctionType(code, namespace)()
    if running is None:
        return True
    try:
        await asyncio.wait_for(running, LIMIT_S)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("fragment", fragments(), ids=str)
def test_code_fragment_in_docs_runs(fragment: Fragment) -> None:
    simulation = Simulation(seed=1)

    async def main() -> None:
        async with open_namespace(simulation) as namespace:
            code = fragment.code.replace("127.0.0.1:2181", namespace["hosts"])
            for statement in ast.parse(code).body:
                endless = ENDLESS_STATEMENTS.search(ast.unparse(statement)) is not None
                assert await run_statement(statement, fragment, namespace) != endless

    simulation.run(main())


def test_docs_have_code_fragments() -> None:
    assert {fragment.page for fragment in fragments()} == set(PAGES)

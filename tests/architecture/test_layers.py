"""The layers: who may import whom, and what the pure parts may use. The table is that of the architecture.

Every import statement is read, wherever it stands, those for type checkers too; nothing is run.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.rows import for_each

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("protocol", "server", "client")

PURE: Final = frozenset(
    """
    __future__ base64 binascii bisect codecs collections contextlib dataclasses enum functools hashlib heapq hmac
    inspect ipaddress itertools linecache logging math re struct types typing
    """.split()
)
"""What the pure parts may use of the standard library."""
NAMES_OF: Final = {"random": {"Random"}}
"""Modules of which the pure parts may take these names only: as the type of what they are given."""
IMPURE: Final = frozenset({"asyncio", "time", "socket", "os", "threading"})
"""What the pure parts never touch; named for the message, for none of it is in PURE."""


class Layer(NamedTuple):
    """One row of the table.

    Args:
        parts: Paths below the root, folders or modules without ``.py``; a more exact path beats a less exact one.
        ours: What of ours they may import; a folder means all that is in it.
        pure: Whether they may use only PURE.
        never: What of these they may not import nevertheless.
    """

    parts: tuple[str, ...]
    ours: tuple[str, ...]
    pure: bool = False
    never: tuple[str, ...] = ()


def floors(*names: str) -> tuple[str, ...]:
    """Return the paths of folders of the test toolkit."""
    return tuple(f"server/testing/{name}" for name in names)


TESTING: Final = ("protocol", "server/core", "server/testing/signatures")
INNER: Final = tuple(f"client/aio/{name}" for name in ("base", "compound", "connection", "core", "fork", "hooks"))
"""What a client is made of, and a recipe has no business with."""
CORE: Final = ("call", "connection", "core", "fork", "hooks", "one_shot_event")
SURFACE: Final = tuple(
    f"client/aio/{name}" for name in ("base", "client", "compound", "limits", "reliable", "supervision")
)
"""A client, and what is written with one; the core knows neither."""
TOOLS: Final = ("event_loop", "pem", "progress", "usage")
LAYERS: Final = (
    Layer(("protocol",), ("protocol",), pure=True),
    Layer(("server/core",), ("protocol", "server/core"), pure=True),
    Layer(("server/storage",), ("protocol", "server/core", "server/storage")),
    Layer(("server/admin",), ("protocol", "server/core", "server/admin")),
    Layer(("server/net",), ("protocol", "server/core", "server/admin", "server/net", "server/storage/output", "pem")),
    Layer(("server/console",), ("protocol", "server/core", "server/admin", "server/net", "server/console", "client")),
    Layer(("server/console/command",), ("protocol", "server", "client", *TOOLS)),
    Layer(("server/app", "server/config"), ("protocol", "server", *TOOLS), never=("server/testing", "server/cli")),
    Layer(("server",), ("protocol", "server", *TOOLS)),
    Layer(TOOLS, ()),
    Layer(("server/testing/signatures",), (), pure=True),
    Layer(("server/testing/frames",), (*TESTING, "server/testing/frames")),
    Layer(("server/testing/state",), (*TESTING, "server/net/clock", *floors("frames", "state"))),
    Layer(("server/testing/run",), (*TESTING, "server/net", "server/config", *floors("frames", "state", "run"))),
    Layer(("server/testing/recording",), (*TESTING, *floors("frames", "run", "recording"))),
    Layer(("server/testing",), ("protocol", "server", "client")),
    Layer(("client/wire",), ("protocol", "client/wire", "client/serializers"), pure=True),
    Layer(("client/serializers",), ("client/serializers",)),
    Layer(("client/aio",), ("protocol", "client/wire", "client/aio", "client/serializers")),
    Layer(tuple(f"client/aio/{name}" for name in CORE), ("protocol", "client/wire", "client/aio"), never=SURFACE),
    Layer(("client/aio/client",), ("protocol", "client")),  # its recipes, when they are asked for
    Layer(
        ("client/recipes",),
        ("protocol", "client/wire", "client/aio", "client/serializers", "client/recipes"),
        never=INNER,
    ),
    Layer(("client",), ("protocol", "client")),  # the client for threads, transfers
    Layer(("client/cli",), ("protocol", "client", *TOOLS)),
    Layer(("client/shell",), ("protocol", "client", "progress", "")),
    Layer(("__init__", "__main__", "testing"), ("server", "client", "")),
)


def modules(*parts: str) -> list[Path]:
    """List the modules in these folders."""
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


def place(path: Path) -> str:
    """Name a module as the table does: its path below the root, without ``.py``; a package by its folder."""
    return path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__")


def within(name: str, part: str) -> bool:
    """Return whether a module is a part, or lies in it."""
    return name == part or name.startswith(part + "/")


def layer_of(name: str) -> Layer:
    """Find the row of a module: the one with the most exact path."""
    rows = [(len(part), layer) for layer in LAYERS for part in layer.parts if within(name, part)]
    return max(rows, key=lambda row: row[0])[1]


def imports(source: str) -> set[tuple[str, str]]:
    """Find what a module imports: the modules, and the names that are taken out of them, or ``""``."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {("." * node.level + (node.module or ""), alias.name) for alias in node.names}
    return found


def ours(found: Iterable[tuple[str, str]]) -> set[str]:
    """Keep what is ours, named as the table does; a name taken from a package may be a module of it."""
    names = set()
    for module, name in found:
        if module.split(".")[0] == "zoolet":
            path = module.replace(".", "/").removeprefix("zoolet").strip("/")
            inner = f"{path}/{name}".strip("/")
            names.add(inner if (ROOT / f"{inner}.py").exists() or (ROOT / inner).is_dir() else path)
    return names


def forbidden(name: str, source: str) -> set[str]:
    """Find what a module imports and may not, by the row of its layer."""
    layer, found = layer_of(name), imports(source)
    wrong = {
        one
        for one in ours(found)
        if not any(within(one, part) for part in layer.ours) or any(within(one, part) for part in layer.never)
    }
    if layer.pure:
        others = {(module, taken) for module, taken in found if module.split(".")[0] not in {*PURE, "zoolet"}}
        wrong |= {f"{module}.{taken}".strip(".") for module, taken in others if taken not in NAMES_OF.get(module, ())}
    return wrong


@for_each("path", modules(*PACKAGES), ids=place)
def test_a_module_imports_only_what_its_layer_may(path: Path) -> None:
    assert forbidden(place(path), path.read_text()) == set()


@for_each("path", modules(*PACKAGES), ids=place)
def test_imports_are_absolute(path: Path) -> None:
    assert [module for module, _ in imports(path.read_text()) if module.startswith(".")] == []


@for_each("path", modules(*PACKAGES), ids=place)
def test_a_folder_is_imported_by_its_name_in_zoolet(path: Path) -> None:
    # "import server" would make a second copy of everything
    assert [module for module, _ in imports(path.read_text()) if module.split(".")[0] in PACKAGES] == []


@pytest.mark.parametrize(("one", "other"), [("server", "client"), ("client", "server")])
def test_server_and_client_never_import_each_other(one: str, other: str) -> None:
    tops = {ROOT / "server" / "testing", ROOT / "server" / "console"}  # the places that know both
    below = [path for path in modules(one) if tops.isdisjoint(path.parents)]

    assert [place(path) for path in below if any(within(name, other) for name in ours(imports(path.read_text())))] == []


def test_the_pure_parts_are_there() -> None:
    # a table of folders that do not exist would forbid nothing
    assert len(modules("protocol")) > 5
    assert len(modules("server/core")) > 10


# --- cycles ---


BACK: Final = {
    "client/aio/client": {"client/recipes/lock", "client/recipes/_lock_base", "client/recipes/_node_names"},
    "client/aio/compound": {"client/aio/client"},
    "client/aio/reliable": {"client/aio/client"},
}
"""What may be named against the direction of all other imports: ``Client.lock()`` returns a recipe, which it imports
when it is called, and the steps of its compound calls are functions of a client.
"""


def imported_modules(path: Path, known: set[str], *, types: bool) -> set[str]:
    """Find the modules of ours that a module imports, those only for types as well if asked."""
    tree = ast.parse(path.read_text())
    only_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (types or node not in only_types) and node.module is not None:
            names = ours([(node.module, alias.name) for alias in node.names])
            found |= {name for name in names if name in known and not within(place(path), name)}
    return found


@pytest.mark.parametrize("types", [False, True], ids=["at run time", "in types"])
def test_no_modules_import_each_other_in_a_circle(types: bool) -> None:
    paths = {place(path): path for path in modules(*PACKAGES)}
    graph = {
        name: imported_modules(path, set(paths), types=types) - BACK.get(name, set()) for name, path in paths.items()
    }

    assert list(graphlib.TopologicalSorter(graph).static_order())


# --- the reader itself ---


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol/codec", "import time"),
        ("protocol/codec", "import os.path"),
        ("protocol/codec", "from zoolet.server.core import engine"),
        ("server/core/engine", "import asyncio"),
        ("server/core/engine", "def f():\n    import socket"),
        ("server/core/engine", "from threading import Lock"),
        ("server/core/engine", "from random import randrange"),
        ("server/core/engine", "import random"),
        ("server/core/engine", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import datetime"),
        ("server/core/engine", "from zoolet.server.net.clock import Clock"),
        ("server/core/engine", "from zoolet.server import net"),
        ("server/core/ops/reads", "from zoolet.server.admin.four_letter import four_letter_commands"),
        ("server/admin/four_letter", "from zoolet.server.net.daemon import Daemon"),
        ("server/net/daemon", "from zoolet.server.config import Config"),
        ("server/net/daemon", "from zoolet import client"),
        ("server/cli", "from zoolet.client import Client"),
        ("client/wire/session", "import asyncio"),
        ("client/wire/session", "from zoolet.client.aio.connection import Connection"),
        ("client/aio/connection", "from zoolet.client.aio.client import Client"),
        ("client/aio/base", "from zoolet.client.recipes.lock import Lock"),
        ("client/aio/core", "from zoolet.client.aio.base import BaseClient"),
        ("client/recipes/lock", "from zoolet.client.aio.connection import Connection"),
        ("client/aio/client", "from zoolet.server.core.engine import Engine"),
    ],
)
def test_a_planted_import_is_found(name: str, source: str) -> None:
    assert forbidden(name, source) != set()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol/codec", "from __future__ import annotations\nfrom collections.abc import Callable"),
        ("server/core/engine", "from random import Random\nfrom zoolet.protocol.codec import Record"),
        ("server/core/engine", "from zoolet.server.core import ops"),
        ("server/net/daemon", "import asyncio\nfrom zoolet.server.core.engine import Engine"),
        ("server/testing/server", "from zoolet.client import Client\nfrom zoolet.server.app import assemble"),
        ("client/aio/connection", "import asyncio\nfrom zoolet.client.wire.session import Session"),
    ],
)
def test_what_is_allowed_is_not_found(name: str, source: str) -> None:
    assert forbidden(name, source) == set()


def test_nothing_impure_is_in_the_list_of_what_is_pure() -> None:
    assert PURE & IMPURE == set()
    assert PURE <= sys.stdlib_module_names

"""The layers: which parts may import which others, and what the pure parts may use. docs/architecture.md explains the
rooms.

Every import statement is read, including those for type checkers and the strings of ``import_module``; no code is run.
``python -m pytest tests/architecture/test_layers.py -s -k between_rooms`` prints the number of imports between rooms.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.rooms import ROOMS, ROOT, modules
from support.rows import for_each

PURE_MODULES: Final = frozenset(
    """
    __future__ base64 binascii bisect codecs collections contextlib dataclasses enum functools hashlib heapq hmac
    inspect ipaddress itertools linecache math operator re struct types typing zlib
    """.split()
)
"""Modules of the standard library that the pure parts may use."""
PURE_NAMES: Final = {"random": {"Random"}}
"""Modules with the only names that the pure parts may import from them, as types of their arguments."""
IMPURE_MODULES: Final = frozenset({"asyncio", "time", "socket", "os", "threading"})
"""Modules that the pure parts must not use. They are not in PURE_MODULES, but this list gives a better message."""


class Layer(NamedTuple):
    """One row of the table.

    Args:
        parts: Paths below the root: folders, or modules without ``.py``. The most specific path wins.
        ours: Parts of zoolet that they may import; a folder includes its content.
        pure: Whether they may use only PURE.
        never: Exceptions in *ours* that they may not import.
    """

    parts: tuple[str, ...]
    ours: tuple[str, ...]
    pure: bool = False
    never: tuple[str, ...] = ()


def toolkit_parts(*names: str) -> tuple[str, ...]:
    """Return the paths of folders of the test toolkit."""
    return tuple(f"testing/{name}" for name in names)


TESTING: Final = ("protocol", "server/core", "testing/signatures")
CLIENT_INTERNALS: Final = tuple(
    f"client/aio/{name}" for name in ("compound", "connection", "core", "fork", "hooks", "view")
)
"""The internal modules of a client, which recipes must not import."""
PARTS_BELOW_RECIPES: Final = ("protocol", "client/wire", "client/aio", "client/serializers")
CORE: Final = ("call", "connection", "core", "fork", "hooks", "one_shot_event")
SURFACE: Final = tuple(
    f"client/aio/{name}"
    for name in ("compound", "limits", "operations", "reliable", "subtree", "supervision", "view", "watcher")
)
"""Modules above the core of a client, which the core must not import."""
ROOM_ORDER: Final = ("__init__", *ROOMS, "__main__")
"""The rooms and the two modules in the root, from the bottom up."""
ALL_MODULES: Final = (ROOT / "__init__.py", *modules(*ROOMS), ROOT / "__main__.py")
"""The files of all modules."""
LAYERS: Final = (
    # the rooms
    Layer(("protocol",), ("protocol",), pure=True),
    Layer(("server",), ("protocol", "server")),
    Layer(("client",), ("protocol", "client")),
    Layer(("console",), ("protocol", "server", "client", "console"), never=("server/app", "server/config")),
    Layer(("testing",), ("protocol", "server", "client", "console", "testing")),
    Layer(("cli",), ("", *ROOMS)),
    Layer(("__init__",), ()),
    Layer(("__main__",), ("cli",)),
    # in the server
    Layer(("server/core",), ("protocol", "server/core"), pure=True),
    Layer(("server/learner",), ("protocol", "server/core", "server/learner"), pure=True),
    Layer(("server/storage",), ("protocol", "server/core", "server/storage")),
    Layer(("server/admin",), ("protocol", "server/core", "server/admin")),
    Layer(("server/net",), ("protocol", "server/core", "server/admin", "server/net", "server/storage/output")),
    Layer(("server/net/leader_link",), ("protocol", "server/core", "server/learner", "server/net")),
    # in the client
    Layer(("client/serializers",), ("client/serializers",)),
    Layer(("client/wire",), ("protocol", "client/wire", "client/serializers"), pure=True),
    Layer(("client/aio",), PARTS_BELOW_RECIPES),
    Layer(tuple(f"client/aio/{name}" for name in CORE), ("protocol", "client/wire", "client/aio"), never=SURFACE),
    Layer(("client/recipes",), (*PARTS_BELOW_RECIPES, "client/recipes"), never=CLIENT_INTERNALS),
    Layer(("client/client",), (*PARTS_BELOW_RECIPES, "client/recipes")),
    # in the test toolkit
    Layer(("testing/signatures",), (), pure=True),
    Layer(("testing/frames",), (*TESTING, "testing/frames")),
    Layer(("testing/state",), (*TESTING, "server/net/clock", *toolkit_parts("frames", "state"))),
    Layer(("testing/run",), (*TESTING, "server/net", "server/config", *toolkit_parts("frames", "state", "run"))),
    Layer(("testing/recording",), (*TESTING, *toolkit_parts("frames", "run", "recording"))),
    # in the command
    Layer(("cli/event_loop", "cli/stdout"), ()),
    Layer(("cli/usage",), ("protocol",)),
    Layer(("cli/progress",), ("cli/usage",)),
)


def table_name(path: Path) -> str:
    """Return a module's name in the table: its path below the root without ``.py``, or the folder of a package."""
    return path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__")


def package_of(path: Path) -> str:
    """Return the package of a module, where its relative imports start."""
    folder = path if path.is_dir() else path.parent
    return ".".join(("zoolet", *folder.relative_to(ROOT).parts))


def is_inside(name: str, part: str) -> bool:
    """Return whether a module is a part or inside a part."""
    return name == part or name.startswith(part + "/")


def layer_of(name: str) -> Layer:
    """Return the row of a module, which is the row with the most specific path."""
    rows = [(len(part), layer) for layer in LAYERS for part in layer.parts if is_inside(name, part)]
    return max(rows, key=lambda row: row[0])[1]


def absolute_name(module: str, package: str) -> str:
    """Return the full name of a relative module name."""
    name = module.lstrip(".")
    if name == module:
        return module
    base = package.split(".")[: len(package.split(".")) - (len(module) - len(name) - 1)]
    return ".".join([*base, name]).strip(".")


def find_imports(nodes: Iterable[ast.AST], package: str) -> set[tuple[str, str]]:
    """Find the imports of a module: pairs of a module and an imported name, or ``""``."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = absolute_name("." * node.level + (node.module or ""), package)
            found |= {(module, alias.name) for alias in node.names}
        elif is_call_of_import_module(node):
            names = [
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            found |= {(absolute_name(name.rstrip("."), package), "") for name in names[:1]}
    return found


def is_call_of_import_module(node: ast.AST) -> bool:
    """Return whether an expression calls ``import_module``."""
    name = getattr(node.func, "attr", None) or getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
    return str(name).endswith("import_module")


def zoolet_imports(found: Iterable[tuple[str, str]]) -> set[str]:
    """Keep the imports of zoolet, with names as in the table. A name imported from a package may be a module."""
    names = set()
    for module, name in found:
        if module.split(".")[0] == "zoolet":
            path = module.replace(".", "/").removeprefix("zoolet").strip("/")
            inner = f"{path}/{name}".strip("/")
            names.add(inner if (ROOT / f"{inner}.py").exists() or (ROOT / inner).is_dir() else path)
    return names


@cache
def importing_nodes(path: Path, *, types: bool = True) -> list[ast.AST]:
    """Return the nodes of a module that import; *types* includes imports only for types.

    The whole syntax trees of the package would take 70 MB.
    """
    tree = ast.parse(path.read_text())
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    only_types = {inner for node in guards if not types for inner in ast.walk(node)}
    kinds = ast.Import | ast.ImportFrom
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds) or is_call_of_import_module(node)]
    return [node for node in nodes if node not in only_types]


def imported_parts(path: Path) -> set[str]:
    """Find the zoolet modules that a module imports."""
    return zoolet_imports(find_imports(importing_nodes(path), package_of(path)))


def forbidden_imports(name: str, source: str) -> set[str]:
    """Find the imports of a module that its layer forbids."""
    layer, found = layer_of(name), find_imports(ast.walk(ast.parse(source)), package_of(ROOT / name))
    wrong = {
        one
        for one in zoolet_imports(found)
        if not any(is_inside(one, part) for part in layer.ours) or any(is_inside(one, part) for part in layer.never)
    }
    if layer.pure:
        others = {(module, taken) for module, taken in found if module.split(".")[0] not in {*PURE_MODULES, "zoolet"}}
        wrong |= {f"{module}.{taken}".strip(".") for module, taken in others if taken not in PURE_NAMES.get(module, ())}
    return wrong


@for_each("path", ALL_MODULES, ids=table_name)
def test_module_imports_only_allowed_layers(path: Path) -> None:
    assert forbidden_imports(table_name(path), path.read_text()) == set()


@for_each("path", ALL_MODULES, ids=table_name)
def test_imports_inside_package_are_relative(path: Path) -> None:
    # relative imports let editors, forges and type checkers resolve them in a bare checkout
    named = {
        module for module, _ in find_imports((node for node in importing_nodes(path) if not _is_relative(node)), "")
    }

    assert {module for module in named if module.split(".")[0] in {"zoolet", *ROOMS}} == set()


def _is_relative(node: ast.AST) -> bool:
    return (isinstance(node, ast.ImportFrom) and node.level > 0) or isinstance(node, ast.Call)


def test_imports_between_rooms_run_down() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for path in ALL_MODULES:
        others = (name.split("/")[0] or "__init__" for name in imported_parts(path))
        counts.update((table_name(path).split("/")[0] or "__init__", other) for other in others)
    between = sorted(
        (pair for pair in counts if pair[0] != pair[1]), key=lambda pair: list(map(ROOM_ORDER.index, pair))
    )
    upward = [pair for pair in between if ROOM_ORDER.index(pair[0]) < ROOM_ORDER.index(pair[1])]
    print(*(f"{one:8} -> {other:8} {counts[one, other]:4}" for one, other in between), sep="\n")
    rooms = {one: {other for first, other in between if first == one} for one in ROOM_ORDER}
    print(f"{len(upward)} upward, {len(import_cycles(rooms))} circles")

    assert upward == []
    assert {("server", "protocol"), ("cli", "testing")} <= set(between)
    assert not {("server", "client"), ("client", "server")} & set(between)


@for_each("layer", LAYERS, ids=lambda layer: layer.parts[0])
def test_parts_of_rooms_import_only_what_room_may_import(layer: Layer) -> None:
    room = layer_of(layer.parts[0].split("/")[0])

    assert [one for one in layer.ours if not any(is_inside(one, part) for part in room.ours)] == []


def test_folders_of_pure_modules_exist() -> None:
    # a table of missing folders would forbid nothing
    assert len(modules("protocol")) > 5
    assert len(modules("server/core")) > 10


def test_every_part_in_table_of_layers_exists() -> None:
    named = {part for layer in LAYERS for part in (*layer.parts, *layer.ours, *layer.never)}

    assert {part for part in named if not (ROOT / part).exists() and not (ROOT / f"{part}.py").exists()} == set()


# --- cycles ---


def imported_modules(path: Path, known: set[str], *, types: bool) -> set[str]:
    """Return the zoolet modules that a module imports. With *types*, include imports only for types."""
    names = zoolet_imports(find_imports(importing_nodes(path, types=types), package_of(path)))
    return {name for name in names if name in known and not is_inside(table_name(path), name)}


def import_graph(*, types: bool) -> dict[str, set[str]]:
    """Return the imports of every module. With *types*, include imports only for types."""
    paths = {table_name(path): path for path in ALL_MODULES}
    return {name: imported_modules(path, set(paths), types=types) for name, path in paths.items()}


def import_cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Find the maximal sets of modules that can all reach each other."""
    reached = {name: set(others) for name, others in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reached[name]:
                reached[name] |= reached[middle]
    in_circles = [name for name in graph if name in reached[name]]
    return [{other for other in reached[name] if name in reached[other]} for name in in_circles]


def folder(name: str) -> str:
    """Return the folder of a module."""
    return name.rpartition("/")[0]


def test_module_imports_have_no_cycles() -> None:
    assert list(graphlib.TopologicalSorter(import_graph(types=False)).static_order())


def test_type_import_cycles_stay_inside_one_folder() -> None:
    # inside a folder, a Protocol with one implementation would only repeat its signatures
    found = import_cycles(import_graph(types=True))

    assert [circle for circle in found if len({folder(name) for name in circle}) > 1] == []
    assert {"testing/frames/frame_queue", "testing/frames/interceptor"} <= set().union(*found)


def test_cycle_through_two_folders_is_found() -> None:
    graph = {"a/one": {"a/two"}, "a/two": {"b/three"}, "b/three": {"a/one"}, "a/four": {"a/one"}}

    assert import_cycles(graph)[0] == {"a/one", "a/two", "b/three"}


# --- tests of the functions above ---


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
        ("server/core/ops/reads", "from zoolet.server.admin.four_letter import answer"),
        ("server/learner/learner", "import time"),
        ("server/learner/learner", "from ..storage.recovery import recover"),
        ("server/admin/four_letter", "from zoolet.server.net.daemon import Daemon"),
        ("server/net/daemon", "from zoolet.server.config import Config"),
        ("server/net/daemon", "from zoolet import client"),
        ("server/app", "from zoolet.testing.server import Server"),
        ("server/app", "from ..cli.usage import Parser"),
        ("server/app", "from importlib import import_module\nimport_module('zoolet.testing.server')"),
        ("server/app", "import importlib\nimportlib.import_module(f'..testing.{1}', __package__)"),
        ("client/wire/session", "from ...server.core.engine import Engine"),
        ("console/pages", "from ..cli.console import add_command"),
        ("client/wire/session", "import asyncio"),
        ("client/wire/session", "from zoolet.client.aio.connection import Connection"),
        ("client/aio/connection", "from zoolet.client.aio.operations import BaseClient"),
        ("client/aio/operations", "from zoolet.client.recipes.lock import Lock"),
        ("client/aio/operations", "from ..client import Client"),
        ("client/aio/core", "from zoolet.client.aio.view import View"),
        ("client/recipes/lock", "from zoolet.client.aio.connection import Connection"),
        ("client/aio/core", "from .subtree import subtree"),
        ("client/recipes/lock", "from ..client import Client"),
        ("client/recipes/lock", "from ..aio.view import View"),
        ("client/client", "from zoolet.client.blocking.client import Client"),
        ("client/client", "from zoolet.server.core.engine import Engine"),
        ("__init__", "from .cli.program import main"),
        ("__main__", "from .server.app import assemble"),
    ],
)
def test_forbidden_import_is_found(name: str, source: str) -> None:
    assert forbidden_imports(name, source) != set()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol/codec", "from __future__ import annotations\nfrom collections.abc import Callable"),
        ("server/core/engine", "from random import Random\nfrom zoolet.protocol.codec import Record"),
        ("server/core/engine", "from zoolet.server.core import ops"),
        ("server/net/daemon", "import asyncio\nfrom zoolet.server.core.engine import Engine"),
        ("testing/server", "from zoolet.client import Client\nfrom zoolet.server.app import assemble"),
        ("client/aio/connection", "import asyncio\nfrom zoolet.client.wire.session import Session"),
    ],
)
def test_allowed_import_is_accepted(name: str, source: str) -> None:
    assert forbidden_imports(name, source) == set()


def test_pure_and_impure_lists_are_disjoint() -> None:
    assert PURE_MODULES & IMPURE_MODULES == set()
    assert PURE_MODULES <= sys.stdlib_module_names

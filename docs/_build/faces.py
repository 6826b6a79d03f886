"""The generator of the stubs of the blocking client and its recipes, for type checkers and editors (``make faces``).

The files are client/blocking/client.pyi and recipes.pyi. They are derived from the signatures of the asyncio classes,
as the blocking classes themselves are at run time.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from zoolet.client import recipes, serializers
from zoolet.client.blocking.client import DOC
from zoolet.client.blocking.proxy import PROXIED_TYPES, is_asynchronous
from zoolet.client.blocking.thread_client import ThreadClient
from zoolet.client.client import Client
from zoolet.client.recipes import Lease
from zoolet.client.recipes._base import INTERNAL

FOLDER: Final = Path(__file__).parents[2] / "client" / "blocking"
REPLACED: Final = {
    "AsyncIterator": "BlockingIterator",
    "States": "Iterator",
    "Awaitable": "",
    "BaseClient": "Client",
    "Call": "",
    "Client": "Client",
    "Transaction": "BlockingTransaction",
    "Watcher": "BlockingWatcher",
}
"""Replacements for types of asyncio code. A generic type with an empty replacement is replaced by its argument."""
IMPORTS: Final = {
    "BlockingIterator": "zoolet.client.blocking.proxy",
    "BlockingTransaction": "zoolet.client.blocking.context",
    "BlockingWatcher": "zoolet.client.blocking.context",
    "Client": "zoolet.client.blocking.client",
    "TracebackType": "types",
}
CLASS_VARIABLES: Final = frozenset({serializers.V, serializers.C})
"""Type variables of classes. All other type variables belong to a method."""
EXIT_STUB: Final = """\
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ..."""
STUB_HEADER: Final = '"""Made by ``make faces`` from the signatures of the asyncio {}; do not edit."""\n\n'


@functools.cache
def names_in(module: str) -> dict[str, tuple[str, str]]:
    """Map each name that a module defines or imports to its module and its name there.

    This includes imports that are only for type checkers.
    """
    source = inspect.getsource(importlib.import_module(module))
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            package = importlib.import_module(module).__package__
            home = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: (alias.name, "") for alias in node.names}
    for name in vars(importlib.import_module(module)):
        found.setdefault(name, (module, name))
    return found


def import_name(module: str, package: str = "zoolet.client.blocking") -> str:
    """Return the name for the import of a module in *package*: relative for a module of zoolet."""
    ours, parts = package.split("."), module.split(".")
    if parts[0] != "zoolet":
        return module
    common = next(number for number in range(len(ours), 0, -1) if ours[:number] == parts[:number])
    return "." * (len(ours) - common + 1) + ".".join(parts[common:])


def docstring(text: str | None, indent: str) -> str:
    """Return the first paragraph of a docstring, formatted as a docstring."""
    words = " ".join((text or "").partition("\n\n")[0].split()).replace("\\", "\\\\").rstrip(":")
    lines = textwrap.wrap(words.rstrip(".") + ".", 112 - len(indent))
    end = "" if len(lines) == 1 else "\n" + indent
    return f'{indent}"""' + f"\n{indent}".join(lines) + f'{end}"""'


class Faces:
    """The classes of a stub, and the imports that they need."""

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {}
        self.pending: list[type] = []
        self.classes: dict[type, str] = {}

    # --- types ---

    def text(self, annotation: str, module: str, owner: type) -> str:
        """Convert an annotation of an asyncio class to the annotation of the class for threads."""
        tree = self._Types(self, module, owner).visit(ast.parse(annotation, mode="eval"))
        return ast.unparse(tree)

    def name(self, name: str, module: str, owner: type) -> str:
        """Return the name in the stub for a name in a module, and add the import that it needs."""
        if name in REPLACED:
            name = REPLACED[name]
            self.imports.setdefault(IMPORTS[name], set()).add(name)
            return name
        if name in dir(builtins):
            return name
        if name == "Any":
            return name
        if name == "Self":
            return self.own(owner)
        home, original = names_in(module)[name]
        if not original:  # a whole module
            self.imports[home] = set()
            return name
        value = getattr(importlib.import_module(home), original, None)
        if isinstance(value, typing.TypeVar):
            return self.variable(value, owner)
        if isinstance(value, type) and issubclass(value, PROXIED_TYPES):
            return self.name_of(value)
        self.imports.setdefault(home, set()).add(original)
        return original

    def name_of(self, face: type) -> str:
        """Return the name of a class for threads, and add the class to the stub."""
        if face not in self.classes and face not in self.pending:
            self.pending.append(face)
        return face.__name__

    def own(self, owner: type) -> str:
        """Return the name of a class with its type variables, which is the type of ``self``."""
        variables = ", ".join(variable.__name__ for variable in type_variables(owner))
        return f"{owner.__name__}[{variables}]" if variables else owner.__name__

    def variable(self, variable: typing.TypeVar, owner: type) -> str:
        """Return the type that replaces a type variable in a class.

        This is the argument that the class passes to a generic base, ``Any`` if it passes no argument, or the class
        itself for a bound variable. Other variables are not replaced.
        """
        bases = [base for kind in owner.__mro__ for base in getattr(kind, "__orig_bases__", ())]
        for base in bases:
            known = type_variables(typing.get_origin(base))
            if variable in known and (argument := typing.get_args(base)[known.index(variable)]) is not variable:
                return self.type_text(argument, owner)
        if variable.__bound__ is not None:
            return self.own(owner)
        if variable in type_variables(owner):
            self.imports.setdefault("zoolet.client.serializers", set()).add(variable.__name__)
        return "Any" if variable in CLASS_VARIABLES - {*type_variables(owner)} else variable.__name__

    def type_text(self, kind: Any, owner: type) -> str:
        """Return the text of a type that is the argument of a generic base."""
        if isinstance(kind, typing.TypeVar):
            return self.variable(kind, owner)
        if arguments := typing.get_args(kind):
            texts = ", ".join(self.type_text(argument, owner) for argument in arguments)
            return f"{self.type_text(typing.get_origin(kind), owner)}[{texts}]"
        return self.name(kind.__name__, kind.__module__, owner)

    class _Types(ast.NodeTransformer):
        def __init__(self, faces: Faces, module: str, owner: type) -> None:
            self.faces, self.module, self.owner = faces, module, owner

        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
            """Replace a generic type that only asyncio code uses by its argument."""
            if isinstance(node.value, ast.Name) and REPLACED.get(node.value.id) == "":
                return self.visit(node.slice)
            if isinstance(node.value, ast.Name) and node.value.id == "Literal":
                self.visit(node.value)
                return node
            return self.generic_visit(node)

        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            """Replace a union of two types by one of them if both are the same for threads."""
            left, right = self.visit(node.left), self.visit(node.right)
            return left if ast.dump(left) == ast.dump(right) else ast.BinOp(left, node.op, right)

        def visit_Name(self, node: ast.Name) -> ast.AST:
            """Replace a name by its name in the stub."""
            return ast.parse(self.faces.name(node.id, self.module, self.owner), mode="eval").body

        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            """Parse a quoted annotation."""
            if not isinstance(node.value, str):
                return node
            return self.visit(ast.parse(node.value, mode="eval").body)

    # --- members ---

    def parameters(self, function: Any, owner: type, *, asynchronous: bool) -> str:
        """Return the parameters of a method, in parentheses."""
        module, texts, keyword_only = function.__module__, [], False
        known = inspect.signature(function).parameters.values()
        for parameter in known:
            kind = "Any" if parameter.annotation is parameter.empty else self.text(parameter.annotation, module, owner)
            if parameter.name in ("self", "cls") and kind in ("Any", "Self"):
                texts.append(parameter.name)
                continue
            if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
                texts.append("*")
                keyword_only = True
            star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            keyword_only |= star == "*"
            text = f"{star}{parameter.name}: {kind}"
            texts.append(text if parameter.default is parameter.empty else f"{text} = ...")
        if asynchronous and "timeout" not in [parameter.name for parameter in known]:
            texts += ["timeout: float | None = ..."] if keyword_only else ["*", "timeout: float | None = ..."]
        return f"({', '.join(texts)})"

    def method(self, name: str, function: Any, owner: type, prefix: str = "") -> Iterator[str]:
        """Yield the lines of a method."""
        if not prefix and (overloads := constructor_overloads(function)):
            self.imports.setdefault("typing", set()).add("overload")
            for overload in overloads:
                yield from self.method(name, overload, owner, "@overload")
            return
        signature = inspect.signature(function)
        kind = str(signature.return_annotation)
        asynchronous = is_asynchronous(function)
        result = self.text(kind, function.__module__, owner)
        if prefix:
            yield f"    {prefix}"
        yield f"    def {name}{self.parameters(function, owner, asynchronous=asynchronous)} -> {result}:"
        yield docstring(function.__doc__, " " * 8) if function.__doc__ else "        ..."

    def members(self, face: type) -> Iterator[str]:
        """Yield the lines of all members of a class."""
        if issubclass(face, recipe_types()):
            yield from self.method("__init__", face.__init__, face)
        for name, kind, module in attributes(face):
            yield f"    {name}: {self.text(kind, module, face)}"
        for name in sorted(set(dir(face))):
            member = inspect.getattr_static(face, name)
            if name.startswith("_") or name in INTERNAL:
                continue
            if isinstance(member, property):
                yield from self.method(name, member.fget, face, "@property")
            elif isinstance(member, types.FunctionType):
                yield from self.method(name, member, face)
        if hasattr(face, "__aenter__"):
            enter: Any = face.__aenter__
            entered = self.text(str(inspect.signature(enter).return_annotation), enter.__module__, face)
            self.imports.setdefault("types", set()).add("TracebackType")
            yield f"    def __enter__(self) -> {entered}: ..."
            yield EXIT_STUB

    def import_lines(self, plain: Sequence[str] = ()) -> str:
        """Return the import statements of the stub.

        Args:
            plain: Names of recipes that are the same for threads.
        """
        imports = []
        for module, names in sorted(self.imports.items()):
            home = import_name(module)
            if not names:
                imports.append(f"import {module}\n")
            elif module == "zoolet.client.recipes":
                imports.append(f"from {home} import {', '.join(f'{name} as {name}' for name in sorted(names))}\n")
            elif others := sorted(names - set(plain)):
                imports.append(f"from {home} import {', '.join(others)}\n")
        return "".join(imports)

    def add(self, face: type) -> None:
        """Add a class, and all classes that it mentions."""
        lines = [docstring(face.__doc__, " " * 4), "    asyncio_object: Any", *self.members(face)]
        bases = [self.name_of(base) for base in face.__bases__ if base is Lease]
        if variables := [variable.__name__ for variable in type_variables(face)]:
            self.imports["typing"].add("Generic")
            bases = [f"Generic[{', '.join(variables)}]"]
        self.classes[face] = f"class {face.__name__}{f'({bases[0]})' if bases else ''}:\n" + "\n".join(lines) + "\n"


def recipe_types() -> tuple[type, ...]:
    """Return the recipes, which users create."""
    from zoolet.client.blocking import recipes as blocking

    return tuple(getattr(recipes, name) for name in blocking.RECIPES)


def type_variables(kind: Any) -> tuple[typing.TypeVar, ...]:
    """Return the type variables of a generic class, or an empty tuple."""
    return getattr(kind, "__parameters__", ())


def constructor_overloads(function: Any) -> Sequence[Any]:
    """Return the overloads of a constructor. Other methods have none here."""
    return typing.get_overloads(function) if function.__name__ == "__init__" else ()


def attributes(face: type) -> Iterator[tuple[str, str, str]]:
    """Yield the public attributes that ``__init__`` sets: name, annotation and the annotation's module."""
    seen = set()
    for kind in face.__mro__:
        if kind.__module__.startswith("zoolet") and "__init__" in vars(kind):
            function = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__))).body[0]  # type: ignore[misc]
            assert isinstance(function, ast.FunctionDef)
            given = {one.arg: one.annotation for one in (*function.args.args, *function.args.kwonlyargs)}
            for node in ast.walk(function):
                if not isinstance(node, ast.Assign | ast.AnnAssign):
                    continue
                for target, value in assignment_pairs(node):
                    if not is_public_attribute(target) or target.attr in (*seen, *INTERNAL):
                        continue
                    seen.add(target.attr)
                    yield target.attr, attribute_type(node, value, given), kind.__init__.__module__  # type: ignore[misc]


def assignment_pairs(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[Any, ast.expr | None]]:
    """Yield each target of an assignment with its value, including assignments of several values."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def is_public_attribute(target: ast.expr) -> bool:
    """Return whether an expression is an attribute of ``self`` with a public name."""
    is_attribute = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
    return is_attribute and target.value.id == "self" and not target.attr.startswith("_")  # type: ignore[attr-defined]


def attribute_type(node: ast.AST, value: ast.expr | None, given: dict[str, ast.expr | None]) -> str:
    """Return the type of an attribute: its declaration, the type of the assigned parameter, or the called class."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation)
    if isinstance(value, ast.Name) and given.get(value.id) is not None:
        return ast.unparse(given[value.id])  # type: ignore[arg-type]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[:1].isupper():
        return value.func.id
    if isinstance(value, ast.Constant) and value.value is not None:
        return type(value.value).__name__
    return "Any"


def recipes_stub() -> str:
    """Return the text of the stub of the recipes."""
    faces = Faces()
    faces.imports["typing"] = {"Any", "TypeVar"}
    faces.pending += recipe_types()
    plain = []
    for name in recipes.__all__:
        value = getattr(recipes, name)
        if not issubclass(value, PROXIED_TYPES):
            plain.append(name)
        elif value not in faces.pending:
            faces.pending.append(value)
    while faces.pending:
        faces.add(faces.pending.pop(0))
    faces.imports.setdefault("zoolet.client.recipes", set()).update(plain)
    imports = faces.import_lines(plain)
    order = sorted(faces.classes, key=lambda kind: (kind is not Lease, kind.__name__))
    body = "\n".join(faces.classes[kind] for kind in order)
    names = "".join(f'    "{name}",\n' for name in recipes.__all__)
    return f'{STUB_HEADER.format("recipes")}{imports}\n__all__ = [\n{names}]\nT = TypeVar("T")\n\n{body}'


class ClientFaces(Faces):
    """The classes and imports of the client's stub, which imports recipes from their own stub."""

    def name_of(self, face: type) -> str:
        """Import the class for threads of a recipe."""
        self.imports.setdefault("zoolet.client.blocking.recipes", set()).add(face.__name__)
        return face.__name__

    def name(self, name: str, module: str, owner: type) -> str:
        """Return the name in the stub for a name in a module, and import it."""
        if name == "Self":
            self.imports["typing"].add(name)
        return name if name in ("Client", "Self") else super().name(name, module, owner)

    def variable(self, variable: typing.TypeVar, owner: type) -> str:
        """Return ``Self`` for a variable of the client's own type."""
        return super().variable(variable, owner) if variable.__bound__ is None else self.name("Self", "", owner)


def client_stub() -> str:
    """Return the text of the stub of the client."""
    faces = ClientFaces()
    faces.imports["typing"] = {"Any", "Generic", "TypeVar"}
    lines = ["class Client(Generic[V]):", docstring(DOC, " " * 4), *faces.method("__init__", Client.__init__, Client)]
    for name in sorted({*dir(Client), *vars(ThreadClient)} - {"__init__", "aclose"}):
        own = name in vars(ThreadClient)
        member = inspect.getattr_static(ThreadClient if own else Client, name)
        if name.startswith("_") and name not in ("__enter__", "__exit__"):
            continue
        if name == "__exit__":
            faces.imports.setdefault("types", set()).add("TracebackType")
            lines.append(EXIT_STUB)
        elif isinstance(member, property):
            lines += faces.method(name, member.fget, Client, "@property")
        elif isinstance(member, types.FunctionType):
            lines += faces.method(name, member, Client)
    body = "\n".join(lines)
    return f'{STUB_HEADER.format("client")}{faces.import_lines()}\n__all__ = ["Client"]\nT = TypeVar("T")\n\n{body}\n'


def main() -> int:
    """Write the stubs, or compare them with ``--check``. Return the exit code."""
    import subprocess

    ruff, differ = Path(sys.executable).with_name("ruff"), False
    for name, text in (("client.pyi", client_stub()), ("recipes.pyi", recipes_stub())):
        file = FOLDER / name
        for verb in (["check", "--fix-only", "--quiet"], ["format"]):
            command = [ruff, *verb, "--stdin-filename", str(file), "-"]
            text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        if "--check" not in sys.argv:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{file} is not what the signatures make of it: `make faces` writes it", file=sys.stderr)
            differ = True
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())

"""Writes server/core/ops/straight.py, the frequent writes as one function each (``make straight``).

A write is described by short functions: its checks, its change of the tree and its reply. This program copies the
bodies of the called functions into the caller, after the statements that read the request. The result makes no call on
the usual way, no record and no separate header. It does what the description does, because its statements are the same,
in the same order.

A function can be copied if it has only positional parameters, no inner function, and at most one ``return``, as its
last statement. The call must be a statement: ``call(...)`` or ``target = call(...)``. A function that consists of one
``return`` can be called anywhere. Each local name gets the number of its copy, so names of different functions cannot
collide.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any, Final

from faces import names_in

from zoolet.protocol import codec, paths
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.node import Node
from zoolet.server.core.ops import multi, writes
from zoolet.server.core.ops.dispatch import WRITES
from zoolet.server.core.state import ServerState
from zoolet.server.core.tree import Tree
from zoolet.server.core.watches import Watches

FILE: Final = Path(__file__).parents[2] / "server" / "core" / "ops" / "straight.py"
OPS: Final = "zoolet.server.core.ops"
Function = Callable[..., Any]
COPIED: Final[dict[str, Function]] = {
    prefix + function.__name__: function
    for prefix, functions in {
        "": (writes.check_create, writes.add, writes.replace_data, paths.is_valid_name),
        "paths.": (paths.sequence_suffix,),
        "state.": (ServerState.begin, ServerState.commit),
        "state.tree.": (Tree.create, Tree.delete, Tree.set_data, Tree.begin, Tree.commit),
        "state.watches.": (Watches.begin, Watches.commit),
        "self.": (Tree._detach,),  # noqa: SLF001 - only copies of the tree's functions call it
        "node.": (Node.stat,),
    }.items()
    for function in functions
}
"""The functions to copy, by the text of a call."""
RUNS: Final = (OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA)
"""The requests that get a straight form, besides multi."""
PARTS: Final = (OpCode.CREATE, OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK)
"""The operations of a multi that get one."""
SPECIAL: Final = "acl is None or flags not in SHORT_MODES or path is None or state.quota.changes is not None"
"""The creates in a multi that need the general form."""
HEAD: Final = '''\
"""The frequent writes, each as one function from the bytes of the request to the bytes of the reply.

Made by ``make straight`` from ``writes.py``, ``multi.py``, the functions that they call and the records of the
requests; do not edit. Decision 37 gives the reasons.
"""

# mypy: ignore-errors
# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# ruff: noqa

from __future__ import annotations

from struct import Struct
'''


class Renamed(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name."""
        new = self._names.get(node.id)
        return ast.Name(new.id, node.ctx) if isinstance(new, ast.Name) else new or node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Replace the name of an error."""
        if isinstance(new := self._names.get(node.name or ""), ast.Name):
            node.name = new.id
        return self.generic_visit(node)


class Copier(ast.NodeTransformer):
    """Replaces calls by copies of the called functions.

    Args:
        copied: The functions, by the text of a call.

    Attributes:
        origins: The module that each global name in the copies comes from, and its name there.
    """

    def __init__(self, **copied: Function) -> None:
        self.origins: dict[str, tuple[str, str]] = {}
        self._copied = {**COPIED, **copied}
        self._count = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Replace the calls in statements.

        A result is not assigned if the names of the copied function can replace the targets in the other statements.
        """
        done: list[ast.stmt] = []
        for number, statement in enumerate(statements):
            is_copy = isinstance(statement, ast.Assign) and self._function(statement.value) is not None
            visited = self.visit(ast.fix_missing_locations(statement))
            done += visited if isinstance(visited, list) else [visited] if visited is not None else []
            names, others = aliases(done[-1]) if is_copy else {}, statements[number + 1 :]
            if others and names and not names.keys() & {name for other in others for name in assigned_in(other)}:
                done.pop()
                statements[number + 1 :] = [Renamed(names).visit(other) for other in others]
        return done

    def add_origin(self, name: str, origin: tuple[str, str]) -> None:
        """Remember where a global name comes from."""
        if self.origins.setdefault(name, origin) != origin:
            raise ValueError(f"{name} means {origin} and {self.origins[name]}")

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Replace a call without a result."""
        return self._copy(node.value, []) or self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Replace a call whose result is assigned."""
        return self._copy(node.value, node.targets) or self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Leave out an annotation."""
        return None if node.value is None else self.visit(ast.Assign([node.target], node.value))

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave out an assertion, which informs type checkers."""

    def visit_Pass(self, node: ast.Pass) -> None:
        """Leave out a statement that does nothing."""

    def visit_Call(self, node: ast.Call) -> Any:
        """Replace a call of a function that consists of one ``return``, and leave out a cast."""
        if isinstance(node.func, ast.Name) and node.func.id == "cast":
            return self.visit(node.args[1])
        function = self._function(node)
        if function is None:
            return self.generic_visit(node)
        names, assignments, body = self._renaming(function, node)
        if assignments or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
            raise ValueError(f"this call must be a statement, or its arguments must be names: {ast.unparse(node)}")
        return self.visit(Renamed(names).visit(body[0].value))

    def _function(self, call: ast.expr) -> Function | None:
        if not isinstance(call, ast.Call):
            return None
        return self._copied.get(re.sub(r"_\d+\b", "", ast.unparse(call.func)))

    def _copy(self, call: ast.expr, targets: list[ast.expr]) -> list[ast.stmt] | None:
        """Return the statements of a called function; None if it is not one of those to copy."""
        function = self._function(call)
        if function is None:
            return None
        names, statements, body = self._renaming(function, call)
        statements += [Renamed(names).visit(statement) for statement in body]
        if isinstance(last := statements[-1], ast.Return) and last.value is not None:
            statements[-1:] = [ast.Assign(targets, last.value)] if targets else []
        if any(isinstance(node, ast.Return) for statement in statements for node in ast.walk(statement)):
            raise ValueError(f"{function.__qualname__} returns before its end")
        return self.block(statements)

    def _renaming(self, function: Function, call: Any) -> tuple[dict[str, ast.expr], list[ast.stmt], list[ast.stmt]]:
        """Return the replacements of a function's local names, the assignments of its arguments, and its statements.

        A parameter that is never assigned is replaced by its argument, if that is a name or a constant.
        """
        self._count += 1
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        known = names_in(function.__module__)
        for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & function.__globals__.keys():
            self.add_origin(name, known[name])
        assigned = assigned_in(tree)
        parameters = [parameter.arg for parameter in tree.args.args]
        names: dict[str, ast.expr] = {name: ast.Name(f"{name}_{self._count}") for name in {*parameters, *assigned}}
        arguments = [call.func.value, *call.args] if parameters[0] == "self" else call.args
        assignments: list[ast.stmt] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            if parameter not in assigned and isinstance(argument, ast.Name | ast.Constant):
                names[parameter] = argument
            else:
                target = ast.Name(f"{parameter}_{self._count}", ast.Store())
                assignments.append(ast.Assign([target], argument))
        return names, assignments, tree.body[1:] if ast.get_docstring(tree) is not None else tree.body


def assigned_in(tree: ast.AST) -> set[str]:
    """Return the names that statements assign."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}


def aliases(statement: ast.stmt) -> dict[str, ast.expr]:
    """Return the values of the targets of an assignment, if all of them are names."""
    if not isinstance(statement, ast.Assign):
        return {}
    sides = [statement.targets[0], statement.value]
    targets, values = [side.elts if isinstance(side, ast.Tuple) else [side] for side in sides]
    if len(targets) != len(values) or not all(isinstance(name, ast.Name) for name in [*targets, *values]):
        return {}
    return {ast.unparse(target): value for target, value in zip(targets, values, strict=True)}


def terms_of(total: ast.expr) -> list[ast.expr]:
    """Return the terms of a sum."""
    if isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add):
        return [*terms_of(total.left), *terms_of(total.right)]
    return [total]


class Module:
    """The module with the straight forms."""

    def __init__(self) -> None:
        self._origins = {name: (f"{OPS}.dispatch", name) for name in ("RUNS", "PARTS")}
        self._constants: dict[str, str] = {}
        self._functions: list[str] = []

    def add(self, op: OpCode) -> None:
        """Add the straight form of a write, as a request, as an operation of a multi, or as both."""
        write, request = WRITES[op], OPERATIONS[op].request
        assert request is not None, op
        reading = codec.reading_of(request)
        copier = Copier(perform=write.perform, reply=write.reply)
        names: dict[str, ast.expr] = {
            name: ast.Name(self._reader_name(copier, name, value)) for name, value in reading.names.items()
        }
        statements = copier.block([Renamed(names).visit(statement) for statement in ast.parse(reading.text).body])
        is_run, is_part = "results is None", "results is not None"
        if op in RUNS:
            count = "state.zxid += 1"  # a request uses up its zxid even if it fails its checks
            statements += ast.parse(f"if {is_run}:\n    {count}" if op in PARTS else count).body
        if op in PARTS and "flags" in reading.fields:
            statements += ast.parse(f"if {is_part} and ({SPECIAL}):\n    return 0").body
            copier.add_origin("SHORT_MODES", (f"{OPS}.multi", "SHORT_MODES"))
        fields = ", ".join(reading.fields)
        outcome = f"path, node = perform(state, client, {int(op)}, {fields})\nbody = reply(path, node)"
        *others, body = copier.block(ast.parse(outcome).body)
        assert isinstance(body, ast.Assign), ast.unparse(body)
        statements += others
        if op in RUNS and op in PARTS:
            condition = ast.parse(is_part, mode="eval").body
            statements.append(ast.If(condition, self._result(op, terms_of(body.value)), []))
        result = self._frame if op in RUNS else self._result
        statements += result(op, terms_of(body.value))
        self._add_function(op, copier, statements, "state, client, buf, offset, end, results=None", "writes")

    def add_multi(self) -> None:
        """Add the straight form of a multi."""
        copier = Copier(perform=multi.multi)
        *statements, body = copier.block(ast.parse("body = perform(state, client, buf, offset, end)").body)
        assert isinstance(body, ast.Assign), ast.unparse(body)
        statements += self._frame(OpCode.MULTI, [body.value])
        self._add_function(OpCode.MULTI, copier, statements, "state, client, buf, offset, end", "multi")

    def _add_function(
        self, op: OpCode, copier: Copier, statements: list[ast.stmt], parameters: str, source: str
    ) -> None:
        text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in statements)
        for name, origin in copier.origins.items():
            if re.search(rf"\b{name}\b", text) and self._origins.setdefault(name, origin) != origin:
                raise ValueError(f"{name} means {origin} and {self._origins[name]}")
        text = f'"""Execute {op.name}, in its general form in ``{source}.py``."""\n{text}'
        self._functions.append(f"def {op.name.lower()}({parameters}):\n{textwrap.indent(text, '    ')}\n")

    def _reader_name(self, copier: Copier, name: str, value: Any) -> str:
        """Return the name for a global name of the statements that read a request."""
        if (origin := names_in(codec.__name__).get(name)) is not None:
            copier.add_origin(name, origin)
        elif isinstance(struct := getattr(value, "__self__", None), Struct):
            return self._constant(struct.format.lstrip(">"), "unpack_from")
        else:
            homes = [module for key, module in sorted(sys.modules.items()) if key.startswith("zoolet.protocol.")]
            found = [(home.__name__, key) for home in homes for key, other in vars(home).items() if other is value]
            copier.add_origin(name, found[0])
        return name

    def _constant(self, letters: str, method: str = "pack") -> str:
        """Return the name of a constant: a method of a Struct."""
        name = f"{method}_{letters}".replace("?", "b")
        self._constants[name] = f'Struct(">{letters}").{method}'
        return name

    def _frame(self, op: OpCode, terms: list[ast.expr]) -> list[ast.stmt]:
        """Return the statements that return the frame of a reply, given the terms of its body. The header and a length
        at the start of the body are packed together.
        """
        lengths, rest, statements = self._parted(terms)
        size = " + ".join([str(16 + 4 * len(lengths)), *(f"len({name})" for name in rest)])
        packed = self._constant("iiqi" + "i" * len(lengths))
        values = ", ".join([size, "client.last_xid", "state.zxid", "0", *lengths])
        return [*statements, *ast.parse(f"return {' + '.join([f'{packed}({values})', *rest])}").body]

    def _result(self, op: OpCode, terms: list[ast.expr]) -> list[ast.stmt]:
        """Return the statements that add the result of an operation of a multi, and return the place of the next."""
        lengths, rest, statements = self._parted(terms)
        packed = self._constant("i?i" + "i" * len(lengths))
        result = f"{packed}({', '.join([str(int(op)), 'False', '0', *lengths])})"
        if not lengths:
            self._constants[f"RESULT_{int(op)}"] = result
            result = f"RESULT_{int(op)}"
        return [*statements, *ast.parse(f"results.append({' + '.join([result, *rest])})\nreturn offset").body]

    def _parted(self, terms: list[ast.expr]) -> tuple[list[str], list[str], list[ast.stmt]]:
        """Return the packed numbers at the start of a body, the names of the other terms, and their assignments."""
        lengths, rest, statements = [], [], []
        for term in terms:
            if isinstance(term, ast.Call) and ast.unparse(term.func) == "pack_int" and not rest:
                lengths.append(ast.unparse(term.args[0]))
            elif isinstance(term, ast.Name):
                rest.append(term.id)
            elif ast.unparse(term) != "b''":
                rest.append(f"rest_{len(rest)}")
                statements.append(ast.Assign([ast.Name(rest[-1], ast.Store())], term))
        return lengths, rest, statements

    def text(self) -> str:
        """Return the text of the module."""
        imports: dict[str, set[str]] = {}
        for name, (module, original) in self._origins.items():
            if original:
                imports.setdefault(module, set()).add(name if name == original else f"{original} as {name}")
        lines = [f"import {name}" for name, (_, original) in sorted(self._origins.items()) if not original]
        for module, names in sorted(imports.items()):
            lines.append(f"from {relative(module)} import {', '.join(sorted(names))}")
        constants = [f"{name} = {value}" for name, value in self._constants.items()]
        runs = ", ".join(f"{int(op)}: {op.name.lower()}" for op in (*RUNS, OpCode.MULTI))
        parts = ", ".join(f"{int(op)}: {op.name.lower()}" for op in PARTS)
        tables = [f"RUNS.update({{{runs}}})", f"PARTS.update({{{parts}}})"]
        return "\n".join([HEAD, *lines, *constants, *self._functions, *tables])


def relative(module: str) -> str:
    """Return the name of a module of zoolet, relative to the module that is written."""
    home, parts = OPS.split("."), module.split(".")
    if parts[0] != home[0]:
        return module
    common = next(number for number in range(len(home), 0, -1) if home[:number] == parts[:number])
    return "." * (len(home) - common + 1) + ".".join(parts[common:])


def straight() -> str:
    """Return the formatted text of the module."""
    module = Module()
    for op in sorted({*RUNS, *PARTS}):
        module.add(op)
    module.add_multi()
    command = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", FILE, "-"]
    return subprocess.run(command, input=module.text(), capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Write the module. With ``--check``, compare it instead."""
    text = straight()
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        print(f"{FILE} is not what the sources make of it: `make straight` writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The generator of server/core/ops/straight.py, with a function for each frequent request (``make straight``).

The general form of a request is a few functions: its checks, its change of the tree and its reply. This program copies
the bodies of the called functions into the caller, after the statements that read the request. The result has few
calls, and packs the header with the reply. Writes create no record of the request. It does what the general form does,
because its statements are the same, in the same order.

A function can be copied if it has only positional parameters, no inner function, and at most one ``return``, as its
last statement. The call must be a statement: ``call(...)`` or ``target = call(...)``. A function that consists of one
``return`` can be called anywhere, if the arguments are names or constants. Each local name gets the number of its copy,
so names of different functions cannot collide. Only assertions, annotations and casts are left out.
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
from types import ModuleType
from typing import Any, Final

# An empty module replaces the generated module, which may import a name that no longer exists.
sys.modules["zoolet.server.core.ops.straight"] = ModuleType("straight")

from faces import import_name, names_in

from zoolet.protocol import codec, paths
from zoolet.protocol import records as r
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Node, packed
from zoolet.server.core.ops import multi, reads, writes
from zoolet.server.core.ops.dispatch import TABLE, WRITES
from zoolet.server.core.tree import Tree
from zoolet.server.core.watches import Watches

FILE: Final = Path(__file__).parents[2] / "server" / "core" / "ops" / "straight.py"
OPS: Final = "zoolet.server.core.ops"
Function = Callable[..., Any]
COPIED: Final[dict[str, Function]] = {
    prefix + function.__name__: function
    for prefix, functions in {
        "": (
            writes.check_create,
            writes.add,
            writes.replace_data,
            paths.is_valid_name,
            multi.needs_checked_create,
            packed,
        ),
        "paths.": (paths.sequence_suffix,),
        "state.": (Engine.begin, Engine.commit, Engine.add_detail),
        "state.tree.": (Tree.create, Tree.delete, Tree.set_data, Tree.begin, Tree.commit),
        "state.watches.": (Watches.begin, Watches.commit),
        "self.": (Tree._detach,),  # noqa: SLF001 - only copies of the tree's functions call it
        "node.": (Node.stat,),
    }.items()
    for function in functions
}
"""The functions to copy, by the text of a call."""
STRAIGHT_READS: Final = (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN2)
"""The reads that get a straight form. Their decoded requests are cached, because many are repeated. GET_CHILDREN needs
no straight form, because its general form does not copy the list of names.
"""
STRAIGHT_WRITES: Final = (OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA)
"""The writes that get a straight form, in addition to multi."""
STRAIGHT_OPERATIONS_OF_MULTI: Final = (OpCode.CREATE, OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK)
"""The operations of a multi that get a straight form."""
REPLY_STRUCT: Final = codec.combined_struct(codec.Int, r.ReplyHeader)
RESULT_STRUCT: Final = codec.combined_struct(r.MultiHeader)
UNCOPYABLE_NODES: Final = (
    ast.Lambda,
    ast.FunctionDef,
    ast.ClassDef,
    ast.Global,
    ast.Nonlocal,
    ast.Import,
    ast.ImportFrom,
)
"""Syntax nodes whose presence in a function prevents copying it."""
MODULE_HEADER: Final = '''\
"""The frequent requests, each as one function from the bytes of the request to the frame of the reply. For an
operation of a multi, it adds the encoded result to a list.

Made by ``make straight`` from the general forms in ``reads.py``, ``writes.py`` and ``multi.py``, the functions that
they call and the records of the requests; do not edit. Decision 37 gives the reasons.
"""

# mypy: ignore-errors
# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# ruff: noqa

from __future__ import annotations

from struct import Struct
'''


class NameReplacer(ast.NodeTransformer):
    """A transformer that replaces names by expressions."""

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
    """A transformer that replaces calls by copies of the called functions.

    Args:
        copied: The functions, by the text of a call.

    Attributes:
        origins: Module and original name of each global name in the copies.
        used: The texts of the replaced calls.
    """

    def __init__(self, copied: dict[str, Function]) -> None:
        self.origins: dict[str, tuple[str, str]] = {}
        self.used: set[str] = set()
        self._copied = copied
        self._count = 0
        self._originals: dict[str, str] = {}  # original names by numbered name

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Replace the calls in statements, and return the new statements.

        A result is not assigned if names of the copied function can stand for its targets in the later statements.
        """
        done: list[ast.stmt] = []
        for number, statement in enumerate(statements):
            is_copy = isinstance(statement, ast.Assign) and self._function(statement.value) is not None
            visited = self.visit(ast.fix_missing_locations(statement))
            done += visited if isinstance(visited, list) else [visited] if visited is not None else []
            others = statements[number + 1 :]
            names = assigned_values(done[-1]) if is_copy and others else {}
            changed = {name for other in others for name in assigned_names(other)}
            if names and not changed & {*names, *map(ast.unparse, names.values())}:
                done.pop()
                statements[number + 1 :] = [NameReplacer(names).visit(other) for other in others]
        return done

    def add_origin(self, name: str, origin: tuple[str, str]) -> None:
        """Record the module and the original name of a global name.

        Raises:
            ValueError: The name already has a different origin.
        """
        if self.origins.setdefault(name, origin) != origin:
            raise ValueError(f"{name} means {origin} and {self.origins[name]}")

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Replace a call whose result is not used."""
        return self._copy(node.value, []) or self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Replace a call whose result is assigned."""
        return self._copy(node.value, node.targets) or self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Remove the annotation of an assignment."""
        return None if node.value is None else self.visit(ast.Assign([node.target], node.value))

    def visit_Assert(self, node: ast.Assert) -> None:
        """Remove an assertion, which only informs type checkers."""

    def visit_Call(self, node: ast.Call) -> Any:
        """Replace a call of a function that consists of one ``return``, and remove casts.

        Raises:
            ValueError: The function or the arguments are too complex for an expression.
        """
        if isinstance(node.func, ast.Name) and node.func.id == "cast":
            return self.visit(node.args[1])
        function = self._function(node)
        if function is None:
            return self.generic_visit(node)
        names, assignments, body = self._rename_locals(function, node)
        if assignments or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
            raise ValueError(f"this call must be a statement, or its arguments must be names: {ast.unparse(node)}")
        return self.visit(NameReplacer(names).visit(body[0].value))

    def _function(self, call: ast.expr) -> Function | None:
        if not isinstance(call, ast.Call):
            return None
        text = re.sub(r"\w+", lambda word: self._originals.get(word[0], word[0]), ast.unparse(call.func))
        function = self._copied.get(text)
        if function is not None:
            self.used.add(text)
        return function

    def _copy(self, call: ast.expr, targets: list[ast.expr]) -> list[ast.stmt] | None:
        """Return the statements of a called function, or None if the function is not to be copied.

        Raises:
            ValueError: The function cannot be copied.
        """
        function = self._function(call)
        if function is None:
            return None
        names, statements, body = self._rename_locals(function, call)
        statements += [NameReplacer(names).visit(statement) for statement in body]
        last = statements[-1]
        if isinstance(last, ast.Return) and last.value is not None:
            statements[-1] = ast.Assign(targets, last.value) if targets else ast.Expr(last.value)
        elif targets:
            raise ValueError(f"{function.__qualname__} does not end with a result")
        if any(isinstance(node, ast.Return) for statement in statements for node in ast.walk(statement)):
            raise ValueError(f"{function.__qualname__} returns before its end")
        return self.block(statements)

    def _rename_locals(
        self, function: Function, call: Any
    ) -> tuple[dict[str, ast.expr], list[ast.stmt], list[ast.stmt]]:
        """Return the replacements of a function's local names, the assignments of its arguments, and its statements.

        A parameter that is never assigned is replaced by its argument, if the argument is a name or a constant.

        Raises:
            ValueError: The function cannot be copied.
        """
        self._count += 1
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        signature = tree.args
        options = [*signature.kwonlyargs, *signature.defaults, signature.vararg, signature.kwarg, *call.keywords]
        if any(options) or any(
            isinstance(node, UNCOPYABLE_NODES) for statement in tree.body for node in ast.walk(statement)
        ):
            raise ValueError(f"{function.__qualname__} cannot be copied")
        for node in ast.walk(tree):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if called in self._copied and function.__globals__.get(called) is not self._copied[called]:
                raise ValueError(f"{function.__qualname__} calls a different function with the name {called}")
        known = names_in(function.__module__)
        for name in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & function.__globals__.keys():
            self.add_origin(name, known[name])
        assigned = assigned_names(tree)
        parameters = [parameter.arg for parameter in tree.args.args]
        numbered = {name: f"{name}_{self._count}" for name in {*parameters, *assigned} if name != "_"}
        self._originals |= {new: name for name, new in numbered.items()}
        names: dict[str, ast.expr] = {name: ast.Name(new) for name, new in numbered.items()}
        arguments = [call.func.value, *call.args] if parameters[0] == "self" else call.args
        assignments: list[ast.stmt] = []
        for parameter, argument in zip(parameters, arguments, strict=True):
            if parameter not in assigned and isinstance(argument, ast.Name | ast.Constant):
                names[parameter] = argument
            else:
                target = ast.Name(f"{parameter}_{self._count}", ast.Store())
                assignments.append(ast.Assign([target], argument))
        return names, assignments, tree.body[1:] if ast.get_docstring(tree) is not None else tree.body


def assigned_names(tree: ast.AST) -> set[str]:
    """Return the names that statements assign."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}


def assigned_values(statement: ast.stmt) -> dict[str, ast.expr]:
    """Return the values of an assignment by target, or nothing unless all targets and values are names."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return {}
    sides = [statement.targets[0], statement.value]
    targets, values = [side.elts if isinstance(side, ast.Tuple) else [side] for side in sides]
    if len(targets) != len(values) or not all(isinstance(name, ast.Name) for name in [*targets, *values]):
        return {}
    return {ast.unparse(target): value for target, value in zip(targets, values, strict=True)}


def sum_terms(total: ast.expr) -> list[ast.expr]:
    """Return the terms of a sum. Any other expression is its only term."""
    if isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add):
        return [*sum_terms(total.left), *sum_terms(total.right)]
    return [total]


class StraightModule:
    """The module with the straight forms."""

    def __init__(self) -> None:
        self._origins = {name: (f"{OPS}.dispatch", name) for name in ("STRAIGHT_REQUESTS", "STRAIGHT_OPERATIONS")}
        self._constants: dict[str, str] = {}
        self._functions: list[str] = []
        self._used: set[str] = set()

    def add(self, op: OpCode) -> None:
        """Add the straight form of a write: as a request, as an operation of a multi, or both."""
        write, request = WRITES[op], OPERATIONS[op].request
        assert request is not None, op
        reading = codec.read_statements(request)
        copied = {**COPIED, "perform": write.perform, "reply": write.reply}
        names: dict[str, ast.expr] = {}
        known = names_in(codec.__name__)
        for name, value in reading.names.items():
            if isinstance(struct := getattr(value, "__self__", None), Struct) and name not in known:
                names[name] = ast.Name(self._constant(struct.format.lstrip(">"), "unpack_from"))
            elif name not in known:  # the value is a function that reads a field
                copied[name] = value
        copier = Copier(copied)
        for name in known.keys() & reading.names:
            copier.add_origin(name, known[name])
        statements = copier.block([NameReplacer(names).visit(statement) for statement in ast.parse(reading.text).body])
        is_run, is_part = "results is None", "results is not None"
        if op in STRAIGHT_WRITES:
            count = "state.zxid += 1"  # a request uses up its zxid even if it fails its checks
            statements += ast.parse(f"if {is_run}:\n    {count}" if op in STRAIGHT_OPERATIONS_OF_MULTI else count).body
        if op in STRAIGHT_OPERATIONS_OF_MULTI and "flags" in reading.fields:
            special = f"if {is_part} and needs_checked_create(state, path, acl, flags):\n    return 0"
            statements += copier.block(ast.parse(special).body)
        fields = ", ".join(reading.fields)
        outcome = f"path, node = perform(state, client, {int(op)}, {fields})\nbody = reply(path, node)"
        *others, body = copier.block(ast.parse(outcome).body)
        assert isinstance(body, ast.Assign), ast.unparse(body)
        statements += others
        if op in STRAIGHT_WRITES and op in STRAIGHT_OPERATIONS_OF_MULTI:
            condition = ast.parse(is_part, mode="eval").body
            statements.append(ast.If(condition, self._result(op, sum_terms(body.value)), []))
        result = self._frame if op in STRAIGHT_WRITES else self._result
        statements += result(op, sum_terms(body.value))
        self._add_function(op, copier, statements, "state, client, buf, offset, end, results=None", "writes")

    def add_read(self, op: OpCode) -> None:
        """Add the straight form of a read."""
        handle, request = TABLE[op].handle, OPERATIONS[op].request
        assert request is not None, op
        copier = Copier({"perform": handle, "list_children": reads.list_children})
        for origin in ((request.__module__, request.__name__), (codec.__name__, codec.Decoded.__name__)):
            self._origins[origin[1]] = origin
        known = f"{op.name.lower()}_requests"
        self._constants[known] = f"{codec.Decoded.__name__}({request.__name__})"
        text = f"request = {known}[buf[offset:end]]\nbody = perform(state, client, request)"
        *statements, body = copier.block(ast.parse(text).body)
        assert isinstance(body, ast.Assign), ast.unparse(body)
        statements += self._frame(op, sum_terms(body.value))
        self._add_function(op, copier, statements, "state, client, buf, offset, end", "reads")

    def add_multi(self) -> None:
        """Add the straight form of a multi."""
        copier = Copier({**COPIED, "perform": multi.multi})
        *statements, body = copier.block(ast.parse("body = perform(state, client, buf, offset, end)").body)
        assert isinstance(body, ast.Assign), ast.unparse(body)
        statements += self._frame(OpCode.MULTI, [body.value])
        self._add_function(OpCode.MULTI, copier, statements, "state, client, buf, offset, end", "multi")

    def _add_function(
        self, op: OpCode, copier: Copier, statements: list[ast.stmt], parameters: str, source: str
    ) -> None:
        text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in statements)
        tree = ast.parse(text)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & copier.origins.keys()
        if hidden := used & assigned_names(tree):
            raise ValueError(f"{hidden} are global and local names")
        for name in used:
            if self._origins.setdefault(name, copier.origins[name]) != copier.origins[name]:
                raise ValueError(f"{name} means {copier.origins[name]} and {self._origins[name]}")
        self._used |= copier.used
        text = f'"""Execute {op.name}. Its general form is in ``{source}.py``."""\n{text}'
        self._functions.append(f"def {op.name.lower()}({parameters}):\n{textwrap.indent(text, '    ')}\n")

    def _constant(self, letters: str, method: str = "pack") -> str:
        """Return the name of a constant for a method of a Struct, and define the constant if it is new."""
        name = f"{method}_{letters}".replace("?", "b")
        self._constants[name] = f'Struct(">{letters}").{method}'
        return name

    def _frame(self, op: OpCode, terms: list[ast.expr]) -> list[ast.stmt]:
        """Return the statements that return the frame of a reply, given the terms of its body.

        The header and a length at the start of the body are packed together.
        """
        lengths, rest, statements = self._split_terms(terms)
        size = " + ".join([str(REPLY_STRUCT.size - 4 + 4 * len(lengths)), *(f"len({name})" for name in rest)])
        packed = self._constant(REPLY_STRUCT.format.lstrip(">") + "i" * len(lengths))
        values = ", ".join([size, "client.last_xid", "state.zxid", "0", *lengths])
        parts = [f"{packed}({values})", *rest]
        frame = f"b''.join(({', '.join(parts)}))" if len(parts) > 2 else " + ".join(parts)  # join() copies only once
        return [*statements, *ast.parse(f"return {frame}").body]

    def _result(self, op: OpCode, terms: list[ast.expr]) -> list[ast.stmt]:
        """Return the statements that add the result of a multi's operation, and return the offset of the next."""
        lengths, rest, statements = self._split_terms(terms)
        packed = self._constant(RESULT_STRUCT.format.lstrip(">") + "i" * len(lengths))
        result = f"{packed}({', '.join([str(int(op)), 'False', '0', *lengths])})"
        if not lengths:
            self._constants[f"RESULT_{int(op)}"] = result
            result = f"RESULT_{int(op)}"
        return [*statements, *ast.parse(f"results.append({' + '.join([result, *rest])})\nreturn offset").body]

    def _split_terms(self, terms: list[ast.expr]) -> tuple[list[str], list[str], list[ast.stmt]]:
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
        """Return the text of the module.

        Raises:
            ValueError: A function was not copied, because no call has its text, or the name of a form hides it.
        """
        functions = {
            op.name.lower() for op in (*STRAIGHT_READS, *STRAIGHT_WRITES, *STRAIGHT_OPERATIONS_OF_MULTI, OpCode.MULTI)
        }
        if unused := {*COPIED} - self._used:
            raise ValueError(f"these entries of COPIED are never called: {unused}")
        if hidden := functions & self._origins.keys():
            raise ValueError(f"forms that are named like an import: {hidden}")
        imports: dict[str, set[str]] = {}
        for name, (module, original) in self._origins.items():
            if original:
                imports.setdefault(module, set()).add(name if name == original else f"{original} as {name}")
        lines = [f"import {name}" for name, (_, original) in sorted(self._origins.items()) if not original]
        for module, names in sorted(imports.items()):
            lines.append(f"from {import_name(module, OPS)} import {', '.join(sorted(names))}")
        constants = [f"{name} = {value}" for name, value in self._constants.items()]
        runs = ", ".join(f"{int(op)}: {op.name.lower()}" for op in (*STRAIGHT_READS, *STRAIGHT_WRITES, OpCode.MULTI))
        parts = ", ".join(f"{int(op)}: {op.name.lower()}" for op in STRAIGHT_OPERATIONS_OF_MULTI)
        tables = [f"STRAIGHT_REQUESTS.update({{{runs}}})", f"STRAIGHT_OPERATIONS.update({{{parts}}})"]
        return "\n".join([MODULE_HEADER, *lines, *constants, *self._functions, *tables])


def straight() -> str:
    """Return the text of the module, before ``ruff format``."""
    module = StraightModule()
    for op in sorted({*STRAIGHT_WRITES, *STRAIGHT_OPERATIONS_OF_MULTI}):
        module.add(op)
    for op in STRAIGHT_READS:
        module.add_read(op)
    module.add_multi()
    return module.text()


def main() -> int:
    """Write the module, or compare its statements with ``--check``. Return the exit code."""
    text = straight()
    if "--check" not in sys.argv:
        command = [Path(sys.executable).with_name("ruff"), "format", "--stdin-filename", FILE, "-"]
        FILE.write_text(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)
    elif ast.dump(ast.parse(FILE.read_text())) != ast.dump(ast.parse(text)):
        print(f"{FILE} is not what its sources make of it: `make straight` writes it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

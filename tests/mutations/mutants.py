"""Small defects in Python code: each changes one operator, number, value or statement, like a slip."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMPARES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATOR_SWAPS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAME_SWAPS: Final = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*",
    ast.FloorDiv: "//", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
SOURCES: Final = {
    "core": ("server/core/*.py", "server/core/ops/*.py"),
    "storage": ("server/storage/*.py",),
    "session": ("client/aio/*.py", "client/wire/*.py", "client/*.py"),
    "recipes": ("client/recipes/*.py",),
}
"""The parts that receive defects, as globs."""
EXEMPT_FUNCTIONS: Final = frozenset({"__repr__", "__str__", "__hash__"})
"""Functions whose results are only displayed, or have no meaning of their own."""
LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception", "log"})


@dataclass(frozen=True)
class Mutant:
    """A defect that can be planted in a module.

    Args:
        file: The module, relative to the root.
        line: Line of the change.
        what: Description of the change.
        number: Number of the defect within its module.
        lines: Lines of its statement, without the body of a compound statement.
    """

    file: str
    line: int
    what: str
    number: int
    lines: range

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.number}): {self.what}"

    def source(self, root: Path) -> str:
        """Return the module with the defect."""
        tree = ast.parse((root / self.file).read_text())
        for number, (_, _, change) in enumerate(_changes(tree)):
            if number == self.number:
                change()
                return ast.unparse(ast.fix_missing_locations(tree))
        raise ValueError(f"there is no such mutant: {self}")


def find_mutants(root: Path, file: Path) -> list[Mutant]:
    """Return all defects of a module."""
    name = file.relative_to(root).as_posix()
    tree = ast.parse(file.read_text())
    statements = [
        _lines(node) for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    return [
        Mutant(name, line, what, number, min((lines for lines in statements if line in lines), key=len))
        for number, (line, what, _) in enumerate(_changes(tree))
    ]


def _lines(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    """Return the lines of a statement without its body."""
    first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
    body: list[ast.stmt] = getattr(node, "body", [])
    last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", None) or first
    return range(first, last + 1)


class _Change:
    """A change of one field of a syntax node."""

    def __init__(self, node: ast.AST, field: str, value: object, place: int | None = None) -> None:
        self._node, self._field, self._value, self._place = node, field, value, place

    def __call__(self) -> None:
        if self._place is None:
            setattr(self._node, self._field, self._value)
        else:
            getattr(self._node, self._field)[self._place] = self._value


def _changes(tree: ast.AST) -> Iterator[tuple[int, str, _Change]]:
    """Yield the line, the description and the change of each defect, always in the same order."""
    for parent, field, place, node in _code(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for number, op in enumerate(node.ops):
                other = COMPARES[type(op)]
                yield line, f"{NAME_SWAPS[type(op)]} becomes {NAME_SWAPS[other]}", _Change(node, "ops", other(), number)
        elif isinstance(node, ast.BoolOp):
            is_and = isinstance(node.op, ast.And)
            what = "and becomes or" if is_and else "or becomes and"
            yield line, what, _Change(node, "op", ast.Or() if is_and else ast.And())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield line, "not is left out", _Change(parent, field, node.operand, place)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATOR_SWAPS:
            other_ = OPERATOR_SWAPS[type(node.op)]
            yield line, f"{NAME_SWAPS[type(node.op)]} becomes {NAME_SWAPS[other_]}", _Change(node, "op", other_())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield line, f"{node.value} becomes {not node.value}", _Change(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield line, f"{node.value} becomes {node.value + 1}", _Change(node, "value", node.value + 1)
        elif isinstance(node, ast.Return) and node.value is not None and not _is_nothing(node.value):
            yield line, "None is returned", _Change(node, "value", ast.Constant(None))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await) and not _is_log(node.value):
            yield line, f"left out: {ast.unparse(node)[:60]}", _Change(parent, field, ast.Pass(), place)
        elif isinstance(node, ast.Break | ast.Continue):
            other_node = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
            yield (
                line,
                f"{type(node).__name__} becomes {type(other_node).__name__}".lower(),
                _Change(parent, field, other_node, place),
            )


def _is_nothing(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_log(node: ast.Call | ast.Await) -> bool:
    called = node.value if isinstance(node, ast.Await) else node
    return isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr in LOGS


def _code(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield the code inside functions, with its place in its parent, except annotations, texts, assertions and logs."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        parent, inside = pending.pop(0)
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            if parent.name in EXEMPT_FUNCTIONS:
                continue
            inside = True
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "args", "type_params"):
                if not (field == "args" and isinstance(parent, ast.Call)):
                    continue
            for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.JoinedStr | ast.Raise):
                    continue
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    continue
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call) and _is_log(child.value):
                    continue
                if inside:
                    yield parent, field, place, child
                pending.append((child, inside))

"""The parameters of commands, derived from signatures. A type hint determines the form of a value in JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ...protocol.errors import ErrorCode, ZooKeeperError
from ..frames.actions import ACTIONS, Action
from ..signatures import Who
from .values import MismatchError, UsageError, parse_data, parse_session, parse_tree, unknown_parameter_message

MISSING: Final = inspect.Parameter.empty
"""The default of a required parameter."""
MAX_WAIT_SECONDS: Final = 600.0
"""Maximum number of seconds that a command may wait."""


@dataclass(frozen=True)
class ParameterKind:
    """The form of a parameter's value in JSON.

    Args:
        name: Human-readable name.
        json: Permitted JSON types, apart from null.
        read: Function that converts the JSON value.
        choices: Permitted values, or empty if all are permitted.
        nullable: Whether the value may be null.
        numbered: Class to look up if the value is the number of an object, such as a fault; otherwise None.
        indexed: Class to look up if the value is the index of a member; otherwise None.
    """

    name: str
    json: tuple[str, ...]
    read: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    nullable: bool = False
    numbered: type | None = None
    indexed: type | None = None


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command.

    Args:
        kind: Form of the value.
        meaning: One-line description.
        default: Default value, or ``MISSING`` if the parameter is required.
        name: Name in Python.
        is_spread: Whether the elements of the value are passed as separate arguments in Python.
        required_for: Actions of a fault that require the parameter.
        is_of_action: Whether the parameter belongs to the action of a fault.
    """

    kind: ParameterKind
    meaning: str
    default: object
    name: str
    is_spread: bool = False
    required_for: tuple[str, ...] = ()
    is_of_action: bool = False

    def read(self, value: object) -> Any:
        """Convert a JSON value.

        Raises:
            UsageError: The value is not valid for this parameter.
        """
        if value is None and self.kind.nullable:
            return None
        if self.kind.choices and value not in self.kind.choices:
            raise MismatchError(f"one of {', '.join(self.kind.choices)}", value)
        return self.kind.read(value)

    def as_json(self) -> dict[str, Any]:
        """Return the parameter as JSON for ``GET /commands``."""
        more = {
            "default": None if self.default is MISSING else self.default,
            "json": list(self.kind.json),
            "nullable": self.kind.nullable or None,
            "choices": list(self.kind.choices),
            "required_for": list(self.required_for),
        }
        shown = {"type": self.kind.name, "meaning": self.meaning, "required": self.default is MISSING}
        return shown | {key: value for key, value in more.items() if value not in (None, [])}


# --- kinds of parameters ---


def _make_reader(kind: type | tuple[type, ...], name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise MismatchError(name, value)
        return value

    return read


def _read_seconds(value: Any) -> float:
    seconds: float = _make_reader((int, float), "a number")(value)
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise MismatchError(f"from 0 to {MAX_WAIT_SECONDS:g} seconds", value)
    return seconds


def _read_error_code(value: object) -> int:
    name = value.upper() if isinstance(value, str) else ""
    if name in ErrorCode.__members__:
        return ErrorCode[name]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise MismatchError("the name or number of an error, such as NO_NODE", value)


def _read_index(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MismatchError("the index of a member, counted from 0", value)
    return value


def _read_groups(value: object) -> list[list[int]]:
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise MismatchError("a list of lists of members, such as [[0], [1, 2]]", value)
    return [[_read_index(member) for member in group] for group in value]


_TEXT: Final = ParameterKind("text", ("string",), _make_reader(str, "text"))
_NUMBER: Final = ParameterKind("number", ("number",), _make_reader((int, float), "a number"))
_INTEGER: Final = ParameterKind("whole number", ("number",), _make_reader(int, "a whole number"))
_KINDS_BY_TYPE: Final = {
    bytes: ParameterKind('text or {"base64": ""}', ("string", "object"), parse_data),
    bool: ParameterKind("true or false", ("boolean",), _make_reader(bool, "true or false")),
    ZooKeeperError: ParameterKind("name or number", ("string", "number"), _read_error_code),
    str: _TEXT,
    float: _NUMBER,
    Mapping: ParameterKind("object", ("object",), parse_tree),
    int: _INTEGER,
    Collection: ParameterKind("list of lists", ("array",), _read_groups),
}
"""The kind for each type that occurs in type hints. The first matching type applies."""
_SESSION: Final = ParameterKind('session id or "all"', ("string", "number"), parse_session)
_TIMEOUT: Final = replace(_NUMBER, read=_read_seconds)


def index_kind(kind: type) -> ParameterKind:
    """Return the kind for the index of a member."""
    return replace(_INTEGER, read=_read_index, indexed=kind)


def _hint_kind(name: str, hint: Any) -> ParameterKind | None:
    """Return the kind of a type hint, or None if JSON cannot express it."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = _kind_without_null(name, [part for part in parts if part is not NoneType])
    return None if kind is None else replace(kind, nullable=NoneType in parts)


def _kind_without_null(name: str, parts: list[Any]) -> ParameterKind | None:
    literals = [part for part in parts if get_origin(part) is Literal]
    classes = [part for part in parts if isinstance(part, type) and part not in _KINDS_BY_TYPE]
    if set(parts) >= set(get_args(Who)):
        return _SESSION
    if literals:
        return _TEXT if len(parts) > 1 else replace(_TEXT, choices=get_args(literals[0]))
    if classes:
        return index_kind(classes[0]) if int in parts else replace(_INTEGER, numbered=classes[0])
    if name == "timeout":
        return _TIMEOUT
    known = {get_origin(part) or part for part in parts}
    return next((kind for type, kind in _KINDS_BY_TYPE.items() if type in known), None)


# --- parameters of a method ---


def described_parameters(
    method: Callable[..., Any], descriptions: Mapping[str, str]
) -> Iterator[tuple[str, Parameter]]:
    """Yield the parameters of a method that have descriptions, with their names in JSON."""
    hints = get_type_hints(method)
    for name, parameter in inspect.signature(method).parameters.items():
        if hints.get(name) is Action:
            yield from _action_parameters(descriptions)
        elif name in hints and (kind := _hint_kind(name, hints[name])) is not None:
            key = kind.indexed.__name__.lower() if kind.indexed is not None else name
            if key in descriptions:
                is_spread = parameter.kind is inspect.Parameter.VAR_POSITIONAL
                yield key, Parameter(kind, descriptions[key], parameter.default, name, is_spread)


def _action_parameters(descriptions: Mapping[str, str]) -> Iterator[tuple[str, Parameter]]:
    """Yield the parameter for the name of the action, and the parameters of all actions."""
    yield "action", Parameter(replace(_TEXT, choices=(*ACTIONS,)), f"one of {', '.join(ACTIONS)}", MISSING, "action")
    found: dict[str, Parameter] = {}
    for action, make in ACTIONS.items():
        for name, parameter in described_parameters(make, descriptions):
            before = found[name].required_for if name in found else ()
            needs = (action,) if parameter.default is MISSING else ()
            kind = replace(parameter.kind, nullable=True)
            found[name] = replace(parameter, kind=kind, default=None, required_for=before + needs, is_of_action=True)
    yield from found.items()


def pop_action(values: dict[str, Any]) -> Action:
    """Remove an action and its parameters from the values of all parameters of a fault, and return the action.

    Raises:
        UsageError: The action does not have a given parameter, or a required parameter is missing.
    """
    name = values.pop("action")
    known = inspect.signature(ACTIONS[name]).parameters
    every = {key for make in ACTIONS.values() for key in inspect.signature(make).parameters}
    given = {key: value for key in every if (value := values.pop(key)) is not None}
    if unknown := sorted(given.keys() - known.keys()):
        raise UsageError(unknown_parameter_message(name, unknown, known))
    if missing := [key for key, each in known.items() if each.default is MISSING and key not in given]:
        raise UsageError(f"{name} needs the parameter {', '.join(missing)}")
    return ACTIONS[name](**given)

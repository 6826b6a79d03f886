"""The commands of an endpoint: its calls in :mod:`zoolet.testing.calls`, completed from the signatures and docstrings
of its methods.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from ..calls import CALLS, MEMBER_CALLS, NUMBERED_CALLS, HttpCall
from .numbered import NumberedObjects
from .parameters import MISSING, Parameter, described_parameters, index_kind, pop_action


@dataclass(frozen=True)
class ControlCommand:
    """A command of the control API, with its parameters.

    Args:
        summary: One-line description.
        parameters: Parameters of the command by their names in JSON.
        method: Name of the method that executes the command.
        find_target: Function that returns the object with the method, given an endpoint, its numbered objects and
            the arguments.
        returns: Type of the result in Python.
    """

    summary: str
    parameters: dict[str, Parameter]
    method: str
    find_target: Callable[[Any, NumberedObjects, dict[str, Any]], object]
    returns: Any

    def run(self, endpoint: Any, numbered: NumberedObjects, values: dict[str, Any]) -> Any:
        """Execute the command with the values of all parameters. The result may be an awaitable."""
        spread: list[Any] = []
        arguments = {}
        for key, parameter in self.parameters.items():
            value = values[key]
            if parameter.kind.numbered is not None:
                value = numbered.find(value, parameter.kind.numbered, key)
            if parameter.is_spread:
                spread = value
            else:
                arguments[parameter.name] = value
        if "action" in arguments:
            arguments["action"] = pop_action(arguments)
        receiver = self.find_target(endpoint, numbered, arguments)
        return getattr(receiver, self.method)(*spread, **arguments)


@cache
def endpoint_commands(kind: type) -> dict[str, ControlCommand]:
    """Return the commands of the endpoints of a class, by name."""
    commands = [
        *(_make_command(call, kind, lambda endpoint, _, __: endpoint) for call in CALLS if hasattr(kind, call.method)),
        *(_make_command(call, NumberedObjects, lambda _, numbered, __: numbered) for call in NUMBERED_CALLS),
    ]
    if hasattr(kind, "__getitem__"):
        member = get_type_hints(kind.__getitem__)["return"]
        commands += [
            _make_command(call, member, lambda endpoint, _, values: endpoint[values.pop("member")])
            for call in MEMBER_CALLS
        ]
    return dict(sorted(commands))


def _make_command(
    call: HttpCall, kind: type, find_target: Callable[[Any, NumberedObjects, dict[str, Any]], object]
) -> tuple[str, ControlCommand]:
    method = getattr(kind, call.method)
    parameters = dict(described_parameters(method, call.descriptions))
    if call in MEMBER_CALLS:
        parameters = {"member": Parameter(index_kind(kind), call.descriptions["member"], MISSING, "member")}
    name = call.method.replace("wait_for_", "until_")  # commands run in the loop, so they await until_...() instead
    return call.name, ControlCommand(
        _read_summary(method), parameters, name, find_target, get_type_hints(method)["return"]
    )


def _read_summary(method: Callable[..., Any]) -> str:
    """Return the first clause of a docstring, without markup and without "as :meth:`...`" at its end.

    ``python -OO`` removes docstrings. In that case, return the method's name.
    """
    doc = inspect.getdoc(method) or method.__name__.capitalize().replace("_", " ")
    text = re.split(r"[.:;](?: |$)", " ".join(doc.split()))[0]
    text = re.sub(r", as :meth:`[^`]*`$", "", text)
    return re.sub(r":meth:|[`*]", "", text) + "."

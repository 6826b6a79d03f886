"""The control of a test server by commands with JSON parameters and JSON results, for programs in other languages.

The commands themselves are in :mod:`.commands`. What Python gives out as an object, a fault, a snapshot or a recording,
has a number here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from zoolet.server.testing.control.values import UsageError, json_of
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.server import Server

MISSING: Final = object()
"""The default of a parameter that must be there."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command.

    Args:
        kind: What it is in JSON, for people.
        meaning: What it means.
        read: Converts the JSON value.
        default: The value if it is left out; ``MISSING`` if it must be there.
    """

    kind: str
    meaning: str
    read: Callable[[Any], Any]
    default: object = MISSING


@dataclass(frozen=True)
class Command:
    """A command.

    Args:
        summary: What it does.
        parameters: Its parameters by name.
        run: Called with the control and the parameters; the result may be awaitable.
        for_proxies: Whether a proxy has it, too.
    """

    summary: str
    parameters: dict[str, Parameter]
    run: Callable[..., Any]
    for_proxies: bool


class Control:
    """Executes commands on a server or a proxy that runs in this event loop.

    Args:
        endpoint: The server or proxy.
        table: All commands by name.
    """

    def __init__(self, endpoint: Endpoint, table: Mapping[str, Command]) -> None:
        self.endpoint = endpoint
        self._table = table
        self._objects: dict[int, object] = {}
        self._made = 0

    @property
    def server(self) -> Server:
        """The server."""
        return cast(Server, self.endpoint)

    @property
    def commands(self) -> dict[str, Command]:
        """The commands that can be executed here."""
        is_server = isinstance(self.endpoint, Server)
        return {name: command for name, command in self._table.items() if is_server or command.for_proxies}

    def index(self) -> dict[str, Any]:
        """Return the commands and their parameters, for ``GET /commands``."""
        return {
            name: {
                "summary": command.summary,
                "parameters": {
                    key: {
                        "type": parameter.kind,
                        "meaning": parameter.meaning,
                        "required": parameter.default is MISSING,
                        **({} if parameter.default in (MISSING, None) else {"default": parameter.default}),
                    }
                    for key, parameter in command.parameters.items()
                },
            }
            for name, command in sorted(self.commands.items())
        }

    async def execute(self, name: str, body: object) -> Any:
        """Execute a command, and return its result as JSON.

        Raises:
            UsageError: The command is unknown, or its parameters are invalid.
            ValueError: A parameter is invalid; from the server.
            LookupError: The session, fault, snapshot, recording or member does not exist.
            ZooKeeperError: The server refuses it.
            TimeoutError: What was waited for did not happen in time.
        """
        command = self.commands.get(name)
        if command is None:
            raise UsageError(f"there is no command {name!r}; GET /commands lists them")
        if not isinstance(body, dict):
            raise UsageError(f"the parameters of {name} are {body!r}; they must be a JSON object")
        if unknown := sorted(set(body) - set(command.parameters)):
            known = ", ".join(command.parameters) or "no parameters"
            raise UsageError(f"{name} has no parameter {', '.join(unknown)}; it has {known}")
        values = {}
        for key, parameter in command.parameters.items():
            if key not in body and parameter.default is MISSING:
                raise UsageError(f"{name} needs the parameter {key}: {parameter.meaning}")
            given = body.get(key, parameter.default)
            takes_null = parameter.default is None or parameter.kind.startswith("text or")
            try:
                is_default = key not in body or (given is None and takes_null)
                values[key] = given if is_default else parameter.read(given)
            except UsageError as error:
                raise UsageError(f"{name}, {key}: {error}") from None
        result = command.run(self, **values)
        return json_of(await result if inspect.isawaitable(result) else result)

    def add(self, thing: object) -> int:
        """Keep an object, and return its number."""
        self._made += 1
        self._objects[self._made] = thing
        return self._made

    def number_of(self, thing: object) -> int:
        """Return the number of an object, which it gets now if it has none."""
        for number, other in self._objects.items():
            if other is thing:
                return number
        return self.add(thing)

    def find(self, number: int, kind: type) -> Any:
        """Return the object with a number.

        Raises:
            LookupError: There is none of this kind.
        """
        thing = self._objects.get(number)
        if not isinstance(thing, kind):
            raise LookupError(f"there is no {kind.__name__.lower()} {number}")
        return thing

    def forget(self, number: int, kind: type) -> Any:
        """Remove the object with a number, and return it; as for :meth:`find`."""
        thing = self.find(number, kind)
        del self._objects[number]
        return thing

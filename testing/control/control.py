"""The control of a server through commands with JSON parameters and results, for programs in other languages.

Faults, snapshots and recordings, which are objects in Python, are numbers here.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..endpoint import Endpoint
from .commands import endpoint_commands
from .numbered import NumberedObjects
from .parameters import MISSING
from .values import MismatchError, UsageError, to_json, unknown_parameter_message


class Control:
    """The executor of commands on a server or a proxy that runs in this event loop.

    Args:
        endpoint: The server or proxy.

    Attributes:
        commands: The commands that can be executed here, by name.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.commands = endpoint_commands(type(endpoint))
        self._numbered = NumberedObjects(endpoint)
        kinds = [each.kind for command in self.commands.values() for each in command.parameters.values()]
        self._numbered_types = tuple({kind.numbered for kind in kinds if kind.numbered is not None})
        self._member_types: tuple[Any, ...] = tuple({kind.indexed for kind in kinds if kind.indexed is not None})
        self._result_hints = {
            **dict.fromkeys(self._numbered_types, " The result is its number."),
            **dict.fromkeys(self._member_types, " The result is its index."),
        }

    def index(self) -> dict[str, Any]:
        """Return a description of each command and its parameters, for ``GET /commands``."""
        return {
            name: {
                "summary": command.summary + self._result_hints.get(command.returns, ""),
                "parameters": {key: parameter.as_json() for key, parameter in command.parameters.items()},
            }
            for name, command in self.commands.items()
        }

    async def execute(self, name: str, body: object) -> Any:
        """Execute a command, and return its result as JSON.

        Raises:
            UsageError: The command is unknown, or its parameters are invalid.
            ValueError: The server rejects the value of a parameter.
            LookupError: The session, fault, snapshot, recording or member does not exist.
            ZooKeeperError: The server refuses the command.
            TimeoutError: The condition that the command waits for did not become true in time.
        """
        command = self.commands.get(name)
        if command is None:
            raise UsageError(f"unknown command {name!r}; GET /commands lists the commands")
        if not isinstance(body, dict):
            raise UsageError(f"the parameters of {name} must be a JSON object, not {body!r}")
        if unknown := sorted(set(body) - set(command.parameters)):
            raise UsageError(unknown_parameter_message(name, unknown, command.parameters))
        values = {}
        for key, parameter in command.parameters.items():
            if key not in body and parameter.default is MISSING:
                raise UsageError(f"{name} needs the parameter {key}: {parameter.meaning}")
            try:
                values[key] = parameter.read(body[key]) if key in body else parameter.default
            except MismatchError as error:
                owner = values["action"] if parameter.is_of_action else name
                raise UsageError(f"{owner}: {key} {error}") from None
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None
        result = command.run(self.endpoint, self._numbered, values)
        return self._result_json(await result if inspect.isawaitable(result) else result)

    def _result_json(self, result: Any) -> Any:
        if isinstance(result, self._numbered_types):
            return self._numbered.number_of(result)
        return to_json(result.index if isinstance(result, self._member_types) else result)

"""``zoolet fault``: a client of the control API of a server or proxy that runs with ``--admin``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from typing import Any, Final

from ..server.config import ConfigError
from .addresses import cannot_connect_message
from .event_loop import run_loop
from .usage import add_example
from .users_command import Signals, run_command

COMMAND_TIMEOUT_S: Final = 630.0
"""Maximum number of seconds for a command. Some commands take up to ten minutes."""
LISTING_TIMEOUT_S: Final = 10.0
"""Maximum number of seconds for the list of commands, which the server returns immediately."""
FAULTS: Final = {
    "delay": "delay the request (seconds=)",
    "error": "answer with an error (code=) instead of executing",
    "drop_request": "discard the request, and close the connection",
    "lose_reply": "execute the request, and close the connection without a reply",
    "close_after": "execute the request, reply, and close the connection",
    "hold": "hold the request until 'zoolet fault release', for at most 30 s",
    "withhold_event": "hold the event until 'zoolet fault release'",
    "corrupt_reply": "execute the request, and change four bytes of the reply",
    "cut_reply": "execute the request, and send only the start of the reply",
    "slow_reply": "send the reply slowly (bytes_per_second=)",
}
"""The faults and their effects, for the help. Reading them from the actions would slow down every command."""
_JSON_TYPES: Final = {dict: "object", list: "array", int: "number", float: "number", bool: "boolean"}
"""Names of JSON types in ``GET /commands``. Strings are missing, because they are not quoted on the command line."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "fault",
        help="inject faults into a server or proxy that runs with --admin",
        description="Set a fault in a server or proxy that runs with --admin, and print the number of the fault. NAME "
        "can also be a command of the control API, such as end_fault or expire. Without NAME, list all faults and "
        "commands. With a command after --, the fault ends when the command exits, and the exit code is the command's.",
    )
    add_example(parser, "zoolet fault lose_reply op=create times=1")
    listed = [f"{name}: {effect};" for name, effect in FAULTS.items()]
    text = "\n".join(["fault or command of the control API, such as expire. Faults:", *listed])[:-1]
    parser.add_argument("name", nargs="?", metavar="NAME", help=text)
    parser.add_argument(
        "parameters",
        nargs="*",
        metavar="PARAMETER=VALUE",
        help="condition or setting, such as op=create (operation), path=/a/* or times=1 (apply once); zoolet fault "
        "without arguments lists all",
    )
    parser.add_argument("--admin", metavar="URL", help="URL of the control API (default: ZOOLET_ADMIN)")
    parser.usage = "zoolet fault [--admin URL] [NAME [PARAMETER=VALUE ...]] [-- CMD ARG...]"
    parser.set_defaults(command=_run_fault)


def _run_fault(options: argparse.Namespace, definitions: list[str]) -> int:
    url = options.admin or os.environ.get("ZOOLET_ADMIN")
    if not url:
        raise ConfigError(
            "no server given; pass --admin URL or set ZOOLET_ADMIN ('zoolet run --admin' prints the URL and sets the "
            "variable)"
        )
    source = "--admin" if options.admin else "ZOOLET_ADMIN"
    if "@" in url:
        raise ConfigError(f"{source} must not contain a user or a password")
    if not _is_url(url):
        raise ConfigError(f"{source} must be a URL such as http://127.0.0.1:8080/TOKEN, not {url!r}")
    if options.name is None and options.words:
        raise ConfigError("no fault given; expected zoolet fault NAME [PARAMETER=VALUE ...] -- COMMAND")
    commands = _read_commands(url)
    if options.name is None:
        print(_format_commands(commands))
        return 0
    actions = commands["fault"]["parameters"]["action"]["choices"]
    if options.name not in (*commands, *actions):
        from difflib import get_close_matches  # the import takes 2 ms

        near = get_close_matches(options.name, [*commands, *actions], 1)
        hint = f"; did you mean {near[0]}?" if near else "; 'zoolet fault' lists them"
        raise ConfigError(f"unknown fault or command {options.name!r}{hint}")
    is_command = options.name in commands
    known = commands[options.name if is_command else "fault"]["parameters"]
    if not is_command:
        known = _fault_parameters(options.name, known)
    given: dict[str, Any] = {}
    for word in options.parameters:
        name, value = _parse_parameter(options.name, word, known)
        if name in given:
            raise ConfigError(f"{name}= is given twice")
        given[name] = value
    if not is_command:
        return _set_fault(url, {"action": options.name, **given}, options.words)
    if options.words:
        raise ConfigError(f"{options.name!r} is not a fault; only a fault can be limited to a command (after --)")
    result = _request(f"{url}/commands/{options.name}", given)["result"]
    if result is not None:
        print(result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False))
    return 0


def _set_fault(url: str, parameters: dict[str, Any], words: list[str]) -> int:
    """Set a fault. Without a command, print its id. Otherwise run the command, end the fault, and return the exit code.

    The fault also ends if a signal kills the command.
    """
    number = _request(f"{url}/commands/fault", parameters)["result"]
    if not words:
        print(number)
        return 0

    async def run() -> int:
        return await run_command(words, {}, Signals())

    try:
        code = run_loop(run())
    finally:
        hits = _request(f"{url}/commands/end_fault", {"fault": number})["result"]["hits"]
    print(f"zoolet fault: {parameters['action']} was applied {hits} time{'' if hits == 1 else 's'}", file=sys.stderr)
    return code


def _fault_parameters(name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters in *known* that apply to a fault, without those of other faults."""
    import inspect

    from ..testing.frames.actions import ACTIONS

    if name not in ACTIONS:  # a newer server may have more faults
        return known
    parameters = {action: inspect.signature(make).parameters.keys() for action, make in ACTIONS.items()}
    left_out = {"action"}.union(*parameters.values()) - parameters[name]
    return {key: parameter for key, parameter in known.items() if key not in left_out}


def _parse_parameter(command: str, word: str, known: dict[str, Any]) -> tuple[str, Any]:
    """Return a parameter and its value, converted to the type that the server expects.

    Raises:
        ConfigError: *word* has no value, or its name is not in *known*, the parameters of *command*.
    """
    name, equals, text = word.partition("=")
    if not known:
        raise ConfigError(f"{command} has no parameters; found {word!r}")
    if not name:
        raise ConfigError(f"expected PARAMETER=VALUE, found {word!r}")
    if name not in known:
        raise ConfigError(f"{command} has no parameter {name!r}; its parameters are {', '.join(known)}")
    if not equals:
        raise ConfigError(f"{name} needs a value: {name}=VALUE")
    try:
        value = json.loads(text)
    except ValueError:
        return name, text  # a string, or a value that the server rejects with a message
    if value is None and "nullable" in known[name]:
        return name, None
    return name, value if _JSON_TYPES.get(type(value)) in known[name]["json"] else text


def _format_commands(commands: dict[str, Any]) -> str:
    actions = commands["fault"]["parameters"]["action"]["choices"]
    others = [
        f"  {name:20} {' '.join(f'{each}=' for each in command['parameters'])}" for name, command in commands.items()
    ]
    faults = textwrap.wrap(", ".join(actions), 78, initial_indent="  ", subsequent_indent="  ")
    lines = ["faults, with the parameters of the command 'fault':", *faults, "commands:", *others]
    return "\n".join(line.rstrip() for line in lines)


def _is_url(text: str) -> bool:
    from urllib.parse import urlsplit

    try:
        url = urlsplit(text)
        host = (url.hostname or "").encode("idna")
        return (
            url.scheme in ("http", "https") and bool(host) and url.port != 0 and text.isprintable() and " " not in text
        )
    except ValueError:  # the host or the port is invalid
        return False


def _read_commands(url: str) -> dict[str, Any]:
    """Return the commands of the control API.

    Raises:
        OSError: The control API cannot be reached, or *url* is not a control API.
    """
    try:
        commands: dict[str, Any] = _request(f"{url}/commands", timeout=LISTING_TIMEOUT_S)["commands"]
        commands["fault"]["parameters"]["action"]["choices"]
    except (KeyError, TypeError):
        raise OSError(None, f"{url}/commands is not a control API: the answer has a different form") from None
    return commands


def _request(url: str, body: dict[str, Any] | None = None, timeout: float = COMMAND_TIMEOUT_S) -> Any:
    """Send a request to the control API, and return its answer: a POST if *body* is given, otherwise a GET.

    Raises:
        ConfigError: The control API rejects the request as wrong usage.
        OSError: The control API cannot be reached, *url* is not a control API, or the request failed.
    """
    import http.client
    import urllib.error
    import urllib.parse
    import urllib.request

    from ..client.aio.dial import connection_failure

    try:
        with urllib.request.urlopen(url, None if body is None else json.dumps(body).encode(), timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            reason = str(json.load(error)["error"])
        except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
            raise OSError(None, f"{url} is not a control API: {error.code} {error.reason}") from None
        kind, _, message = reason.partition(": ")
        if not kind.endswith("Error"):
            raise OSError(None, f"cannot use {url}: {error.code} {error.reason}: {reason[:200]}") from None
        if kind not in ("UsageError", "ValueError"):
            raise OSError(None, message or reason) from None
        raise ConfigError(message) from None
    except OSError as error:
        cause = getattr(error, "reason", error)  # a URLError contains its cause
        reason = f"no answer within {timeout:g} s" if isinstance(cause, TimeoutError) else connection_failure(cause)
        raise OSError(None, cannot_connect_message(f"{urllib.parse.urlsplit(url).netloc}: {reason}")) from None
    except (ValueError, http.client.HTTPException):
        raise OSError(None, f"{url} is not a control API: the answer is not JSON") from None

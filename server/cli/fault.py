"""``zoolet fault``: faults, and every other command of the control API, from the command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Final

from zoolet.event_loop import run_loop
from zoolet.server.cli.command import Signals, run_command
from zoolet.server.config import ConfigError

TIMEOUT: Final = 630.0
"""Seconds for an answer: some commands wait for up to ten minutes."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "fault",
        help="set faults in a test server or proxy that runs with --admin",
        description="Set a fault in a server or proxy that runs with --admin, and print its number; or execute another "
        "command of the control API, such as end_fault or expire. Without a name, list them. With a command behind -- "
        "the fault lasts as long as that runs, and the exit code is the command's.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="lose_reply, delay...; or expire, heal...")
    parser.add_argument("parameters", nargs="*", metavar="PARAMETER=VALUE", help="such as op=create times=1")
    parser.add_argument("--admin", metavar="URL", help="the address of the control API (default: ZOOLET_ADMIN)")
    parser.usage = "zoolet fault [--admin URL] [NAME [PARAMETER=VALUE ...]] [-- CMD ARG...]"
    parser.set_defaults(command=_fault)


def _fault(options: argparse.Namespace, definitions: list[str]) -> int:
    if definitions:
        raise ConfigError(f"fault has no settings: {' '.join(definitions)}")
    url = options.admin or os.environ.get("ZOOLET_ADMIN")
    if not url:
        raise ConfigError("fault: which server? --admin URL, or ZOOLET_ADMIN; zoolet run --admin prints and sets it")
    if options.name is None and options.words:
        raise ConfigError("fault: which fault is to last while the command runs?")
    commands = _ask(f"{url}/commands")["commands"]
    if options.name is None:
        print(_listing(commands))
        return 0
    actions = commands["fault"]["parameters"]["action"]["meaning"].removeprefix("one of ").split(", ")
    if options.name not in (*commands, *actions):
        from difflib import get_close_matches  # it takes 2 ms to import

        near = get_close_matches(options.name, [*commands, *actions], 1)
        hint = f"; did you mean {near[0]}?" if near else "; zoolet fault alone lists them"
        raise ConfigError(f"fault: there is no fault or command {options.name!r}{hint}")
    is_command = options.name in commands
    known = commands[options.name if is_command else "fault"]["parameters"]
    given = dict(_parameter(word, known) for word in options.parameters)
    if not is_command:
        return _begin(url, {"action": options.name, **given}, options.words)
    if options.words:
        raise ConfigError(f"fault: {options.name} is no fault; only faults end with the command behind --")
    result = _ask(f"{url}/commands/{options.name}", given)["result"]
    if result is not None:
        print(result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False))
    return 0


def _begin(url: str, parameters: dict[str, Any], words: list[str]) -> int:
    """Begin a fault; with a command, run it, and end the fault, also if a signal ends the command."""
    number = _ask(f"{url}/commands/fault", parameters)["result"]
    if not words:
        print(number)
        return 0

    async def run() -> int:
        return await run_command(words, {}, Signals())

    try:
        code = run_loop(run())
    finally:
        hits = _ask(f"{url}/commands/end_fault", {"fault": number})["result"]["hits"]
    print(f"zoolet: {parameters['action']} was applied {hits} time{'' if hits == 1 else 's'}", file=sys.stderr)
    return code


def _parameter(word: str, known: dict[str, Any]) -> tuple[str, Any]:
    """Return a parameter and its value, of the type that the server expects."""
    name, equals, text = word.partition("=")
    if not equals or name not in known:
        wanted = f"PARAMETER=VALUE with one of {', '.join(known)}" if known else "known: there are no parameters"
        raise ConfigError(f"fault: {word!r} is not {wanted}")
    if known[name]["type"] in ("text", 'session id or "all"'):
        return name, text
    if known[name]["type"].startswith("text or") and not text.startswith("{"):
        return name, None if text == "null" else text
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text  # a name, or what the server refuses in words


def _listing(commands: dict[str, Any]) -> str:
    actions = commands["fault"]["parameters"]["action"]["meaning"]
    others = [
        f"  {name:20} {' '.join(f'{each}=' for each in command['parameters'])}" for name, command in commands.items()
    ]
    return f"faults, {actions}, with the parameters of fault:\n" + "\n".join(line.rstrip() for line in others)


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """Return the answer of the control API.

    Raises:
        ConfigError: It refuses the request.
        OSError: It cannot be reached.
    """
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, None if body is None else json.dumps(body).encode(), TIMEOUT) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            reason = json.load(error)["error"]
        except (ValueError, KeyError, TypeError):
            reason = f"{url} answers {error.code} {error.reason}"
        kind, _, message = reason.partition(": ")
        if kind not in ("UsageError", "ValueError"):
            raise OSError(None, f"fault: {message or reason}") from None
        raise ConfigError(f"fault: {message}") from None
    except (ValueError, http.client.HTTPException) as error:
        raise ConfigError(f"fault: {url} is not the address of a control API: {error}") from None
    except urllib.error.URLError as error:
        raise OSError(None, f"{url} cannot be reached: {error.reason}") from None

"""Completion scripts for shells and manual pages, generated from the parsers of the commands.

Both say what ``--help`` says, because they are made of the same.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoolet.client.shell.command import Command

SHELLS: Final = ("bash", "zsh", "fish")
_CHARACTERS: Final = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq"})


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "completion",
        help="print what completes zoolet's commands in a shell",
        description="Print a script that completes zoolet's commands and options. For bash: "
        'eval "$(zoolet completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc, behind compinit; for fish: '
        "zoolet completion fish > ~/.config/fish/completions/zoolet.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")

    def run(options: argparse.Namespace, definitions: list[str]) -> int:
        print(completion(options.shell, commands), end="")
        return 0

    parser.set_defaults(command=run)


# --- the parsers ---


def summaries(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> dict[str, str]:
    """Return the commands and what is said of each in a line."""
    return {action.dest: action.help or "" for action in commands._choices_actions}  # noqa: SLF001 - has no public name


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a command."""
    yield from parser._actions  # noqa: SLF001 - has no public name


def options_of(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Return the options of a command, each with its help."""
    return [
        (name, _help(action))
        for action in actions(parser)
        for name in action.option_strings
        if action.help is not argparse.SUPPRESS
    ]


def _help(action: argparse.Action) -> str:
    text = action.help or ""
    return text.replace("%%", "%") if "%(" not in text else text % vars(action)


# --- completion ---


def completion(shell: str, commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> str:
    """Return the script for a shell."""
    names = summaries(commands)
    options = {name: options_of(commands.choices[name]) for name in names}
    options["shell"] += [(row.name, row.summary) for row in _shell_commands()]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](names, options)


def _shell_commands() -> list[Command]:
    from zoolet.client.shell.command import listed

    return listed()


def _bash(names: dict[str, str], options: dict[str, list[tuple[str, str]]]) -> str:
    cases = "\n".join(f"        {name}) words='{' '.join(word for word, _ in options[name])}' ;;" for name in names)
    return f"""_zoolet() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{" ".join(names)} --help --version'
    else
        case "${{COMP_WORDS[1]}}" in
{textwrap.indent(cases, "    ")}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -F _zoolet zoolet
"""


def _zsh(names: dict[str, str], options: dict[str, list[tuple[str, str]]]) -> str:
    def described(pairs: list[tuple[str, str]]) -> str:
        return " ".join(_quoted(f"{_colons(word)}:{_colons(text)}") for word, text in pairs)

    cases = "\n".join(f"        {name}) words=({described(options[name])}) ;;" for name in names)
    return f"""_zoolet() {{
    local -a commands
    commands=({described(list(names.items()))})
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local -a chosen
    case "${{words[2]}}" in
{cases.replace("words=(", "chosen=(")}
    esac
    _describe option chosen || _files
}}
compdef _zoolet zoolet
"""


def _fish(names: dict[str, str], options: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["complete -c zoolet -f"]
    for name, text in names.items():
        lines.append(f"complete -c zoolet -n __fish_use_subcommand -a {name} -d {_quoted_for_fish(text)}")
    for name in names:
        for word, text in options[name]:
            condition = f"'__fish_seen_subcommand_from {name}'"
            lines.append(
                f"complete -c zoolet -n {condition} -F -a {_quoted_for_fish(word)} -d {_quoted_for_fish(text)}"
            )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _colons(text: str) -> str:
    return text.replace(":", "\\:")


# --- manual pages ---


def manual(commands: argparse._SubParsersAction[argparse.ArgumentParser], version: str) -> dict[str, str]:
    """Return the manual pages by the names of their files."""
    names = summaries(commands)
    pages = {"zoolet.1": _main_page(names, version)}
    for name, summary in names.items():
        pages[f"zoolet-{name}.1"] = _page(name, summary, commands.choices[name], version)
    return pages


def _main_page(names: dict[str, str], version: str) -> str:
    lines = [
        *_head("zoolet", version, "coordination server, client and tools that speak ZooKeeper's protocol"),
        ".SH SYNOPSIS", ".B zoolet", ".I COMMAND", "\\&...",
        ".SH COMMANDS",
    ]  # fmt: skip
    for name, summary in names.items():
        lines += [".TP", f".BR zoolet\\-{name} (1)", _roff(summary)]
    lines += [".SH OPTIONS", *_item("--help", "say how a command is used"), *_item("--version", "print the version")]
    lines += [".SH EXIT STATUS", "0 fine, 1 the thing asked for failed, 2 wrong usage."]
    return "\n".join(lines) + "\n"


def _page(name: str, summary: str, parser: argparse.ArgumentParser, version: str) -> str:
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    usage = re.sub(r"^\S+ (\S+ )?" + re.escape(name), f"zoolet {name}", usage)
    lines = [*_head(f"zoolet-{name}", version, summary), ".SH SYNOPSIS", _roff(usage)]
    lines += [".SH DESCRIPTION", _roff(parser.description or summary)]
    words = [action for action in actions(parser) if not action.option_strings and action.help]
    if words:
        lines.append(".SH ARGUMENTS")
        for action in words:
            lines += _item(str(action.metavar or action.dest), _help(action))
    lines.append(".SH OPTIONS")
    for action in actions(parser):
        if action.option_strings and action.help is not argparse.SUPPRESS:
            value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
            lines += _item(f"{', '.join(action.option_strings)}{value}", _help(action))
    if name == "shell":
        lines.append(".SH COMMANDS OF THE SHELL")
        for row in _shell_commands():
            lines += _item(f"{row.name} {row.usage}".strip(), row.summary)
    lines += [".SH SEE ALSO", ".BR zoolet (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, version: str, summary: str) -> list[str]:
    return [f'.TH "{name.upper()}" "1" "" "zoolet {version}" ""', ".SH NAME", f"{_roff(name)} \\- {_roff(summary)}"]


def _item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_roff(term)}\\fR", _roff(text)]


def _roff(text: str) -> str:
    shown = " ".join(text.split()).translate(_CHARACTERS)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown

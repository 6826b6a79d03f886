"""Completion scripts for shells, and manual pages: generated from the parsers of the commands, like ``--help``."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from .fault import FAULTS
from .program import EPILOG, parser
from .usage import add_example, summaries

SHELLS: Final = ("bash", "zsh", "fish")
_Sections = dict[str, dict[str, dict[str, str]]]
FILES: Final = frozenset({"CA", "CERT", "FILE", "KEY", "ZOO_CFG"})
FOLDERS: Final = frozenset({"DIR", "TARGET"})
"""The placeholders for paths: ``FILES`` for files, ``FOLDERS`` for folders."""


class Words(NamedTuple):
    """The words that can stand at one place of a command line.

    Attributes:
        choices: The words, each with its help.
        paths: ``f`` if the word can be the path of a file, ``d`` for a folder, empty otherwise. ``compgen`` of bash has
            options with these names.
    """

    choices: tuple[tuple[str, str], ...] = ()
    paths: str = ""


class Completed(NamedTuple):
    """The completion of one command.

    Attributes:
        flags: The names of each option, its help, and its values. The values are None for an option without a value.
        arguments: The arguments, which may be in any order.
    """

    flags: list[tuple[tuple[str, ...], str, Words | None]]
    arguments: Words


_CHARACTERS: Final = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq"})


def add_command(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "completion",
        help="print a completion script for bash, zsh or fish",
        description="Print a script that completes zoolet's commands and options. For bash, add "
        'eval "$(zoolet completion bash)" to ~/.bashrc. For zsh, add eval "$(zoolet completion zsh)" to ~/.zshrc, '
        "after compinit. For fish, run zoolet completion fish > ~/.config/fish/completions/zoolet.fish.",
    )
    add_example(command, "zoolet completion bash")
    command.add_argument("shell", choices=SHELLS, help="name of the shell")

    def run(options: argparse.Namespace, definitions: list[str]) -> int:
        print(completion(options.shell, parser().commands), end="")
        return 0

    command.set_defaults(command=run)


# --- the parsers ---


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, and then its options."""
    return sorted(parser._actions, key=lambda action: bool(action.option_strings))  # noqa: SLF001 - has no public name


def value_words(action: argparse.Action) -> Words:
    """Return the words that an argument, or the value of an option, can be."""
    choices = tuple((str(choice), "") for choice in action.choices or ())
    metavar = action.metavar
    return Words(choices, "f" if metavar in FILES else "d" if metavar in FOLDERS else "")


def command_completion(command: argparse.ArgumentParser, more: tuple[tuple[str, str], ...] = ()) -> Completed:
    """Return the completion of a command.

    Args:
        command: The parser of the command.
        more: Additional arguments, each with its help.
    """
    shown = [action for action in actions(command) if action.help is not argparse.SUPPRESS and action.dest != "_"]
    arguments = [value_words(action) for action in shown if not action.option_strings]
    return Completed(
        [
            (tuple(action.option_strings), help_text(action), None if action.nargs == 0 else value_words(action))
            for action in shown
            if action.option_strings
        ],
        Words(
            tuple(choice for words in arguments for choice in words.choices) + more,
            max((words.paths for words in arguments), default=""),  # a file can be anywhere in a folder
        ),
    )


def help_text(action: argparse.Action) -> str:
    """Return the help of an argument or option, with its placeholders filled in."""
    text = action.help or ""
    return text.replace("%%", "%") if "%(" not in text else text % vars(action)


# --- completion ---


def completion(shell: str, commands: argparse._SubParsersAction[Any]) -> str:
    """Return the script for a shell."""
    from .shell.command import sorted_commands

    names = summaries(commands)
    more = {
        "shell": tuple((row.name, row.summary) for row in sorted_commands()),
        "fault": tuple(FAULTS.items()),
        "container": (("status", "check the server of this container"),),
    }
    found = {name: command_completion(commands.choices[name], more.get(name, ())) for name in names}
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](names, found)


def _values(found: dict[str, Completed]) -> Iterator[tuple[str, Words]]:
    """Yield each command with an option that has a value, as ``COMMAND OPTION``, and the values."""
    for name, command in found.items():
        for flags, _, words in command.flags:
            if words is not None:
                yield from ((f"{name} {flag}", words) for flag in flags)


def _bash(names: dict[str, str], found: dict[str, Completed]) -> str:
    def words(choices: Iterable[str], paths: str = "") -> str:
        return f"words='{' '.join(choices)}' paths='{paths}'"

    flags = "\n".join(
        f"        {name}) {words(flag for row in command.flags for flag in row[0])} ;;"
        for name, command in found.items()
    )
    arguments = "\n".join(
        f"        {name}) {words((word for word, _ in command.arguments.choices), command.arguments.paths)} ;;"
        for name, command in found.items()
    )
    values = "\n".join(
        f"        '{where}') {words((word for word, _ in value.choices), value.paths)} ;;"
        for where, value in _values(found)
    )
    return f"""_zoolet() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words='' paths='' word users=''
    local IFS=$' \\t\\n'
    if [ "$current" = = ]; then
        current=''
    elif [ "$before" = = ]; then
        before="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{" ".join(names)} help -h --help -V --version'
    else
        case "${{COMP_WORDS[1]}}" in
{textwrap.indent(arguments, "    ")}
        esac
        if [ "${{current:0:1}}" = - ] || [ -z "$words$paths" ]; then
            case "${{COMP_WORDS[1]}}" in
{textwrap.indent(flags, "        ")}
            esac
        fi
        case "${{COMP_WORDS[1]}} $before" in
{textwrap.indent(values, "    ")}
        esac
        for word in "${{COMP_WORDS[@]:2:COMP_CWORD-2}}"; do
            if [ -n "$users" ]; then
                paths=f
            elif [ "$word" = -- ]; then
                words='' paths=c users=1
            fi
        done
    fi
    IFS=$'\\n'
    COMPREPLY=($(IFS=' ' compgen -W "$words" -- "$current"))
    [ -z "$paths" ] || {{
        compopt -o filenames 2> /dev/null
        COMPREPLY+=($(compgen "-$paths" -- "$current"))
    }}
}}
complete -F _zoolet zoolet
"""


def _zsh(names: dict[str, str], found: dict[str, Completed]) -> str:
    def described(pairs: Iterable[tuple[str, str]]) -> str:
        return " ".join(_quote(f"{_colons(word)}:{_colons(text)}") for word, text in pairs)

    def words(pairs: Iterable[tuple[str, str]], paths: str = "") -> str:
        return f"chosen=({described(pairs)}) paths='{paths}'"

    flags = "\n".join(
        f"        {name}) {words((flag, text) for flags, text, _ in command.flags for flag in flags)} ;;"
        for name, command in found.items()
    )
    arguments = "\n".join(f"        {name}) {words(*command.arguments)} ;;" for name, command in found.items())
    values = "\n".join(f"        '{where}') {words(*value)} ;;" for where, value in _values(found))
    return f"""_zoolet() {{
    local -a commands chosen
    local paths
    commands=({described(names.items())})
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "${{words[2]}}" in
{arguments}
    esac
    if [[ "${{words[CURRENT]}}" == -* || -z "$chosen$paths" ]]; then
        case "${{words[2]}}" in
{textwrap.indent(flags, "    ")}
        esac
    fi
    case "${{words[2]}} ${{words[CURRENT-1]}}" in
{values}
    esac
    local end=${{words[(i)--]}}
    if (( end < CURRENT )); then  # the user's command
        shift $end words
        (( CURRENT -= end ))
        _normal
        return
    fi
    (( $#chosen )) && _describe word chosen
    case "$paths" in
        f) _files ;;
        d) _files -/ ;;
    esac
}}
compdef _zoolet zoolet
"""


def _fish(names: dict[str, str], found: dict[str, Completed]) -> str:
    lines = ["complete -c zoolet -f"]
    for name, text in names.items():
        lines.append(f"complete -c zoolet -n __fish_use_subcommand -a {name} -d {_quoted_for_fish(text)}")
    for name, command in found.items():
        start = f"complete -c zoolet -n '__fish_seen_subcommand_from {name}'"
        for flags, text, words in command.flags:
            shown = " ".join(map(_flag_for_fish, flags))
            lines.append(
                f"{start} {shown} -d {_quoted_for_fish(text)}{'' if words is None else _for_fish(words, '-x')}"
            )
        lines += [f"{start} -a {word} -d {_quoted_for_fish(text)}" for word, text in command.arguments.choices]
        if command.arguments.paths:
            lines.append(f"{start}{_for_fish(Words((), command.arguments.paths), '')}")
    return "\n".join(lines) + "\n"


def _flag_for_fish(flag: str) -> str:
    name = flag.lstrip("-")
    return f"-l {name}" if flag.startswith("--") else f"-s {name}" if len(name) == 1 else f"-o {name}"


def _for_fish(words: Words, exclusive: str) -> str:
    """Return the options of ``complete`` for the values of an option, or for arguments."""
    if words.paths == "f":
        return " -r -F" if exclusive else " -F"
    choices = "(__fish_complete_directories)" if words.paths else " ".join(word for word, _ in words.choices)
    return f" {exclusive}" + (f" -a {_quoted_for_fish(choices)}" if choices else "")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _colons(text: str) -> str:
    return text.replace(":", "\\:")


# --- manual pages ---


def manual(commands: argparse._SubParsersAction[Any], version: str, more: _Sections) -> dict[str, str]:
    """Return the manual pages by the names of their files.

    Args:
        commands: The commands.
        version: The version of zoolet.
        more: Additional sections by command and title: terms, and the text of each.
    """
    names = summaries(commands)
    pages = {"zoolet.1": _main_page(names, version)}
    for name, summary in names.items():
        pages[f"zoolet-{name}.1"] = _page(name, summary, commands.choices[name], version, more.get(name, {}))
    return pages


def _main_page(names: dict[str, str], version: str) -> str:
    lines = [
        *_head("zoolet", version, "a ZooKeeper-compatible server, and tools for any ZooKeeper server"),
        ".SH SYNOPSIS", ".B zoolet", ".I COMMAND", "\\&...",
        ".SH COMMANDS",
    ]  # fmt: skip
    for name, summary in names.items():
        lines += [".TP", f".BR zoolet\\-{name} (1)", _roff(summary)]
    lines += [".SH OPTIONS", *_item("-h, --help", "show this list"), *_item("-V, --version", "show the version")]
    lines += [".SH EXIT STATUS", _roff(EPILOG.partition("Exit codes: ")[2])]
    return "\n".join(lines) + "\n"


def _page(
    name: str, summary: str, parser: argparse.ArgumentParser, version: str, more: dict[str, dict[str, str]]
) -> str:
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    usage = re.sub(r"^\S+ (\S+ )?" + re.escape(name), f"zoolet {name}", usage)
    lines = [*_head(f"zoolet-{name}", version, summary), ".SH SYNOPSIS", _roff(usage)]
    lines += [".SH DESCRIPTION", _roff(parser.description or summary)]
    words = [action for action in actions(parser) if not action.option_strings and action.help]
    if words:
        lines.append(".SH ARGUMENTS")
        for action in words:
            lines += _item(str(action.metavar or action.dest), help_text(action))
    lines.append(".SH OPTIONS")
    for action in actions(parser):
        if action.option_strings and action.help is not argparse.SUPPRESS:
            choices = "|".join(map(str, action.choices or ())) or action.dest.upper()
            value = "" if action.nargs == 0 else f" {action.metavar or choices}"
            lines += _item(f"{', '.join(action.option_strings)}{value}", help_text(action))
    if name == "shell":
        lines.append(".SH COMMANDS OF THE SHELL")
        from .shell.command import sorted_commands

        for row in sorted_commands():
            lines += _item(f"{row.name} {row.usage}".strip(), row.summary)
    for title, items in more.items():
        lines.append(f".SH {title}")
        for term, text in items.items():
            lines += _item(term, text)
    if parser.epilog and "EXAMPLES" not in more:
        lines += [".SH EXAMPLE", f"\\fB{_roff(parser.epilog.removeprefix('Example: '))}\\fR"]
    lines += [".SH SEE ALSO", ".BR zoolet (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, version: str, summary: str) -> list[str]:
    return [f'.TH "{name.upper()}" "1" "" "zoolet {version}" ""', ".SH NAME", f"{_roff(name)} \\- {_roff(summary)}"]


def _item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_roff(term)}\\fR", _roff(text)]


def _roff(text: str) -> str:
    shown = " ".join(text.split()).translate(_CHARACTERS)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown

"""Completion scripts for shells, and manual pages: generated from the parsers of the commands, like ``--help``."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from .fault import FAULTS
from .program import EPILOG, parser
from .usage import add_example, command_summaries

SHELLS: Final = ("bash", "zsh", "fish")
_ManualSections = dict[str, dict[str, dict[str, str]]]
FILE_PLACEHOLDERS: Final = frozenset({"CA", "CERT", "FILE", "KEY", "ZOO_CFG"})
"""Placeholders in the help of options that stand for the path of a file."""
FOLDER_PLACEHOLDERS: Final = frozenset({"DIR", "TARGET"})
"""Placeholders that stand for the path of a folder."""


class WordChoices(NamedTuple):
    """The possible words at one place of a command line.

    Attributes:
        choices: The words, each with its help.
        paths: ``f`` if the word can be the path of a file, ``d`` for a folder, otherwise empty. These are also the
            options of ``compgen`` in bash.
    """

    choices: tuple[tuple[str, str], ...] = ()
    paths: str = ""


class CommandCompletion(NamedTuple):
    """The words and options that complete one command.

    Attributes:
        flags: Names, help and possible values of each option. The values are None if the option takes no value.
        arguments: The arguments, which may be in any order.
    """

    flags: list[tuple[tuple[str, ...], str, WordChoices | None]]
    arguments: WordChoices


_ROFF_ESCAPES: Final = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq"})


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


# --- words from the parsers ---


def sorted_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, followed by its options."""
    return sorted(parser._actions, key=lambda action: bool(action.option_strings))  # noqa: SLF001 - has no public name


def value_words(action: argparse.Action) -> WordChoices:
    """Return the possible words for an argument or for the value of an option."""
    choices = tuple((str(choice), "") for choice in action.choices or ())
    metavar = action.metavar
    return WordChoices(choices, "f" if metavar in FILE_PLACEHOLDERS else "d" if metavar in FOLDER_PLACEHOLDERS else "")


def command_completion(command: argparse.ArgumentParser, more: tuple[tuple[str, str], ...] = ()) -> CommandCompletion:
    """Return the completion of a command.

    Args:
        command: The parser of the command.
        more: Additional arguments, each with its help.
    """
    shown = [
        action for action in sorted_actions(command) if action.help is not argparse.SUPPRESS and action.dest != "_"
    ]
    arguments = [value_words(action) for action in shown if not action.option_strings]
    return CommandCompletion(
        [
            (tuple(action.option_strings), help_text(action), None if action.nargs == 0 else value_words(action))
            for action in shown
            if action.option_strings
        ],
        WordChoices(
            tuple(choice for words in arguments for choice in words.choices) + more,
            max((words.paths for words in arguments), default=""),  # "f" wins, because its completion includes folders
        ),
    )


def help_text(action: argparse.Action) -> str:
    """Return the help of an argument or option, with its placeholders filled in."""
    text = action.help or ""
    return text.replace("%%", "%") if "%(" not in text else text % vars(action)


# --- completion scripts ---


def completion(shell: str, commands: argparse._SubParsersAction[Any]) -> str:
    """Return the completion script for a shell."""
    from .shell.command import sorted_commands

    names = command_summaries(commands)
    more = {
        "shell": tuple((row.name, row.summary) for row in sorted_commands()),
        "fault": tuple(FAULTS.items()),
        "container": (("status", "check the server of this container"),),
    }
    found = {name: command_completion(commands.choices[name], more.get(name, ())) for name in names}
    return {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}[shell](names, found)


def _option_values(found: dict[str, CommandCompletion]) -> Iterator[tuple[str, WordChoices]]:
    """Yield ``COMMAND OPTION`` and the possible values, for each option that takes a value."""
    for name, command in found.items():
        for flags, _, words in command.flags:
            if words is not None:
                yield from ((f"{name} {flag}", words) for flag in flags)


def _bash_script(names: dict[str, str], found: dict[str, CommandCompletion]) -> str:
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
        for where, value in _option_values(found)
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


def _zsh_script(names: dict[str, str], found: dict[str, CommandCompletion]) -> str:
    def described(pairs: Iterable[tuple[str, str]]) -> str:
        return " ".join(_quote(f"{_escape_colons(word)}:{_escape_colons(text)}") for word, text in pairs)

    def words(pairs: Iterable[tuple[str, str]], paths: str = "") -> str:
        return f"chosen=({described(pairs)}) paths='{paths}'"

    flags = "\n".join(
        f"        {name}) {words((flag, text) for flags, text, _ in command.flags for flag in flags)} ;;"
        for name, command in found.items()
    )
    arguments = "\n".join(f"        {name}) {words(*command.arguments)} ;;" for name, command in found.items())
    values = "\n".join(f"        '{where}') {words(*value)} ;;" for where, value in _option_values(found))
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


def _fish_script(names: dict[str, str], found: dict[str, CommandCompletion]) -> str:
    lines = ["complete -c zoolet -f"]
    for name, text in names.items():
        lines.append(f"complete -c zoolet -n __fish_use_subcommand -a {name} -d {_quote_for_fish(text)}")
    for name, command in found.items():
        start = f"complete -c zoolet -n '__fish_seen_subcommand_from {name}'"
        for flags, text, words in command.flags:
            shown = " ".join(map(_flag_for_fish, flags))
            lines.append(
                f"{start} {shown} -d {_quote_for_fish(text)}{'' if words is None else _values_for_fish(words, '-x')}"
            )
        lines += [f"{start} -a {word} -d {_quote_for_fish(text)}" for word, text in command.arguments.choices]
        if command.arguments.paths:
            lines.append(f"{start}{_values_for_fish(WordChoices((), command.arguments.paths), '')}")
    return "\n".join(lines) + "\n"


def _flag_for_fish(flag: str) -> str:
    name = flag.lstrip("-")
    return f"-l {name}" if flag.startswith("--") else f"-s {name}" if len(name) == 1 else f"-o {name}"


def _values_for_fish(words: WordChoices, exclusive: str) -> str:
    """Return the options of fish's ``complete`` that describe words. *exclusive* is ``-x`` for values of an option."""
    if words.paths == "f":
        return " -r -F" if exclusive else " -F"
    choices = "(__fish_complete_directories)" if words.paths else " ".join(word for word, _ in words.choices)
    return f" {exclusive}" + (f" -a {_quote_for_fish(choices)}" if choices else "")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quote_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escape_colons(text: str) -> str:
    return text.replace(":", "\\:")


# --- manual pages ---


def manual(commands: argparse._SubParsersAction[Any], version: str, more: _ManualSections) -> dict[str, str]:
    """Return the manual pages, by file name.

    Args:
        commands: The commands.
        version: The version of zoolet.
        more: Additional sections of a command: texts by command, title and term.
    """
    names = command_summaries(commands)
    pages = {"zoolet.1": _main_page(names, version)}
    for name, summary in names.items():
        pages[f"zoolet-{name}.1"] = _command_page(name, summary, commands.choices[name], version, more.get(name, {}))
    return pages


def _main_page(names: dict[str, str], version: str) -> str:
    lines = [
        *_page_header("zoolet", version, "a ZooKeeper-compatible server, and tools for any ZooKeeper server"),
        ".SH SYNOPSIS", ".B zoolet", ".I COMMAND", "\\&...",
        ".SH COMMANDS",
    ]  # fmt: skip
    for name, summary in names.items():
        lines += [".TP", f".BR zoolet\\-{name} (1)", _escape_roff(summary)]
    lines += [
        ".SH OPTIONS",
        *_page_item("-h, --help", "show this list"),
        *_page_item("-V, --version", "show the version"),
    ]
    lines += [".SH EXIT STATUS", _escape_roff(EPILOG.partition("Exit codes: ")[2])]
    return "\n".join(lines) + "\n"


def _command_page(
    name: str, summary: str, parser: argparse.ArgumentParser, version: str, more: dict[str, dict[str, str]]
) -> str:
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    usage = re.sub(r"^\S+ (\S+ )?" + re.escape(name), f"zoolet {name}", usage)
    lines = [*_page_header(f"zoolet-{name}", version, summary), ".SH SYNOPSIS", _escape_roff(usage)]
    lines += [".SH DESCRIPTION", _escape_roff(parser.description or summary)]
    words = [action for action in sorted_actions(parser) if not action.option_strings and action.help]
    if words:
        lines.append(".SH ARGUMENTS")
        for action in words:
            lines += _page_item(str(action.metavar or action.dest), help_text(action))
    lines.append(".SH OPTIONS")
    for action in sorted_actions(parser):
        if action.option_strings and action.help is not argparse.SUPPRESS:
            choices = "|".join(map(str, action.choices or ())) or action.dest.upper()
            value = "" if action.nargs == 0 else f" {action.metavar or choices}"
            lines += _page_item(f"{', '.join(action.option_strings)}{value}", help_text(action))
    if name == "shell":
        lines.append(".SH COMMANDS OF THE SHELL")
        from .shell.command import sorted_commands

        for row in sorted_commands():
            lines += _page_item(f"{row.name} {row.usage}".strip(), row.summary)
    for title, items in more.items():
        lines.append(f".SH {title}")
        for term, text in items.items():
            lines += _page_item(term, text)
    if parser.epilog and "EXAMPLES" not in more:
        lines += [".SH EXAMPLE", f"\\fB{_escape_roff(parser.epilog.removeprefix('Example: '))}\\fR"]
    lines += [".SH SEE ALSO", ".BR zoolet (1)"]
    return "\n".join(lines) + "\n"


def _page_header(name: str, version: str, summary: str) -> list[str]:
    return [
        f'.TH "{name.upper()}" "1" "" "zoolet {version}" ""',
        ".SH NAME",
        f"{_escape_roff(name)} \\- {_escape_roff(summary)}",
    ]


def _page_item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_escape_roff(term)}\\fR", _escape_roff(text)]


def _escape_roff(text: str) -> str:
    shown = " ".join(text.split()).translate(_ROFF_ESCAPES)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown

"""Completion scripts for shells, and manual pages: generated from the parsers of the commands, like ``--help``."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .program import parser
from .usage import add_example, summaries

if TYPE_CHECKING:
    from .shell.command import ShellCommand

SHELLS: Final = ("bash", "zsh", "fish")
_Options = dict[str, list[tuple[str, str]]]
"""The options and words of each command, each with its help."""
_Sections = dict[str, dict[str, dict[str, str]]]
_Values = dict[str, dict[str, tuple[str, ...]]]
"""The values of each option, by command."""
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


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments and options of a command."""
    yield from parser._actions  # noqa: SLF001 - has no public name


def options_of(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Return the options of a command, each with its help."""
    return [
        (name, help_of(action))
        for action in actions(parser)
        for name in action.option_strings
        if action.help is not argparse.SUPPRESS
    ]


def values_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, ...]]:
    """Return the choices of each option. The empty string stands for the arguments."""
    values: dict[str, tuple[str, ...]] = {"": ()}
    for action in actions(parser):
        choices = tuple(map(str, action.choices or ()))
        if not action.option_strings:
            values[""] += choices
        elif action.nargs != 0:
            values |= dict.fromkeys(action.option_strings, choices)
    return values


def help_of(action: argparse.Action) -> str:
    """Return the help of an argument or option, with its placeholders filled in."""
    text = action.help or ""
    return text.replace("%%", "%") if "%(" not in text else text % vars(action)


# --- completion ---


def completion(shell: str, commands: argparse._SubParsersAction[Any]) -> str:
    """Return the script for a shell."""
    names = summaries(commands)
    options = {name: options_of(commands.choices[name]) for name in names}
    values = {name: values_of(commands.choices[name]) for name in names}
    for name in names:
        options[name] += [(value, "") for value in values[name].pop("", ())]
    options["shell"] += [(row.name, row.summary) for row in _shell_commands()]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](names, options, values)


def _shell_commands() -> list[ShellCommand]:
    from .shell.command import listed

    return listed()


def _bash(names: dict[str, str], options: _Options, values: _Values) -> str:
    cases = "\n".join(f"        {name}) words='{' '.join(word for word, _ in options[name])}' ;;" for name in names)
    return f"""_zoolet() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{" ".join(names)} --help --version'
    else
        case "${{COMP_WORDS[1]}}" in
{textwrap.indent(cases, "    ")}
        esac
        case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{_value_cases(values, "words='", "'", " ")}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -F _zoolet zoolet
"""


def _zsh(names: dict[str, str], options: _Options, values: _Values) -> str:
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
    case "${{words[2]}} ${{words[CURRENT-1]}}" in
{_value_cases(values, "chosen=(", ")", " ")}
    esac
    _describe option chosen || _files
}}
compdef _zoolet zoolet
"""


def _value_cases(values: _Values, before: str, after: str, between: str) -> str:
    """Return the cases of options with a value. An option without choices gets no words, so files are completed."""
    return "\n".join(
        f"        '{name} {option}') {before}{between.join(choices)}{after} ;;"
        for name, options in values.items()
        for option, choices in options.items()
    )


def _fish(names: dict[str, str], options: _Options, values: _Values) -> str:
    lines = ["complete -c zoolet -f"]
    for name, text in names.items():
        lines.append(f"complete -c zoolet -n __fish_use_subcommand -a {name} -d {_quoted_for_fish(text)}")
    for name in names:
        condition = f"'__fish_seen_subcommand_from {name}'"
        for word, text in options[name]:
            lines.append(
                f"complete -c zoolet -n {condition} -F -a {_quoted_for_fish(word)} -d {_quoted_for_fish(text)}"
            )
        for option, choices in values[name].items():
            if choices and option.startswith("--"):
                lines.append(
                    f"complete -c zoolet -n {condition} -x -l {option[2:]} -a {_quoted_for_fish(' '.join(choices))}"
                )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
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
    lines += [".SH OPTIONS", *_item("--help", "show the usage of a command"), *_item("--version", "show the version")]
    lines += [".SH EXIT STATUS", "0 success, 1 failure, 2 wrong usage or unreadable file, 130 interrupted."]
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
            lines += _item(str(action.metavar or action.dest), help_of(action))
    lines.append(".SH OPTIONS")
    for action in actions(parser):
        if action.option_strings and action.help is not argparse.SUPPRESS:
            value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
            lines += _item(f"{', '.join(action.option_strings)}{value}", help_of(action))
    if name == "shell":
        lines.append(".SH COMMANDS OF THE SHELL")
        for row in _shell_commands():
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

"""The generator of the manual pages for man(1), which reads the parsers of the commands (``make docs``)."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoolet import __version__
from zoolet.cli import pages, program

SERVE_SECTIONS = {
    "PROPERTIES": {
        "-Dname=value": "Set a ZooKeeper property, with or without the prefix zookeeper. The property overrides the "
        "file, and options override the property. The keys are listed in docs/configuration.md.",
    },
    "SIGNALS": {
        "SIGTERM, SIGINT": "Send the remaining output, close the log, and exit. A second signal disconnects the "
        "clients without waiting for them.",
        "SIGHUP": "Reload the TLS certificates. Open connections stay open.",
        "SIGUSR1": "Start read-only mode.",
        "SIGUSR2": "End read-only mode.",
    },
    "EXIT STATUS": {
        "0": "SIGTERM stopped the daemon, and all transactions are logged.",
        "1": "The daemon could not listen on an address, read or lock the data directory, or log all transactions.",
        "2": "The command line, the configuration or a certificate is invalid.",
        "130": "SIGINT stopped the daemon, and all transactions are logged.",
    },
    "EXAMPLES": {
        "zoolet serve --data-dir /var/lib/zoolet --admin-port 8080": "Keep the data, and serve /metrics.",
        "zoolet serve /etc/zoolet/zoo.cfg -DtickTime=1000": "Use a configuration file, and override its tickTime.",
        "zoolet serve -Dzookeeper.4lw.commands.whitelist=srvr,mntr": "Answer only these four-letter commands.",
    },
}
"""Sections of zoolet-serve(1) that ``--help`` does not contain."""
USER_COMMAND_SECTIONS = {
    "EXIT STATUS": {
        "0": "Without a command: SIGTERM stopped the server.",
        "1": "An address could not be listened on.",
        "2": "The command line is invalid, or a file cannot be read or written.",
        "126": "The command cannot be executed.",
        "127": "The command was not found.",
        "130": "Without a command: SIGINT stopped the server.",
        "other": "The exit code of the command. It is 128 plus the number of the signal that killed the command.",
    },
}
"""Sections of the pages of commands that run the user's command."""
MANUAL_FOLDER = Path(__file__).parents[1] / "man"


def manual() -> dict[str, str]:
    """Return the manual pages by file name."""
    parser = program.parser()
    (commands,) = (action for action in pages.sorted_actions(parser) if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    return pages.manual(
        commands, __version__, {"serve": SERVE_SECTIONS, "run": USER_COMMAND_SECTIONS, "proxy": USER_COMMAND_SECTIONS}
    )


def main() -> None:
    """Write the manual pages."""
    MANUAL_FOLDER.mkdir(exist_ok=True)
    for name, text in manual().items():
        (MANUAL_FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write the manual pages: what ``--help`` says, for man(1). ``make docs`` runs this."""

from __future__ import annotations

import argparse
from pathlib import Path

from zoolet import __version__
from zoolet.client import cli as client_cli
from zoolet.client.cli import pages
from zoolet.server import cli as server_cli

FOLDER = Path(__file__).parents[1] / "man"


def manual() -> dict[str, str]:
    """Return the manual pages by the names of their files."""
    parser = server_cli.parser(client_cli.add_commands)
    (commands,) = (action for action in pages.actions(parser) if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    return pages.manual(commands, __version__)


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in manual().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

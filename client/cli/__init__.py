"""The commands that work on any ZooKeeper server, as a client of it."""

from __future__ import annotations

import argparse

__all__ = ["add_commands"]


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to the parser."""
    from zoolet.client.cli import (
        locks,
        pages,
        shell,
        status,
        top,
        transfer,
    )  # not for the shell, which comes here first

    transfer.add_commands(commands)
    status.add_command(commands)
    shell.add_command(commands)
    locks.add_command(commands)
    top.add_command(commands)
    pages.add_command(commands)

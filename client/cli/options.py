"""Options that several commands have."""

from __future__ import annotations

import argparse


def seconds(text: str) -> float:
    """Return a time that an option sets.

    Raises:
        ValueError: It is not a number above 0.
    """
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def add_timeout(parser: argparse.ArgumentParser, default: float, help: str) -> None:
    """Add ``--timeout``."""
    parser.add_argument(
        "--timeout", type=seconds, default=default, metavar="SECONDS", help=f"{help} (default {default:g})"
    )

"""Errors of files."""

from __future__ import annotations


class StorageError(ValueError):
    """A file or directory is not what it should be.

    Args:
        where: The file or directory.
        reason: What is wrong with it, and at which byte.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
        self.reason = reason

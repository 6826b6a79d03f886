"""Errors in the files of a data directory."""

from __future__ import annotations


class StorageError(ValueError):
    """A file or directory is damaged or otherwise unusable.

    Args:
        where: The file or directory; empty if *reason* names it.
        reason: Description of the problem, with the byte position if it is known.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
        self.reason = reason


class NoDirectoryError(StorageError):
    """The path of a data directory does not exist, or is a file.

    Args:
        path: The path.
        problem: The rest of a sentence that starts with the path, such as ``does not exist``.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__("", f"{path} {problem}")

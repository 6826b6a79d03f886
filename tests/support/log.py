"""The warnings of an engine, recorded for a test."""

from __future__ import annotations


class Log(list[str]):
    """A list of log lines that an engine can call as its log."""

    def __call__(self, message: str, *arguments: object) -> None:
        """Append a line."""
        self.append(message % arguments)

    def with_word(self, word: str) -> list[str]:
        """Return the lines that contain a text."""
        return [line for line in self if word in line]

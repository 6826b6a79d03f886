"""The warnings of an engine, recorded for a test."""

from __future__ import annotations


class Log(list[str]):
    """A log for an engine, as a list of lines."""

    def __call__(self, message: str, *arguments: object) -> None:
        """Write a line."""
        self.append(message % arguments)

    def with_word(self, word: str) -> list[str]:
        """Return the lines that contain a text."""
        return [line for line in self if word in line]

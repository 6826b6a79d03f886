"""What an engine tells the operator, kept for the test to read."""

from __future__ import annotations


class Log(list[str]):
    """The operator's log, to be handed to an engine: a list of its lines."""

    def __call__(self, message: str, *arguments: object) -> None:
        """Write a line."""
        self.append(message % arguments)

    def with_word(self, word: str) -> list[str]:
        """Return the lines in which something stands."""
        return [line for line in self if word in line]

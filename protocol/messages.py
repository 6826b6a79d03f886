"""Parts of messages: reasons of failed system calls, and texts from outside on one line."""

from __future__ import annotations


def lower_first(text: str) -> str:
    """Return the text of an error with its first letter in lower case, unless the first word is an abbreviation."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def file_error_reason(error: OSError) -> str:
    """Return the reason in an error about a file, without its name: ``no such file or directory``."""
    return lower_first(error.strerror or str(error))


def one_line(text: str) -> str:
    """Escape line breaks and other control characters in a text, to keep a message on one line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)

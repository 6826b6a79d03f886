"""Helpers for messages to users: the reason of a failed system call, and untrusted text on one line."""

from __future__ import annotations


def lower_first(text: str) -> str:
    """Return a message with its first letter in lower case, unless the first word seems to be an abbreviation."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def file_error_reason(error: OSError) -> str:
    """Return the reason of an OSError without the name of the file, such as ``no such file or directory``."""
    return lower_first(error.strerror or str(error))


def one_line(text: str) -> str:
    """Return a text with line breaks and other unprintable characters escaped, to keep a message on one line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)

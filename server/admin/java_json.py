"""JSON in Java's format, because some tools compare it as text.

Source: JsonOutputter (which uses Jackson's default pretty printer).
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as _quoted


def pretty_json(value: object, indent: str = "") -> str:
    """Return a value as JSON, with two more spaces for each nested object, and lists on one line."""
    kind = type(value)
    if kind is str:
        return _quoted(value)  # type: ignore[arg-type] # json.dumps of a str takes five times as long
    if kind is int:
        return str(value)
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = indent + "  "
        lines = [f"{inner}{_quoted(name)} : {pretty_json(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return "[ " + ", ".join([pretty_json(each, indent) for each in value]) + " ]" if value else "[ ]"
    return json.dumps(value)

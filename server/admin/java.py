"""Numbers and JSON in the form in which Java writes them: some tools compare them as text.

Source: Double.toString; JsonOutputter, which uses Jackson's default pretty printer.
"""

from __future__ import annotations

import json
from decimal import Decimal
from json.encoder import encode_basestring_ascii as _quoted
from math import isinf, isnan


def double(value: float) -> str:
    """Format a number as Java formats a double: ``5.0``, ``1.0E7``, ``NaN``."""
    value = float(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{len(digits) + exponent - 1}"


def pretty_json(value: object, indent: str = "") -> str:
    """Return a value as JSON: two more spaces for each object within another, lists in one line."""
    kind = type(value)
    if kind is str:
        return _quoted(value)  # type: ignore[arg-type] # it is a str; json.dumps takes five times as long
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

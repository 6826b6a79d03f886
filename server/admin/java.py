"""Numbers in Java's format, because some tools compare them as text.

Source: Double.toString.
"""

from __future__ import annotations

from math import isinf, isnan


def double(value: float) -> str:
    """Return the text of a number in the format of a Java double, such as ``5.0``, ``1.0E7`` or ``NaN``."""
    value = float(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # rarely needed, because few numbers are so large or so small

    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{len(digits) + exponent - 1}"

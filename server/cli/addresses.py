"""Addresses in messages: where something listens, and why it cannot."""

from __future__ import annotations

import os


def shown(host: str, port: int) -> str:
    """Return an address as people write it, or each of several that have commas between them."""
    return ", ".join(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in host.split(","))


def why_not(error: Exception) -> str:
    """Return the reason for which an address cannot be listened on, without the address."""
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(getattr(error, "strerror", None) or error)

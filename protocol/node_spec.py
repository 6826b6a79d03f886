"""The check of the values of a new node, for nodes in JSON files, in dumps and in calls of tests."""

from __future__ import annotations

from .enums import MAX_TTL, is_ttl


def node_problem(data: object, ttl: object, container: object, children_created: object) -> str | None:
    """Return the reason why a node with these values is invalid, or None if the node is valid.

    Args:
        data: Data of the node, which must be bytes or None.
        ttl: Time to live without a change, in seconds; None for a node without a ttl.
        container: Whether the node is a container, which cannot have a ttl.
        children_created: Number of children that were created below the node before its current children (32 bits).
    """
    if data is not None and not isinstance(data, bytes):
        return f"data must be bytes, text or None, not {data!r}"
    if not isinstance(container, bool):
        return f"container must be true or false, not {container!r}"
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not is_ttl(ttl)):
        return f"ttl must be from 0.001 to {MAX_TTL / 1000:,} seconds, not {ttl!r}"
    if container and ttl is not None:
        return "a container cannot have a ttl"
    created = children_created
    if isinstance(created, bool) or not isinstance(created, int) or not -(1 << 31) <= created < 1 << 31:
        return f"children_created must be from -2**31 to 2**31 - 1, not {created!r}"
    return None

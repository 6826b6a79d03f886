"""The description of a node to create, as JSON, dumps and tests give it: one check of what can be."""

from __future__ import annotations

from zoolet.protocol.enums import MAX_TTL, is_ttl


def node_problem(data: object, ttl: object, container: object, children_created: object) -> str | None:
    """Return the reason why a node cannot be so; None if it can.

    Args:
        data: Bytes, or None.
        ttl: Seconds without change after which it is deleted; None for never.
        container: Whether it is a container, which has no ttl.
        children_created: How many children were created below it before those that it has; a number of 32 bits.
    """
    if data is not None and not isinstance(data, bytes):
        return f"the data is {data!r}; it must be bytes, text or null"
    if not isinstance(container, bool):
        return f"the container is {container!r}; it must be true or false"
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not is_ttl(ttl)):
        return f"the ttl is {ttl!r}; it must be from 0.001 to {MAX_TTL / 1000} seconds"
    if container and ttl is not None:
        return "it is a container, which has no ttl"
    created = children_created
    if isinstance(created, bool) or not isinstance(created, int) or not -(1 << 31) <= created < 1 << 31:
        return f"the number of children created is {created!r}; it must be from -2**31 to 2**31 - 1"
    return None

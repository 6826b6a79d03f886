"""ACL lists as they are typed: ``scheme:id:permissions``, separated by commas.

Source: AclParser.
"""

from __future__ import annotations

from zoolet.client.shell.output import Output
from zoolet.protocol.acl import ACL, AclList, Id
from zoolet.protocol.enums import PERM_LETTERS


def parse_acl(text: str, out: Output) -> AclList:
    """Read a list. What is wrong in it is said on the second stream, and left out, as in ZooKeeper's own shell."""
    entries = []
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:  # as Java's String.split does
        parts.pop()
    if parts == [""] and text:
        return ()
    for part in parts:
        scheme, colon, rest = part.partition(":")
        name, second, letters = rest.rpartition(":")
        if not (colon and second):
            out.error(f"{part} does not have the form scheme:id:perm")
            continue
        perms = 0
        for letter in letters:
            if letter not in PERM_LETTERS:
                out.error(f"Unknown perm type: {letter}")
            perms |= PERM_LETTERS.get(letter, 0)
        entries.append(ACL(perms, Id(scheme, name)))
    return tuple(entries)

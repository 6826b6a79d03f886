"""ACL lists in the notation of the shell: ``scheme:id:permissions``, separated by commas.

Source: AclParser.
"""

from __future__ import annotations

from ...protocol.acl import ACL, AclList, Id
from ...protocol.enums import PERM_LETTERS
from .output import ShellOutput


def parse_acl(text: str, out: ShellOutput) -> AclList:
    """Parse an ACL list. As in zkCli, invalid entries are reported on stderr and skipped."""
    entries = []
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:  # Java's String.split also drops empty parts at the end
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

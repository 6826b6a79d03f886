"""Access control: lists kept once under small numbers, and what they allow.

Key 0 is world:anyone with all permissions, which most nodes have: ``if node.acl:`` is all that they cost.

Source: ReferenceCountedACLCache; PrepRequestProcessor.fixupACL; ZooKeeperServer.checkACL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from zoolet.protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, AclList, Id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import InvalidACLError, MarshallingError, NoAuthError
from zoolet.server.core.caller import Caller
from zoolet.server.core.settings import Settings

OPEN: Final = 0
AUTHENTICATED: Final = frozenset({"digest", "sasl", "x509"})
"""Schemes whose identities scheme ``auth`` stands for."""


class Acls:
    """The ACL lists of all nodes.

    Args:
        settings: ``skip_acl`` and ``compat`` are looked at.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lists: dict[int, AclList] = {OPEN: OPEN_ACL_UNSAFE}
        self._keys: dict[AclList, int] = {OPEN_ACL_UNSAFE: OPEN}
        self._uses: dict[int, int] = {}
        self._next = 1
        self._interned: list[int] | None = None  # inside a transaction: what to take back if it fails
        self.keep = False
        """Forget no list, whoever releases it: its nodes may come back."""
        self._released: list[int] = []  # inside a transaction: what to let go of if it succeeds

    # --- keys ---

    def intern(self, acl: AclList) -> int:
        """Give the key of a list and count one more node that uses it."""
        if acl is OPEN_ACL_UNSAFE:
            return OPEN
        key = self._keys.get(acl)
        if key is None:
            key, self._next = self._next, self._next + 1
            self._lists[key] = acl
            self._keys[acl] = key
        if key:
            self._uses[key] = self._uses.get(key, 0) + 1
            if self._interned is not None:
                self._interned.append(key)
        return key

    def release(self, key: int) -> None:
        """Count one node less; a list that no node uses is forgotten."""
        if not key or self.keep:
            return
        if self._interned is not None:
            self._released.append(key)
            return
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._uses[key], self._keys[self._lists.pop(key)]

    def begin(self) -> None:
        """Count from now on what is interned and what is released."""
        self._interned, self._released = [], []

    def commit(self) -> None:
        """Let go of what was released."""
        self._let_go(self._released)

    def roll_back(self) -> None:
        """Take back what was interned."""
        self._let_go(self._interned or [])

    def _let_go(self, keys: Sequence[int]) -> None:
        self._interned = None
        for key in keys:
            self.release(key)

    def list(self, key: int) -> AclList:
        """Give the list of a key."""
        return self._lists[key]

    # --- permission ---

    def allows(self, key: int, caller: Caller, wanted: int) -> bool:
        """Say whether *caller* has one of the *wanted* permissions.

        Source: ZooKeeperServer.checkACL.
        """
        if not key or caller.is_super or self._settings.skip_acl:
            return True
        for entry in self._lists[key]:
            if entry.perms & wanted:
                if entry.id == ANYONE:
                    return True
                for identity in caller.ids:
                    if identity.scheme == entry.id.scheme and _matches(identity, entry.id):
                        return True
        return not self._lists[key]

    def check(self, key: int, caller: Caller, wanted: Perm, path: str) -> None:
        """Do nothing if *caller* has one of the *wanted* permissions.

        Raises:
            NoAuthError: It has not.
        """
        if not self.allows(key, caller, wanted):
            raise NoAuthError(path)

    # --- what a client may ask for ---

    def fixed_up(self, acl: AclList | None, caller: Caller, path: str | None) -> AclList:
        """Check the list of a create or setACL and give what is stored: no duplicates, ``auth`` replaced by the
        caller's identities.

        Raises:
            InvalidACLError: The list is empty, or an entry is not valid.
            MarshallingError: An entry has a null id where that cannot be.

        Source: PrepRequestProcessor.fixupACL.
        """
        if acl is OPEN_ACL_UNSAFE:
            return OPEN_ACL_UNSAFE
        if not acl:
            raise InvalidACLError(path)
        stored: list[ACL] = []
        for entry in _without_duplicates(acl, path):
            scheme = entry.id.scheme
            if scheme is None:
                raise InvalidACLError(path)
            if scheme == "auth":
                mine = [identity for identity in caller.ids if identity.scheme in AUTHENTICATED]
                if not mine:
                    raise InvalidACLError(path)
                stored += [ACL(entry.perms, identity) for identity in mine]
            elif self._valid(entry.id, path):
                stored.append(entry)
            else:
                raise InvalidACLError(path)
        fixed = tuple(stored)
        return OPEN_ACL_UNSAFE if fixed == OPEN_ACL_UNSAFE else fixed

    def _valid(self, identity: Id, path: str | None) -> bool:
        scheme, name = identity.scheme, identity.id
        if scheme == "sasl" and self._settings.sasl_users is not None:
            return name is not None and re.fullmatch(r"[^@]+(@[^@/]+)?", name) is not None
        if scheme not in ("world", "digest", "ip"):
            return False
        if name is None:
            raise MarshallingError(path, f"scheme {scheme} with a null id")
        if scheme == "world":
            return name == "anyone"
        if scheme == "digest":
            parts = name.split(":")
            while parts and not parts[-1]:
                parts.pop()
            return len(parts) == 2
        return _network(name, self._settings.compat.ip6_acls) is not None


def _without_duplicates(acl: AclList, path: str | None) -> list[ACL]:
    """Give each entry once, where it first stands.

    Raises:
        MarshallingError: A null would have to be compared with something: ZooKeeper fails on that, too.

    Source: PrepRequestProcessor.removeDuplicates; the equals of ACL and Id.
    """
    kept: list[ACL] = []
    for entry in acl:
        for other in kept:
            if entry.perms != other.perms:
                continue
            if entry.id.scheme is None or (entry.id.scheme == other.id.scheme and entry.id.id is None):
                raise MarshallingError(path, "a null in an ACL list where it would have to be compared")
            if entry.id == other.id:
                break
        else:
            kept.append(entry)
    return kept


def _matches(identity: Id, wanted: Id) -> bool:
    """Say whether an identity is the one an entry of its scheme means.

    Source: the ``matches`` of DigestAuthenticationProvider and IPAuthenticationProvider.
    """
    if identity.scheme == "ip":
        network, mine = _network(wanted.id or ""), _network(identity.id or "")
        if network is None or mine is None or network[2] != mine[2]:
            return False
        shift = network[2] - network[1]
        return network[0] >> shift == mine[0] >> shift
    if identity.scheme == "sasl" and identity.id == "super":
        return True
    return identity.id == wanted.id


def _network(text: str, ip6: bool = True) -> tuple[int, int, int] | None:
    """Read ``address[/bits]``: the address as a number, the bits that count, and the bits there are; None if it is
    neither.

    Source: IPAuthenticationProvider.isValid, addr2Bytes.
    """
    address, slash, prefix = text.partition("/")
    value: int | None
    if ":" in address:
        value, width = (_ip6(address) if ip6 else None), 128
    else:
        value, width = _ip4(address), 32
    bits = _decimal(prefix) if slash else width
    return None if value is None or bits is None or not 0 <= bits <= width else (value, bits, width)


def _ip4(address: str) -> int | None:
    parts = address.split(".")
    numbers = [_decimal(part) for part in parts]
    if len(parts) != 4 or not all(number is not None and 0 <= number <= 255 for number in numbers):
        return None
    value = 0
    for number in numbers:
        value = value << 8 | (number or 0)
    return value


def _ip6(address: str) -> int | None:
    if "." in address or "%" in address:
        return None
    try:
        return int(IPv6Address(address))
    except AddressValueError:
        return None


def _decimal(text: str) -> int | None:
    """Read a number as Java's Integer.parseInt does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None

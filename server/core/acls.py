"""Access control. Each distinct ACL list is stored once, under a small number as its key, and nodes refer to the key.

Key 0 is the list that grants all permissions to everyone. Most nodes have this key, which ``if node.acl:`` recognises
without a call.

A list becomes a :class:`Grants` when it is interned. A check then costs one look-up for each identity of the client
(for an address: one for each prefix length in the list), regardless of the length of the list.

Invariants:

- The nodes with a key are counted: :meth:`Acls.intern` adds one and :meth:`Acls.release` subtracts one. At zero, the
  key and its list are removed. A key is never reused for a different list.
- Inside a transaction, no list is removed. A commit releases the keys that the transaction released, and a rollback
  releases the keys that it interned. So a rollback finds every list that a node had before.
- Data files refer to lists by these keys. After a restart the lists are interned again, in the order of the nodes.

Source: ReferenceCountedACLCache, PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from ...protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, AclList, Id
from ...protocol.distinguished_name import is_name
from ...protocol.enums import Perm
from ...protocol.errors import InvalidACLError, MarshallingError, NoAuthError
from .client_connection import ClientConnection
from .metrics import Metrics
from .settings import EngineSettings
from .warnings import Warnings

OPEN: Final = 0
"""The key of the list that grants all permissions to everyone."""
SNAPSHOT_OPEN_KEY: Final = -1
"""The key of the same list in snapshots. Their tables of ACL lists do not contain this list."""
NOBODY: Final[AclList] = (ACL(0, ANYONE),)
"""A placeholder, which grants nothing, for an ACL list that was set while a snapshot was written. One of the following
transactions sets the real list.
"""
MAX_EXPANDED: Final = 1_000
"""Maximum number of entries that ``auth`` expands to in one list. A short request could otherwise expand to many."""
LARGE_LIST_ENTRIES: Final = 100
"""Number of entries of a large list. Removing a longer list takes up to 5 ms."""
MAX_MULTI_ENTRIES: Final = 100_000
"""Maximum number of ACL entries in one multi, which cannot be interrupted. They take up to about 0.15 s."""
AUTHENTICATED_SCHEMES: Final = frozenset({"digest", "sasl", "x509"})
"""The schemes of the identities in the expansion of scheme ``auth``."""


class Grants:
    """The permissions that one ACL list grants, indexed by identity.

    Args:
        acl: The list. An empty list grants all permissions to everyone, as in ZooKeeper.
    """

    __slots__ = ("_anyone", "_exact", "_networks", "_sasl")

    def __init__(self, acl: AclList) -> None:
        self._anyone = 0 if acl else -1  # permissions of world:anyone
        self._exact: dict[Id, int] = {}
        self._sasl = 0  # union of the permissions of all SASL users, for the SASL user "super"
        self._networks: dict[tuple[int, int], dict[int, int]] = {}  # by (address bits, bits to drop): prefix -> perms
        for entry in acl:
            identity, perms = entry.id, entry.perms
            if identity == ANYONE:
                self._anyone |= perms
            elif identity.scheme == "ip":
                if (network := parse_network(identity.id or "")) is not None:
                    address, prefix, width = network
                    prefixes = self._networks.setdefault((width, width - prefix), {})
                    prefixes[address >> width - prefix] = prefixes.get(address >> width - prefix, 0) | perms
            else:
                self._exact[identity] = self._exact.get(identity, 0) | perms
                if identity.scheme == "sasl":
                    self._sasl |= perms

    def allow(self, identities: Iterable[Id], perms: int) -> bool:
        """Return whether the list grants at least one of the permissions *perms* to at least one of the identities."""
        perms = int(perms)  # with an enum, each operation below would take ten times as long
        if self._anyone & perms:
            return True
        for identity in identities:
            if identity.scheme == "ip":
                if self._networks and self._permissions_of_address(identity.id or "") & perms:
                    return True
            elif self._exact.get(identity, 0) & perms or (
                identity.scheme == "sasl" and identity.id == "super" and self._sasl & perms
            ):
                return True
        return False

    def _permissions_of_address(self, text: str) -> int:
        """Return the permissions that entries of scheme ``ip`` grant to an address.

        Source: IPAuthenticationProvider.matches.
        """
        perms = 0
        if (network := _parse_peer_address(text)) is not None:
            address, _, width = network
            for (bits, dropped), prefixes in self._networks.items():
                if bits == width:
                    perms |= prefixes.get(address >> dropped, 0)
        return perms


class _Interned:
    """A stored ACL list, with its permissions and its use count.

    Args:
        acl: The list.
        hashed: The hash of the list, kept because :func:`_hash` takes 5 ms for 9,000 entries.
    """

    __slots__ = ("acl", "grants", "hashed", "uses")

    def __init__(self, acl: AclList, hashed: int) -> None:
        self.acl = acl
        self.hashed = hashed
        self.grants = Grants(acl)
        self.uses = 0


class _AclChanges:
    """The changes of a transaction.

    Attributes:
        interned: The keys that the transaction interned. A rollback releases these keys.
        released: The keys that the transaction released. A commit releases these keys.
        entries: Number of entries in all lists of the transaction.
    """

    def __init__(self) -> None:
        self.interned: list[int] = []
        self.released: list[int] = []
        self.entries = 0


class Acls:
    """The ACL lists of all nodes, each with the number of nodes that use it.

    A list is removed together with the last node that uses it. Inside a transaction, releases are deferred until the
    commit, because a rollback needs every list that a node had before.

    Args:
        settings: Settings of the server (``skip_acl``, ``max_acl_entries`` and ``compat`` are used).
        metrics: Counter of the rejected lists.
        warnings: Receiver of warnings about rejected lists.
    """

    def __init__(self, settings: EngineSettings, metrics: Metrics, warnings: Warnings) -> None:
        self._settings = settings
        self._metrics = metrics
        self._warnings = warnings
        hashed = _hash(OPEN_ACL_UNSAFE)
        self._lists = {OPEN: _Interned(OPEN_ACL_UNSAFE, hashed)}
        self._keys = {hashed: [OPEN]}  # by hash: the keys of the lists with this hash
        self._next = 1
        self.in_transaction = False
        """Whether a transaction is open."""
        self.changes: _AclChanges | None = None
        """The changes of the open transaction; None before the first change."""
        self.keep = False
        """Whether to keep lists that no node uses. A history sets this, because its undo records may restore nodes."""
        self.large = 0
        """Number of lists with more than LARGE_LIST_ENTRIES entries. Removing such a list takes up to 5 ms."""

    # --- keys ---

    def intern(self, acl: AclList) -> int:
        """Store a list if it is new, increment its use count and return its key.

        If a transaction is open, its rollback decrements the count.
        """
        if acl is OPEN_ACL_UNSAFE:
            return OPEN
        hashed = _hash(acl)
        key = next((key for key in self._keys.get(hashed, ()) if self._lists[key].acl == acl), None)
        if key is None:
            key, self._next = self._next, self._next + 1
            self._lists[key] = _Interned(acl, hashed)
            self._keys.setdefault(hashed, []).append(key)
            self.large += len(acl) > LARGE_LIST_ENTRIES
        if key:
            self._lists[key].uses += 1
            if self.in_transaction:
                self._current_changes().interned.append(key)
        return key

    def release(self, key: int) -> None:
        """Decrement the use count of a list, and remove the list when the count is zero.

        Inside a transaction, this is deferred until the commit.
        """
        if not key or self.keep:
            return
        if self.in_transaction:
            self._current_changes().released.append(key)
            return
        interned = self._lists[key]
        interned.uses -= 1
        if not interned.uses:
            del self._lists[key]
            self.large -= len(interned.acl) > LARGE_LIST_ENTRIES
            keys = self._keys[interned.hashed]
            keys.remove(key)
            if not keys:
                del self._keys[interned.hashed]

    def _current_changes(self) -> _AclChanges:
        if self.changes is None:
            self.changes = _AclChanges()
        return self.changes

    def release_all(self, keys: Sequence[int]) -> None:
        """Forget the changes of the last transaction, and release some of its keys.

        Args:
            keys: After a commit, the keys that the transaction released; after a rollback, the keys that it interned.
        """
        self.changes = None
        for key in keys:
            self.release(key)

    def list(self, key: int) -> AclList:
        """Return the list of a key."""
        return self._lists[key].acl

    def lists(self) -> dict[int, AclList]:
        """Return all stored lists by key, except the list with the key :data:`OPEN`."""
        return {key: interned.acl for key, interned in self._lists.items() if key != OPEN}

    # --- permissions ---

    def allows(self, key: int, client: ClientConnection, perms: int) -> bool:
        """Return whether *client* has one of the permissions *perms* on a node whose ACL list has the key *key*.

        Source: ZooKeeperServer.checkACL.
        """
        if not key or client.is_super or self._settings.skip_acl:
            return True
        return self._lists[key].grants.allow(client.ids, perms)

    def check(self, key: int, client: ClientConnection, perms: Perm, path: str) -> None:
        """Check that :meth:`allows` returns True for *client*. *path* is for the error.

        Raises:
            NoAuthError: The client has none of the permissions.
        """
        if not self.allows(key, client, perms):
            raise NoAuthError(path)

    # --- validation ---

    def normalize(self, acl: AclList | None, client: ClientConnection, path: str | None) -> AclList:
        """Validate the list of a create or setACL, and return the list to store.

        Duplicates are removed, and scheme ``auth`` is replaced by the client's identities.

        Raises:
            InvalidACLError: The list is null or empty, or contains an invalid entry, such as ``auth`` for a client that
                has not authenticated.
            InvalidACLError: The result has more than ``max_acl_entries`` entries or ``max_frame`` bytes, ``auth``
                expands to more than MAX_EXPANDED entries, or the lists of a multi exceed MAX_MULTI_ENTRIES entries.
            MarshallingError: An entry has a null id that ZooKeeper would have to read.

        Source: PrepRequestProcessor.fixupACL.
        """
        if acl is OPEN_ACL_UNSAFE:
            return OPEN_ACL_UNSAFE
        if not acl:
            raise InvalidACLError(path)
        stored: list[ACL] = []
        limit, expanded = self._settings.max_acl_entries, 0
        authenticated = [identity for identity in client.ids if identity.scheme in AUTHENTICATED_SCHEMES]
        size, authenticated_size = 0, sum(map(_entry_size, authenticated))
        for entry in _remove_duplicates(acl, path):
            if len(stored) > limit or size > self._settings.max_frame:
                break
            scheme = entry.id.scheme
            if scheme is None:
                raise InvalidACLError(path)
            if scheme == "auth":
                if not authenticated:
                    raise InvalidACLError(path)
                expanded += len(authenticated)
                if expanded > MAX_EXPANDED:
                    self._refuse(client, "with more than %d entries, because auth is expanded", MAX_EXPANDED)
                    raise InvalidACLError(path, f"auth expands to more than {MAX_EXPANDED} entries")
                stored += [ACL(entry.perms, identity) for identity in authenticated]
                size += authenticated_size
            elif self._is_valid_id(entry.id, path):
                stored.append(entry)
                size += _entry_size(entry.id)
            else:
                raise InvalidACLError(path)
        if len(stored) > limit:
            self._refuse(client, "with more than %d entries (zoolet.maxAclEntries)", limit)
            raise InvalidACLError(path, f"the ACL list would have more than {limit} entries (zoolet.maxAclEntries)")
        if size > self._settings.max_frame:
            self._refuse(client, "with more than %d bytes (jute.maxbuffer)", self._settings.max_frame)
            raise InvalidACLError(path, f"the ACL list would have more than {self._settings.max_frame} bytes")
        if self.in_transaction:
            changes = self._current_changes()
            changes.entries += len(stored)
            if changes.entries > MAX_MULTI_ENTRIES:
                self._refuse(client, "in a multi with more than %d ACL entries", MAX_MULTI_ENTRIES)
                raise InvalidACLError(path, f"a transaction may contain at most {MAX_MULTI_ENTRIES} ACL entries")
        result = tuple(stored)
        return OPEN_ACL_UNSAFE if result == OPEN_ACL_UNSAFE else result

    def _refuse(self, client: ClientConnection, reason: str, limit: int) -> None:
        self._metrics.count_refusal("acl_entries")
        self._warnings.warn("acl", "refusing an ACL list from %s " + reason, client.address, limit)

    def _is_valid_id(self, identity: Id, path: str | None) -> bool:
        scheme, name = identity.scheme, identity.id
        if scheme == "sasl" and self._settings.sasl_users is not None:
            return name is not None and re.fullmatch(r"[^@]+(@[^@/]+)?", name) is not None
        if scheme == "x509" and self._settings.x509:
            return name is not None and is_name(name)
        if scheme not in ("world", "digest", "ip") or (scheme == "digest" and not self._settings.digest_enabled):
            return False
        if name is None:
            raise MarshallingError(path, f"the id of an ACL entry with scheme {scheme} is null")
        if scheme == "world":
            return name == "anyone"
        if scheme == "digest":
            parts = name.split(":")
            while parts and not parts[-1]:
                parts.pop()
            return len(parts) == 2
        return parse_network(name, self._settings.compat.ip6_acls) is not None


def _hash(acl: AclList) -> int:
    """Return a hash of a list, which also differs between the permissions -1 and -2.

    Python's hashes of -1 and -2 are equal, so a client could create any number of lists with equal hashes.
    """
    return hash((acl, *[entry.perms & 0xFFFFFFFF for entry in acl]))


def _entry_size(identity: Id) -> int:
    """Return the approximate size of an entry on the wire, in bytes."""
    return 12 + len(identity.scheme or "") + len(identity.id or "")


def _remove_duplicates(acl: AclList, path: str | None) -> list[ACL]:
    """Return the distinct entries in order of first occurrence.

    Raises:
        MarshallingError: A null would have to be compared with another value. ZooKeeper also fails in this case.

    Source: PrepRequestProcessor.removeDuplicates, ACL.equals, Id.equals.
    """
    distinct: list[ACL] = []
    seen: dict[int, tuple[set[Id], set[str | None]]] = {}  # by permissions: the identities, and their schemes
    for entry in acl:
        identity = entry.id
        identities, schemes = seen.setdefault(entry.perms, (set(), set()))
        if identities and (identity.scheme is None or (identity.id is None and identity.scheme in schemes)):
            raise MarshallingError(path, "an ACL list with several entries has a null scheme or id")
        if identity not in identities:
            identities.add(identity)
            schemes.add(identity.scheme)
            distinct.append(entry)
    return distinct


def parse_network(text: str, ip6: bool = True) -> tuple[int, int, int] | None:
    """Parse an IP address or network in the form ``address[/bits]``.

    Returns:
        The address as a number, the length of the prefix in bits, and the width of an address in bits (32 or 128); or
        None if the text is invalid.

    Source: IPAuthenticationProvider.isValid, addr2Bytes.
    """
    address, slash, prefix = text.partition("/")
    value: int | None
    if ":" in address:
        value, width = (_parse_ip6(address) if ip6 else None), 128
    else:
        value, width = _parse_ip4(address), 32
    bits = _parse_decimal(prefix) if slash else width
    return None if value is None or bits is None or not 0 <= bits <= width else (value, bits, width)


_parse_peer_address = lru_cache(maxsize=1024)(parse_network)
""":func:`parse_network` for the addresses of peers. The results for the last 1,024 addresses are cached, because they
depend only on the text.
"""


def _parse_ip4(address: str) -> int | None:
    parts = address.split(".")
    numbers = [_parse_decimal(part) for part in parts]
    if len(parts) != 4 or not all(number is not None and 0 <= number <= 255 for number in numbers):
        return None
    value = 0
    for number in numbers:
        value = value << 8 | (number or 0)
    return value


def _parse_ip6(address: str) -> int | None:
    if "." in address or "%" in address:
        return None
    from ipaddress import AddressValueError, IPv6Address  # imported here, because most servers need no IPv6 addresses

    try:
        return int(IPv6Address(address))
    except AddressValueError:
        return None


def _parse_decimal(text: str) -> int | None:
    """Parse a number below 10**9 like Java's Integer.parseInt, which accepts any number of leading zeros."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        return None
    number = digits.lstrip("0") or "0"
    return int(text[: -len(digits)] + number) if len(number) < 10 else None

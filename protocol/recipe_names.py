"""The table of the node names of recipes. Recipes create names with it, and all other code recognises them with it.

The name of a contender consists of a unique id, a mark, and the sequence number that the server appends. kazoo and
Curator use different marks, and ignore each other's nodes. Naming ``both`` excludes both of them, with two nodes. Names
are recognised by their marks, without checking the id, as in kazoo and Curator.

Double barriers, durable locks and proof nodes have names without a mark, and functions instead of rows.

To add a recipe, add a row. If its nodes form a line, add its kind to ``IN_LINE``, and to :func:`recipe_of_line` if the
line has a name of its own. ``server/admin/lock_counts.py`` counts any other name with a number as an entry of a queue.

A sequence number has ten characters or more, including a sign. After 2147483647 comes -2147483648. Numbers are compared
as places on a circle, so their order survives the overflow if contenders are fewer than 2**31 numbers apart.

Source: kazoo.recipe (lock, queue, party), Curator's InterProcessMutex, InterProcessReadWriteLock,
InterProcessSemaphoreV2, LeaderLatch, DistributedQueue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, NamedTuple, get_args

from . import paths

Naming = Literal["kazoo", "curator"]
Namings = Literal["kazoo", "curator", "both"]
NAMINGS: Final[tuple[Naming, ...]] = get_args(Naming)
HEX: Final = "[0-9a-f]{32}"
UUID: Final = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"


class Name(NamedTuple):
    """A name that a recipe gives its nodes.

    Args:
        recipe: The recipe: ``lock``, ``read-write lock``, ``election``, ``semaphore``, ``queue`` or ``party``.
        naming: ``kazoo`` or ``curator``.
        kind: The kind of the node, unique within a naming.
        form: The name, with fields for the id, a queue's priority, and the sequence number.
        excludes: Whether the first node in line is the only holder.
    """

    recipe: str
    naming: Naming
    kind: str
    form: str
    excludes: bool = False


NAMES: Final = (
    Name("lock", "kazoo", "lock", "{hex}__lock__{seq}", excludes=True),
    Name("lock", "curator", "lock", "_c_{uuid}-lock-{seq}", excludes=True),
    Name("read-write lock", "kazoo", "write", "{hex}__lock__{seq}", excludes=True),
    Name("read-write lock", "curator", "write", "_c_{uuid}-__WRIT__{seq}", excludes=True),
    Name("read-write lock", "kazoo", "read", "{hex}__rlock__{seq}"),
    Name("read-write lock", "curator", "read", "_c_{uuid}-__READ__{seq}"),
    Name("election", "kazoo", "latch", "{hex}__lock__{seq}", excludes=True),
    Name("election", "curator", "latch", "_c_{uuid}-latch-{seq}", excludes=True),
    Name("semaphore", "kazoo", "lease", "{hex}"),
    Name("semaphore", "curator", "lease", "_c_{uuid}-lease-{seq}"),
    Name("queue", "kazoo", "entry", "entry-{priority:03d}-{seq}"),
    Name("queue", "curator", "entry", "queue-{seq}"),
    Name("party", "kazoo", "member", "{hex}__party__"),
)
IN_LINE: Final = ("lock", "write", "read", "latch")
"""The kinds of nodes that form a line. The first node in the line is the holder."""
KAZOO_LOCK: Final = "-__lock__"
"""Suffix of the lock next to a kazoo semaphore, where clients wait for a lease."""
LEASES: Final = "leases"
LOCKS: Final = "locks"
"""Names of the folders of a Curator semaphore: for its leases, and for the lock of its waiters."""
READY: Final = "ready"
"""Name of the node of a double barrier that lets its members pass."""
ENTRIES: Final = "entries"
TAKEN: Final = "taken"
"""Names of the folders of a queue: for its entries, and for the nodes of the clients that consume them."""


class NodeName(NamedTuple):
    """The parsed name of a node.

    Args:
        name: The name.
        row: The row of the table. It is the first row if the names of several kinds look alike.
        number: The sequence number.
    """

    name: str
    row: Name
    number: int


class SemaphorePaths(NamedTuple):
    """The paths of a semaphore.

    Args:
        naming: ``kazoo`` or ``curator``.
        path: The semaphore.
        leases: The parent of its leases.
        lock: The parent of its waiters.
    """

    naming: Naming
    path: str
    leases: str
    lock: str

    def is_likely(self, exists: Callable[[str], bool]) -> bool:
        """Return whether leases at these paths belong to a semaphore.

        kazoo's leases are directly below the semaphore's path, so a kazoo semaphore must have a lock node.

        Args:
            exists: A function that returns whether a path exists.
        """
        return self.naming == "curator" or exists(self.lock)


def semaphore_at(naming: Naming, path: str) -> SemaphorePaths:
    """Return the paths of a semaphore."""
    if naming == "kazoo":
        return SemaphorePaths(naming, path, path, path + KAZOO_LOCK)
    return SemaphorePaths(naming, path, paths.join(path, LEASES), paths.join(path, LOCKS))


def semaphore_paths(naming: Naming, folder: str) -> SemaphorePaths | None:
    """Return the paths of a semaphore from the parent of its leases or waiters. Return None if it can be neither."""
    if naming == "kazoo":
        return semaphore_at(naming, folder.removesuffix(KAZOO_LOCK))
    return semaphore_at(naming, paths.parent(folder)) if paths.name(folder) in (LEASES, LOCKS) else None


def recipe_of_line(naming: Naming, kinds: Collection[str]) -> str:
    """Return the recipe of a line, given the kinds of its nodes. kazoo names writers and candidates like its
    locks, so they count as locks.
    """
    if "read" in kinds or (naming == "curator" and "write" in kinds):
        return "read-write lock"
    return "election" if naming == "curator" and set(kinds) == {"latch"} else "lock"


_FIELDS: Final = {"{hex}": HEX, "{priority:03d}": r"\d+", "{seq}": paths.SEQUENCE}


def _mark(form: str) -> str:
    """Return the mark after an id and the number, or the whole form if it lacks an id or a mark."""
    return form.removeprefix("_c_{uuid}-").removeprefix("{hex}") or form


def _pattern(form: str) -> str:
    """Return the pattern of a mark."""
    mark = _mark(form)
    start = "^" if mark == form else ""
    for field, pattern in _FIELDS.items():
        mark = mark.replace(field, pattern)
    return f"{start}{mark}$"


ROWS: Final[dict[tuple[str, str], Name]] = {(row.naming, row.kind): row for row in NAMES}
"""The rows of the table by naming and kind."""
_PATTERNS: Final = {key: re.compile(_pattern(row.form)) for key, row in ROWS.items()}
_MARKS: Final = {
    _mark(row.form).removesuffix("{seq}"): row
    for row in reversed(NAMES)
    if row.form.endswith("{seq}") and row.recipe != "queue"
}
"""The first row with each mark before a sequence number."""
_MARKED: Final = re.compile(rf"({'|'.join(_MARKS)}){_FIELDS['{seq}']}$")
_ENTRIES: Final = [row for row in NAMES if row.recipe == "queue"]
_LEAF: Final = re.compile(
    rf"(?:{HEX}|_c_{UUID}-)(?:{'|'.join(_MARKS)}){_FIELDS['{seq}']}|{_pattern(ROWS['kazoo', 'entry'].form)}"
)
_PROOF: Final = re.compile(rf"(.+)-{UUID}$")
_HOLD: Final = re.compile(UUID)
_KAZOO_MEMBER: Final = re.compile(HEX)
_ANY_MEMBER: Final = re.compile(f"{HEX}|{UUID}")
_FOLDERS: Final = "|".join((ENTRIES, TAKEN, LEASES, LOCKS))
_MAY_BE: Final = re.compile(rf"{paths.SEQUENCE}$|^{HEX}$|[0-9a-f]{{8}}-[0-9a-f]{{4}}-|^({_FOLDERS})$|{KAZOO_LOCK}$")


def prefix(naming: str, kind: str, uuid: str = "", priority: int = 0) -> str:
    """Return the prefix of a name. *uuid* is text with hyphens."""
    return ROWS[naming, kind].form.format(hex=uuid.replace("-", ""), uuid=uuid, priority=priority, seq="")


def is_named(naming: str, kind: str, name: str) -> bool:
    """Return whether a name is of this kind."""
    return _PATTERNS[naming, kind].search(name) is not None


def parse_numbered(name: str) -> NodeName | None:
    """Parse a name that ends with a sequence number. Return None if no recipe creates such names."""
    if (match := _MARKED.search(name)) is not None:
        return NodeName(name, _MARKS[match[1]], int(match[2]))
    for row in _ENTRIES:
        if (match := _PATTERNS[row.naming, row.kind].match(name)) is not None:
            return NodeName(name, row, int(match[1]))
    return None


def contender(name: str) -> NodeName | None:
    """Parse the name of a node whose client holds something or waits for it. Return None for other names."""
    return node if (node := parse_numbered(name)) is not None and node.row.recipe != "queue" else None


def is_leaf(name: str) -> bool:
    """Return whether this is the complete name of a contender or a kazoo entry. Such nodes keep no children.

    The mark alone does not suffice: ``block-0000000001`` may be a folder.
    """
    return _LEAF.fullmatch(name) is not None


def proof_path(node: str, uuid: str) -> str:
    """Return the path of the proof node for a node: zoolet's TryLock and LockingQueue create both together."""
    return f"{node}-{uuid}"


def proven_node(name: str) -> str | None:
    """Return the name of the node that a proof node of zoolet stands for. Return None for other names."""
    match = _PROOF.match(name)
    return match[1] if match is not None else None


def is_hold(name: str) -> bool:
    """Return whether this may be the id of a hold, the only child of a durable lock that is held."""
    return _HOLD.fullmatch(name) is not None


def is_barrier_member(name: str, *, has_ready: bool) -> bool:
    """Return whether this may be a member of a double barrier. Its name is an id without a mark.

    Curator's names are recognised only next to ``ready``, because other nodes have such names.
    """
    return (_ANY_MEMBER if has_ready else _KAZOO_MEMBER).fullmatch(name) is not None


def may_be_of_recipe(name: str) -> bool:
    """Return whether a recipe may have created this name: a name with a number or an id, or the name of a folder."""
    return _MAY_BE.search(name) is not None


def sort_by_arrival(naming: str, kinds: Iterable[str], names: Iterable[str]) -> list[NodeName]:
    """Return the nodes of some kinds among a node's children, in order of arrival. Other nodes are skipped."""
    patterns = [(_PATTERNS[naming, kind], ROWS[naming, kind]) for kind in kinds]
    line = []
    for name in names:
        for pattern, row in patterns:
            if (match := pattern.search(name)) is not None:
                line.append(NodeName(name, row, int(match[1])))
                break
    return sort_by_number(line)


def sort_by_number(nodes: list[NodeName]) -> list[NodeName]:
    """Sort nodes by their sequence numbers, across the overflow."""
    return sorted(nodes, key=lambda node: place(node.number, nodes[0].number))


def place(number: int, other: int) -> int:
    """Return a sort key for a sequence number: its distance from *other*, from 0 to 2**32 - 1, across the overflow."""
    return (number - other + (1 << 31)) % (1 << 32)

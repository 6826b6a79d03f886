"""The table of the node names of recipes. Recipes create names from it, and all other code uses it to recognise names.

The name of a contender consists of a unique id, a mark, and the sequence number that the server appends. kazoo and
Curator use different marks, and ignore each other's nodes. With naming ``both``, a client creates two nodes, and so
excludes the users of both libraries. Names are recognised by their marks, without checking the id, as in kazoo and
Curator.

The names of double barriers, durable locks and proof nodes contain no mark. They have functions instead of rows.

To add a recipe, add a row. If its nodes form a line, add its kind to ``LINE_KINDS``, and to :func:`recipe_of_line` if
the recipe needs a name of its own. ``server/admin/lock_counts.py`` counts any other name with a sequence number as an
entry of a queue.

A sequence number has at least ten characters, including a sign. The number after 2147483647 is -2147483648. Numbers are
compared as places on a circle. Therefore their order survives the overflow, as long as the numbers of all contenders
are within a range of 2**31.

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
    """A row of the table: the form of the names of one kind of node.

    Args:
        recipe: The recipe: ``lock``, ``read-write lock``, ``election``, ``semaphore``, ``queue`` or ``party``.
        naming: ``kazoo`` or ``curator``.
        kind: The kind of the node, unique within a naming.
        form: A format string for the names, with fields for the id, the priority (of a queue) and the sequence number.
        excludes: Whether only the first node in line is a holder.
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
LINE_KINDS: Final = ("lock", "write", "read", "latch")
"""The kinds of nodes that form a line. The first node in the line is a holder."""
KAZOO_LOCK: Final = "-__lock__"
"""Suffix of the lock next to a kazoo semaphore, where clients wait for a lease."""
LEASES: Final = "leases"
LOCKS: Final = "locks"
"""Names of the folders of a Curator semaphore: for its leases, and for the lock of its waiters."""
READY: Final = "ready"
"""Name of the node whose creation allows the members of a double barrier to pass."""
ENTRIES: Final = "entries"
TAKEN: Final = "taken"
"""Names of the folders of a queue: for its entries, and for the nodes of clients that are processing an entry."""


class NodeName(NamedTuple):
    """The parsed name of a node.

    Args:
        name: The complete name.
        row: The row of the table; the first such row if several kinds of nodes have names of this form.
        number: The sequence number.
    """

    name: str
    row: Name
    number: int


class SemaphorePaths(NamedTuple):
    """The paths of a semaphore.

    Args:
        naming: ``kazoo`` or ``curator``.
        path: Path of the semaphore itself.
        leases: Path of the parent of its leases.
        lock: Path of the parent of its waiters.
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
    """Return the paths of the semaphore at *path*."""
    if naming == "kazoo":
        return SemaphorePaths(naming, path, path, path + KAZOO_LOCK)
    return SemaphorePaths(naming, path, paths.join(path, LEASES), paths.join(path, LOCKS))


def semaphore_paths(naming: Naming, folder: str) -> SemaphorePaths | None:
    """Return the paths of the semaphore that *folder* belongs to, as the parent of leases or waiters.

    Return None if *folder* cannot be such a parent.
    """
    if naming == "kazoo":
        return semaphore_at(naming, folder.removesuffix(KAZOO_LOCK))
    return semaphore_at(naming, paths.parent(folder)) if paths.name(folder) in (LEASES, LOCKS) else None


def recipe_of_line(naming: Naming, kinds: Collection[str]) -> str:
    """Return the recipe of a line, inferred from the kinds of its nodes.

    kazoo's write locks and elections use the same names as its locks. They are reported as ``lock``, except for a write
    lock with readers in the line.
    """
    if "read" in kinds or (naming == "curator" and "write" in kinds):
        return "read-write lock"
    return "election" if naming == "curator" and set(kinds) == {"latch"} else "lock"


_FIELDS: Final = {"{hex}": HEX, "{priority:03d}": r"\d+", "{seq}": paths.SEQUENCE_PATTERN}


def _part_after_id(form: str) -> str:
    """Return the mark and the number: the part of a form after its id.

    Without an id or a mark, return the whole form.
    """
    return form.removeprefix("_c_{uuid}-").removeprefix("{hex}") or form


def _pattern(form: str) -> str:
    """Return a pattern for names of this form. It matches a name from the mark on, or a whole name without id."""
    mark = _part_after_id(form)
    start = "^" if mark == form else ""
    for field, pattern in _FIELDS.items():
        mark = mark.replace(field, pattern)
    return f"{start}{mark}$"


ROWS: Final[dict[tuple[str, str], Name]] = {(row.naming, row.kind): row for row in NAMES}
"""The rows of the table by naming and kind."""
_PATTERNS: Final = {key: re.compile(_pattern(row.form)) for key, row in ROWS.items()}
_MARKS: Final = {
    _part_after_id(row.form).removesuffix("{seq}"): row
    for row in reversed(NAMES)
    if row.form.endswith("{seq}") and row.recipe != "queue"
}
"""The first row of :data:`NAMES` for each mark that precedes a sequence number."""
_MARKED_PATTERN: Final = re.compile(rf"({'|'.join(_MARKS)}){_FIELDS['{seq}']}$")
_QUEUE_ROWS: Final = [row for row in NAMES if row.recipe == "queue"]
_LEAF_PATTERN: Final = re.compile(
    rf"(?:{HEX}|_c_{UUID}-)(?:{'|'.join(_MARKS)}){_FIELDS['{seq}']}|{_pattern(ROWS['kazoo', 'entry'].form)}"
)
_PROOF_PATTERN: Final = re.compile(rf"(.+)-{UUID}$")
_HOLD_PATTERN: Final = re.compile(UUID)
_KAZOO_MEMBER_PATTERN: Final = re.compile(HEX)
_ANY_MEMBER_PATTERN: Final = re.compile(f"{HEX}|{UUID}")
_FOLDER_NAMES: Final = "|".join((ENTRIES, TAKEN, LEASES, LOCKS))
_RECIPE_NAME: Final = re.compile(
    rf"{paths.SEQUENCE_PATTERN}$|^{HEX}$|[0-9a-f]{{8}}-[0-9a-f]{{4}}-|^({_FOLDER_NAMES})$|{KAZOO_LOCK}$"
)


def prefix(naming: str, kind: str, uuid: str = "", priority: int = 0) -> str:
    """Return a name without its sequence number. *uuid* is a UUID with hyphens."""
    return ROWS[naming, kind].form.format(hex=uuid.replace("-", ""), uuid=uuid, priority=priority, seq="")


def matches_kind(naming: str, kind: str, name: str) -> bool:
    """Return whether a name matches the form of this naming and kind."""
    return _PATTERNS[naming, kind].search(name) is not None


def parse_numbered(name: str) -> NodeName | None:
    """Parse a name that ends with a sequence number. Return None if no recipe creates such names."""
    if (match := _MARKED_PATTERN.search(name)) is not None:
        return NodeName(name, _MARKS[match[1]], int(match[2]))
    for row in _QUEUE_ROWS:
        if (match := _PATTERNS[row.naming, row.kind].match(name)) is not None:
            return NodeName(name, row, int(match[1]))
    return None


def parse_contender(name: str) -> NodeName | None:
    """Parse the name of a contender, a node whose client holds a lock or waits for it. Return None for other names.

    A queue entry is not a contender.
    """
    return node if (node := parse_numbered(name)) is not None and node.row.recipe != "queue" else None


def is_leaf(name: str) -> bool:
    """Return whether this is the complete name of a contender or of an entry of a kazoo queue.

    Such nodes have no children. The mark alone does not suffice: ``block-0000000001`` ends like a name of Curator, but
    may be a folder.
    """
    return _LEAF_PATTERN.fullmatch(name) is not None


def proof_path(node: str, uuid: str) -> str:
    """Return the path of the proof node of *node*. zoolet's TryLock and LockingQueue create both in one transaction."""
    return f"{node}-{uuid}"


def proven_node(name: str) -> str | None:
    """Return the name of the node that a proof node belongs to. Return None for other names."""
    match = _PROOF_PATTERN.match(name)
    return match[1] if match is not None else None


def is_hold(name: str) -> bool:
    """Return whether this may be the name of a hold, the only child of a durable lock while it is held."""
    return _HOLD_PATTERN.fullmatch(name) is not None


def is_barrier_member(name: str, *, has_ready: bool) -> bool:
    """Return whether this may be the name of a member of a double barrier: an id without a mark.

    Args:
        name: The name of the node.
        has_ready: Whether the parent also has a child ``ready``. Only in that case are UUIDs accepted, which
            Curator uses as names, because other nodes also have such names.
    """
    return (_ANY_MEMBER_PATTERN if has_ready else _KAZOO_MEMBER_PATTERN).fullmatch(name) is not None


def may_be_recipe_name(name: str) -> bool:
    """Return whether a recipe may use this name: it contains a number or an id, or is the name of a folder."""
    return _RECIPE_NAME.search(name) is not None


def sort_by_arrival(naming: str, kinds: Iterable[str], names: Iterable[str]) -> list[NodeName]:
    """Return the children whose names have one of the *kinds*, in order of their sequence numbers. Skip other names."""
    patterns = [(_PATTERNS[naming, kind], ROWS[naming, kind]) for kind in kinds]
    line = []
    for name in names:
        for pattern, row in patterns:
            if (match := pattern.search(name)) is not None:
                line.append(NodeName(name, row, int(match[1])))
                break
    return sort_by_number(line)


def sort_by_number(nodes: list[NodeName]) -> list[NodeName]:
    """Return nodes sorted by sequence number. The order survives an overflow of the numbers."""
    return sorted(nodes, key=lambda node: circular_key(node.number, nodes[0].number))


def circular_key(number: int, other: int) -> int:
    """Return a sort key for a sequence number among numbers within 2**31 of *other*, even after an overflow."""
    return (number - other + (1 << 31)) % (1 << 32)

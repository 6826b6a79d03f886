"""A copy of an ensemble's state, which serves reads, watches and local sessions to its own clients.

The leader decides everything: the replica assigns no zxids, expires no sessions of the ensemble, and deletes no
containers.
The sessions of its own clients are *local*: only this server knows them, and they can neither write nor own nodes.

The tree's digest is kept up to date with two checksums for each changed node, and is compared with the digest that the
leader sends with each transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from ...protocol import txns as t
from ...protocol.acl import OPEN_ACL_UNSAFE, AclList
from ...protocol.codec import Record, combined_struct
from ...protocol.errors import BadArgumentsError, MarshallingError, NoNodeError
from ...protocol.handshake import ConnectRequest
from ...protocol.hexadecimal import hexadecimal
from ...protocol.learner import AclEntry, SessionTimeout, SnapshotNode
from ...protocol.paths import CONFIG, path_error
from ..core.acls import NOBODY, SNAPSHOT_OPEN_KEY
from ..core.client_connection import Session
from ..core.digest import digest_node, sum_digests
from ..core.engine import Engine
from ..core.journal import ERROR, Applied, applied_records, decode_transaction
from ..core.node import restored_node
from ..core.ops.replay import replay
from ..core.ops.tolerant import apply_tolerantly
from ..core.sessions import first_session_id
from ..core.settings import EngineSettings
from ..core.tree import RESERVED
from ..core.warnings import LogFunction
from .errors import ReplicaError

DIGEST_SIZE: Final = combined_struct(t.TxnDigest).size
"""Bytes of the digest after a transaction."""
_MASK: Final = (1 << 64) - 1


@dataclass(slots=True)
class LearnerMetrics:
    """The counters and gauges of an observer. Counts start at 0 when the observer starts.

    Args:
        leader: The address of the leader; empty while no leader is followed.
        connections: Number of times that a leader was followed, including reconnections.
        diffs: Number of times that the leader has sent only the missing transactions.
        snapshots: Number of times that the leader has sent a snapshot.
        transactions: Number of transactions that were applied.
        digests_compared: Number of transactions whose digest was compared.
        digest_mismatches: Number of transactions after which the replica's digest differed from the leader's.
        lag: Number of transactions that the leader had proposed and the replica did not contain yet, at the last PING.
        behind_ms: Estimated delay of the last transaction in milliseconds.
    """

    leader: str = ""
    connections: int = 0
    diffs: int = 0
    snapshots: int = 0
    transactions: int = 0
    digests_compared: int = 0
    digest_mismatches: int = 0
    lag: int = 0
    behind_ms: int = 0


class ReplicaEngine(Engine):
    """An engine whose state comes from a leader.

    Args:
        settings: Settings of the server.
        now: Current time in milliseconds since the epoch.
        monotonic_ms: Current time of a monotonic clock, in milliseconds.
        sid: The number of this observer, which is the top byte of local session ids.
        rng: Source of randomness.
        log: Receiver of warnings.

    Attributes:
        last: The zxid of the last transaction in the replica; 0 for none. ``zxid``, which clients see, may be the start
            of an epoch.
        accepted_epoch: The highest epoch of a leader that this observer has followed.
        current_epoch: The epoch of the last leader that has made its configuration known.
        config: The data of ``/zookeeper/config``; empty if it is not known yet.
        is_complete: Whether the replica has been equal to a leader's state since the start of the last snapshot.
        is_serving: Whether clients are served. Otherwise their connections are closed.
        digest: The digest of the tree.
        learning: The counters and gauges of the observer.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        now: int,
        monotonic_ms: int,
        sid: int,
        rng: Random,
        log: LogFunction | None = None,
    ) -> None:
        super().__init__(settings, now=now, monotonic_ms=monotonic_ms, server_id=sid, rng=rng, log=log)
        self.set_read_only(True)
        self.last = self.accepted_epoch = self.current_epoch = 0
        self.config = b""
        self.is_complete = self.is_serving = False
        self.learning = LearnerMetrics()
        self._local_session_ids: set[int] = set()
        self._next_session_id = first_session_id(sid, now)
        self._lists: dict[int, AclList] = {}
        self.digest = self._compute_digest()

    # --- clients ---

    def start_serving(self) -> None:
        """Start to serve clients.

        Clients see at least the first zxid of the leader's epoch, because a member may have shown this zxid to them.
        """
        self.zxid = max(self.last, self.current_epoch << 32)
        self.is_complete = self.is_serving = True

    def stop_serving(self) -> None:
        """Close the connections of all clients, as ZooKeeper does without a leader. Local sessions stay alive."""
        self.is_serving = False
        for client in list(self.connections):
            self.close_connection(client)

    def allow_client(self, request: ConnectRequest) -> bool:
        """Return whether a client may connect: it must accept a read-only server, and have a local or a new session.

        A client with a session of the ensemble is disconnected, and finds a member. Otherwise it would receive the
        wrong reply that its session has expired.
        """
        is_known = request.session_id == 0 or request.session_id in self._local_session_ids
        return self.is_serving and is_known and super().allow_client(request)

    def open_session(self, timeout_ms: int) -> Session:
        """Open a local session, without a zxid."""
        session_id, self._next_session_id = self._next_session_id, self._next_session_id + 1
        self._local_session_ids.add(session_id)
        return self.sessions.open(session_id, timeout_ms, self.monotonic_ms)

    def close_session(self, session: Session) -> None:
        """Close a local session, without a zxid. It owns no nodes."""
        self._local_session_ids.discard(session.id)
        self.sessions.close(session)

    def expire(self, session: Session) -> None:
        """Expire a local session. Sessions of the ensemble are expired by the leader."""
        if session.id in self._local_session_ids:
            super().expire(session)

    def set_read_only(self, on: bool) -> None:
        """Keep read-only mode on: an observer never accepts writes."""
        super().set_read_only(True)

    def take_zxid(self, session_id: int = 0, xid: int = 0, code: int = 0) -> None:
        """Do nothing: only the leader assigns zxids."""

    def start_search(self) -> None:
        """Do nothing: the leader deletes containers and TTL nodes."""

    # --- a snapshot of the leader ---

    def forget(self) -> None:
        """Return to the state of a new ensemble, which is also the state before a snapshot."""
        for session in list(self.sessions.alive.values()):
            if session.id not in self._local_session_ids:
                self.sessions.close(session)
        self.clear_tree()
        self._lists.clear()
        self.last = self.zxid = 0
        self.is_complete = False
        self.digest = self._compute_digest()

    def start_snapshot(self) -> None:
        """Remove the whole state, including the nodes that exist in every tree, because a snapshot follows."""
        self.forget()
        self.digest = 0

    def add_session(self, entry: SessionTimeout) -> None:
        """Add a session of a snapshot."""
        self.sessions.open(entry.session, entry.timeout, self.monotonic_ms)

    def add_acl(self, entry: AclEntry) -> None:
        """Add an ACL list of a snapshot."""
        self._lists[entry.key] = entry.acl or ()

    def add_node(self, stored: SnapshotNode) -> None:
        """Add a node of a snapshot.

        The ACL list of the node may be missing, because the lists were written before the nodes. In that case, the node
        grants no permissions until a transaction sets the list.

        Raises:
            ReplicaError: The node does not follow its parent, or is in the snapshot twice.
        """
        path = stored.path or "/"
        acl = OPEN_ACL_UNSAFE if stored.acl == SNAPSHOT_OPEN_KEY else self._lists.get(stored.acl, NOBODY)
        fields = (stored.czxid, stored.mzxid, stored.ctime, stored.mtime, stored.version, stored.creates)
        key = self.acls.intern(acl)
        node = restored_node(stored.data, key, *fields, stored.aversion, stored.owner, stored.pzxid)
        try:
            if path not in RESERVED and (not path.startswith("/") or self.tree.get(path) is not None):
                raise NoNodeError(path)
            self.tree.place(path, node)
        except NoNodeError:
            raise ReplicaError(f"the leader's snapshot contains the node {path} twice, or without its parent") from None
        self.digest = self.digest + digest_node(path, node) & _MASK

    def finish_snapshot(self, zxid: int) -> None:
        """Complete the state after a snapshot, which contains at least the transactions up to *zxid*."""
        self._lists.clear()
        self.quota.recount_all()
        self.last = self.zxid = zxid

    def use_config(self, data: bytes) -> None:
        """Set the configuration of the ensemble, and write it to ``/zookeeper/config`` without a transaction."""
        self.config = data
        self.write_config(data)

    def reload_config(self) -> bytes:
        """Update :attr:`config` from ``/zookeeper/config`` after a reconfig, and return it."""
        self.config = self.tree.find(CONFIG).data or b""
        return self.config

    # --- transactions ---

    def apply_transaction(self, data: bytes, *, tolerantly: bool) -> int:
        """Apply an encoded transaction. Return its time in milliseconds since the epoch.

        Args:
            data: The transaction, and its digest if there is one.
            tolerantly: Whether the tree may already contain some effects of the transaction, because the snapshot of a
                leader is not complete. In that case, the digest is not compared.

        Raises:
            ReplicaError: The transaction is not known, cannot be applied, or leads to a different tree.
        """
        try:
            entry, offset = decode_transaction(data)
            digest = t.TxnDigest.decode(data, offset) if offset < len(data) else None
        except MarshallingError as error:
            raise ReplicaError(f"cannot read a transaction of the leader: {error}") from None
        if digest is not None and len(data) - offset != DIGEST_SIZE:
            raise ReplicaError(
                f"unexpected data after transaction {hexadecimal(entry[2])} of the leader: {len(data) - offset} bytes"
            )
        entry, changes = self._complete(entry)
        touched = _changed_paths(changes) if tolerantly else self._check_changes(entry, changes)
        self.digest -= sum_digests(self.tree, touched)
        now = self.now
        if tolerantly:
            try:
                apply_tolerantly(self, entry[2], entry[3], entry[0], changes)
            except BadArgumentsError as error:
                raise ReplicaError(f"transaction {hexadecimal(entry[2])} of the leader: {error}") from None
            self.set_time(now, self.monotonic_ms)
        else:
            replay(self, entry)
            if isinstance(entry[5], t.CloseSessionTxn) and entry[1] == 0 and self.on_session is not None:
                self.on_session("expired", entry[0], None)  # the leader closes it without a request, so the xid is 0
            if (notify := self.record or self.on_applied) is not None:
                notify(entry)
        self.digest = self.digest + sum_digests(self.tree, touched) & _MASK
        self.last = entry[2]
        if digest is not None and digest.version == t.DIGEST_VERSION and not tolerantly:
            self._compare_digest(entry, digest.digest & _MASK)
        return entry[3]

    def _complete(self, entry: Applied) -> tuple[Applied, tuple[Record, ...]]:
        """Return a transaction with the paths that a closeSession may lack, and its changes.

        A closeSession without paths deletes all nodes of its session. It has no effect if the session is not known.
        """
        session_id, *_, record = entry
        if isinstance(record, t.CloseSessionTxn):
            if session_id not in self.sessions.alive and not record.paths2Delete:
                entry = (*entry[:4], ERROR, t.ErrorTxn(0))
            elif not record.paths2Delete:
                entry = (*entry[:5], t.CloseSessionTxn(list(self.tree.ephemerals.get(session_id, ()))))
        return entry, applied_records(entry)

    def _check_changes(self, entry: Applied, changes: Iterable[Record]) -> set[str]:
        """Check that the changes of a transaction are possible, and return the paths whose nodes it changes.

        Raises:
            ReplicaError: A node is missing, exists already, or has children.
        """
        after: dict[str, bool] = {}  # whether the changed nodes exist after the preceding changes

        def exists(path: str) -> bool:
            return after[path] if path in after else self.tree.get(path) is not None

        for record in changes:
            match record:
                case t.CreateTxn() | t.CreateContainerTxn() | t.CreateTTLTxn():
                    path = record.path
                    is_possible = path_error(path) is None and exists(path.rpartition("/")[0]) and not exists(path)
                    after[path] = True
                case t.DeleteTxn():
                    path = record.path
                    is_possible = self._can_delete(path, after) and exists(path)
                    after[path] = False
                case t.SetDataTxn() | t.SetACLTxn():
                    path, is_possible = record.path, exists(record.path)
                case t.CloseSessionTxn():
                    missing = [each for each in record.paths2Delete if not exists(each)]
                    path = missing[0] if missing else hexadecimal(entry[0])
                    is_possible = not missing and entry[0] in self.sessions.alive
                case _:
                    continue
            if not is_possible:
                name = type(record).__name__
                raise ReplicaError(
                    f"cannot apply transaction {hexadecimal(entry[2])} of the leader ({name} {path}) to the replica"
                )
        return _changed_paths(changes)

    def _can_delete(self, path: str, after: dict[str, bool]) -> bool:
        """Return whether a node can be deleted after the preceding changes.

        It must not be reserved, must not be deleted by these changes, and must have no children after them.
        """
        if path in RESERVED or after.get(path) is False:
            return False
        node = self.tree.get(path)
        children = (f"{path}/{name}" for name in (node.children or () if node is not None else ()))
        return not any(after.get(child, True) for child in children) and not any(
            is_there and child.startswith(f"{path}/") for child, is_there in after.items()
        )

    def _compare_digest(self, entry: Applied, expected: int) -> None:
        self.learning.digests_compared += 1
        if self.digest != expected:
            self.learning.digest_mismatches += 1
            raise ReplicaError(
                f"the tree differs from the leader's after transaction {hexadecimal(entry[2])}: "
                f"digest {self.digest:016x}, expected {expected:016x}"
            )

    def _compute_digest(self) -> int:
        return sum(digest_node(path, node) for path, node in self.tree.walk()) & _MASK


def _changed_paths(changes: Iterable[Record]) -> set[str]:
    """Return the paths of all nodes that some changes affect, including the parents of created and deleted nodes."""
    paths: set[str] = set()
    for record in changes:
        if isinstance(record, t.SetDataTxn | t.SetACLTxn):
            paths.add(record.path)
            continue
        moved = record.paths2Delete if isinstance(record, t.CloseSessionTxn) else [getattr(record, "path", "")]
        for path in moved:
            paths |= {path, path.rpartition("/")[0] or "/"}
    return paths

"""The frequent writes, each as one function from the bytes of the request to the bytes of the reply.

Made by ``make straight`` from ``writes.py``, ``multi.py``, the functions that they call and the records of the
requests; do not edit. Decision 37 gives the reasons.
"""

# mypy: ignore-errors
# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# ruff: noqa

from __future__ import annotations

from struct import Struct

import re
from ....protocol import multi as wire, paths
from ....protocol.acl import (
    OPEN_ACL_UNSAFE,
    OPEN_ACL_UNSAFE as usual_acl,
    _OPEN_BYTES as encoded_acl,
    _read as read_acl,
)
from ....protocol.codec import StructError, bytes_or_null_at, int_at, str_or_null_at, text
from ....protocol.enums import ANY_VERSION, EPHEMERAL, PLAIN_MODES, Perm, SEQUENTIAL
from ....protocol.errors import (
    BadArgumentsError,
    MarshallingError,
    NoChildrenForEphemeralsError,
    NoNodeError,
    NodeExistsError,
    NotEmptyError,
    ZooKeeperError,
)
from ....protocol.operations import OpCode
from ....protocol.paths import QUOTA, ROOT, _DOTS, _FORBIDDEN
from ....protocol.txns import CheckVersionTxn, CreateTxn, DeleteTxn, SetDataTxn
from ..node import (
    CONTAINER_OWNER,
    Children,
    LEAF_HEADER,
    Node,
    _STAT,
    _TTL_OWNER,
    int32,
    is_session,
    pack_leaf,
    stat_of,
    unpacked,
)
from .dispatch import PARTS, RUNS
from .multi import SHORT_MODES, _HEADER_SIZE, _fail, _header_at, perform_part
from .writes import bad_version, log, node_at, note_deleted, refuse_flags
from ..tree import RESERVED, _attach, _detach, _forget_owner, _undo_set_data

unpack_from_i = Struct(">i").unpack_from
pack_ibii = Struct(">i?ii").pack
pack_iiqii = Struct(">iiqii").pack
pack_ibi = Struct(">i?i").pack
RESULT_2 = pack_ibi(2, False, 0)
pack_iiqi = Struct(">iiqi").pack
RESULT_5 = pack_ibi(5, False, 0)
RESULT_13 = pack_ibi(13, False, 0)


def create(state, client, buf, offset, end, results=None):
    """Execute CREATE, in its general form in ``writes.py``."""
    try:
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            path, offset = str_or_null_at(buf, start - 4, end)
        else:
            try:
                path = buf[start:offset].decode()
            except UnicodeDecodeError:
                path = text(buf[start:offset])
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            data, offset = bytes_or_null_at(buf, start - 4, end)
        else:
            data = buf[start:offset]
        if buf[offset : offset + 27] == encoded_acl:
            acl = usual_acl
            offset += 27
        else:
            acl, offset = read_acl(buf, offset, end)
        (flags,) = unpack_from_i(buf, offset)
        offset += 4
    except StructError:
        raise MarshallingError(detail="unexpected end of data in CreateRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in CreateRequest")
    if results is None:
        state.zxid += 1
    if results is not None and (
        acl is None or flags not in SHORT_MODES or path is None or (state.quota.changes is not None)
    ):
        return 0
    path_1 = path
    acl_1 = acl
    if flags not in PLAIN_MODES:
        refuse_flags(state, path_1, flags)
    path_2 = path_1
    if path_2 is None:
        raise MarshallingError(None, "a path must not be null")
    above_2, slash_2, name_2 = path_2.rpartition("/")
    if not slash_2 or "\x00" in path_2:
        raise BadArgumentsError(path_2)
    to_store_2 = OPEN_ACL_UNSAFE if acl_1 is OPEN_ACL_UNSAFE else state.acls.normalized(acl_1, client, path_2)
    parent_2 = state.tree.path_cache.get(above_2) or state.tree.find(above_2)
    if parent_2.acl:
        state.acls.check(parent_2.acl, client, Perm.CREATE, path_2)
    if flags & SEQUENTIAL:
        number_3 = parent_2.creates
        suffix_2 = f"{number_3:010d}"
        path_2 += suffix_2
        name_2 += suffix_2
        if state.on_requests is not None:
            state.details.append((state.zxid, path_2))
    if above_2 == ROOT or not (
        name_2.isprintable() and name_2 not in _DOTS if name_2.isascii() else re.search(_FORBIDDEN, name_2) is None
    ):
        if path_2 == "/":
            raise NodeExistsError(path_2)
        raise BadArgumentsError(path_2, paths.path_error(path_2) or "")
    if parent_2.children and name_2 in parent_2.children:
        raise NodeExistsError(path_2)
    if parent_2.owner and is_session(parent_2.owner):
        raise NoChildrenForEphemeralsError(path_2)
    if state.quota.enforced:
        state.quota.check(path_2, 1, len(data or b""))
    is_ephemeral_1 = flags & EPHEMERAL != 0
    owner_1 = client.session.id if is_ephemeral_1 and client.session is not None else 0
    acl_key_5 = 0 if to_store_2 is OPEN_ACL_UNSAFE else state.acls.intern(to_store_2)
    self_6 = state.tree
    zxid_6 = state.zxid
    now_6 = state.now
    if acl_key_5 or owner_1 or data is None or (not self_6.packs):
        node_6 = Node(data, acl_key_5, owner_1, zxid_6, now_6)
    else:
        node_6 = pack_leaf(zxid_6, now_6) + data
    children_6 = parent_2.children
    if children_6 is None:
        children_6 = parent_2.children = Children()
    if self_6._undo is not None:
        if owner_1 and owner_1 not in self_6.ephemerals:
            self_6._undo.append((_forget_owner, owner_1))
        self_6._undo.append((_detach, path_2, name_2, parent_2, node_6, parent_2.creates, parent_2.pzxid))
    children_6[name_2] = node_6
    if children_6.encoding is not None:
        children_6.add_encoded(name_2)
    creates_6 = parent_2.creates + 1
    parent_2.creates = creates_6 if creates_6 < 2147483648 else int32(creates_6)
    parent_2.pzxid = zxid_6
    parent_2.encoding = None
    self_6.size += 1
    self_6.data_size += len(path_2) + (len(data) if data else 0)
    if owner_1:
        self_6._index_owner(path_2, node_6)
    if self_6._counts_below:
        self_6._count(path_2, 1)
    watches_5 = state.watches
    if watches_5.active:
        watches_5.created(path_2, acl_key_5, paths.parent(path_2), parent_2.acl, state.zxid)
    if state.quota.active or (path_2 >= QUOTA and path_2.startswith(QUOTA)):
        state.quota.created(path_2, len(data or b""))
    if state.record is not None:
        log(state, client, 1, CreateTxn(path_2, data, to_store_2, is_ephemeral_1, parent_2.creates))
    raw_7 = path_2.encode()
    if results is not None:
        results.append(pack_ibii(1, False, 0, len(raw_7)) + raw_7)
        return offset
    return pack_iiqii(20 + len(raw_7), client.last_xid, state.zxid, 0, len(raw_7)) + raw_7


def delete(state, client, buf, offset, end, results=None):
    """Execute DELETE, in its general form in ``writes.py``."""
    try:
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            path, offset = str_or_null_at(buf, start - 4, end)
        else:
            try:
                path = buf[start:offset].decode()
            except UnicodeDecodeError:
                path = text(buf[start:offset])
        (version,) = unpack_from_i(buf, offset)
        offset += 4
    except StructError:
        raise MarshallingError(detail="unexpected end of data in DeleteRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in DeleteRequest")
    if results is None:
        state.zxid += 1
    if path is None:
        raise MarshallingError(None, "a path must not be null")
    above_1, slash_1, name_1 = path.rpartition("/")
    if not slash_1 or "\x00" in path or path in RESERVED:
        raise BadArgumentsError(path)
    parent_1 = state.tree.path_cache.get(above_1) or state.tree.find(above_1)
    if parent_1.acl:
        state.acls.check(parent_1.acl, client, Perm.DELETE, path)
    node_1 = parent_1.children.get(name_1) if parent_1.children else None
    if node_1 is None or above_1 == ROOT:
        raise NoNodeError(path)
    is_packed_1 = isinstance(node_1, bytes)
    found_1 = 0 if is_packed_1 else node_1.version
    if version != ANY_VERSION and version != found_1:
        raise bad_version(path, version, found_1)
    if not is_packed_1 and node_1.children:
        raise NotEmptyError(path)
    self_2 = state.tree
    zxid_2 = state.zxid
    if self_2._undo is not None:
        self_2._undo.append((_attach, path, name_1, parent_1, node_1, parent_1.creates, parent_1.pzxid))
    children_3 = parent_1.children
    if self_2._counts_below:
        self_2._count(path, -1)
    del children_3[name_1]
    if not children_3:
        parent_1.children = None
    elif children_3.encoding is not None:
        children_3.drop_encoded(name_1)
    self_2.path_cache.pop(path, None)
    self_2.size -= 1
    if isinstance(node_1, bytes):
        self_2.data_size -= len(path) + len(node_1) - LEAF_HEADER
    else:
        self_2.data_size -= len(path) + (len(node_1.data) if node_1.data else 0)
        if node_1.owner:
            self_2._drop_owner(path, node_1)
    parent_1.pzxid = zxid_2
    parent_1.encoding = None
    if state.watches.active or state.quota.active or (not is_packed_1 and node_1.acl):
        note_deleted(state, path, unpacked(node_1) if isinstance(node_1, bytes) else node_1, parent_1)
    if state.record is not None:
        log(state, client, 2, DeleteTxn(path))
    if results is not None:
        results.append(RESULT_2)
        return offset
    return pack_iiqi(16, client.last_xid, state.zxid, 0)


def set_data(state, client, buf, offset, end, results=None):
    """Execute SET_DATA, in its general form in ``writes.py``."""
    try:
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            path, offset = str_or_null_at(buf, start - 4, end)
        else:
            try:
                path = buf[start:offset].decode()
            except UnicodeDecodeError:
                path = text(buf[start:offset])
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            data, offset = bytes_or_null_at(buf, start - 4, end)
        else:
            data = buf[start:offset]
        (version,) = unpack_from_i(buf, offset)
        offset += 4
    except StructError:
        raise MarshallingError(detail="unexpected end of data in SetDataRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in SetDataRequest")
    if results is None:
        state.zxid += 1
    node_1 = (state.tree.path_cache.get(path) if path else None) or node_at(state, path)
    if node_1.acl:
        state.acls.check(node_1.acl, client, Perm.WRITE, path)
    if state.quota.enforced:
        state.quota.check(path, 0, len(data or b"") - len(node_1.data or b""))
    old_1 = node_1.version
    if version != ANY_VERSION and version != old_1:
        raise bad_version(path, version, old_1)
    new_1 = old_1 + 1 if old_1 < 2147483647 else int32(old_1 + 1)
    before_2, quota_2 = (node_1.data, state.quota)
    self_3 = state.tree
    zxid_3 = state.zxid
    now_3 = state.now
    if self_3._undo is not None:
        self_3._undo.append((_undo_set_data, node_1, node_1.data, node_1.version, node_1.mzxid, node_1.mtime))
    self_3.data_size += (len(data) if data else 0) - (len(node_1.data) if node_1.data else 0)
    node_1.data = data
    node_1.version = new_1
    node_1.mzxid = zxid_3
    node_1.mtime = now_3
    node_1.encoding = None
    if state.watches.active:
        state.watches.changed(path, node_1.acl, state.zxid)
    if quota_2.active:
        quota_2.changed(path, before_2, data)
    if state.record is not None:
        log(state, client, 5, SetDataTxn(path, data, new_1))
    stat_5 = node_1.encoding
    if stat_5 is None:
        data_5, children_5, owner_5 = (node_1.data, node_1.children, node_1.owner)
        count_5 = len(children_5) if children_5 else 0
        cversion_5 = node_1.creates * 2 - count_5
        stat_5 = node_1.encoding = _STAT(
            node_1.czxid,
            node_1.mzxid,
            node_1.ctime,
            node_1.mtime,
            node_1.version,
            cversion_5 if -2147483648 <= cversion_5 < 2147483648 else int32(cversion_5),
            node_1.aversion,
            owner_5 if owner_5 >= 0 or CONTAINER_OWNER < owner_5 < _TTL_OWNER else 0,
            len(data_5) if data_5 else 0,
            count_5,
            node_1.pzxid,
        )
    if results is not None:
        results.append(RESULT_5 + stat_5)
        return offset
    return pack_iiqi(16 + len(stat_5), client.last_xid, state.zxid, 0) + stat_5


def check(state, client, buf, offset, end, results=None):
    """Execute CHECK, in its general form in ``writes.py``."""
    try:
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            path, offset = str_or_null_at(buf, start - 4, end)
        else:
            try:
                path = buf[start:offset].decode()
            except UnicodeDecodeError:
                path = text(buf[start:offset])
        (version,) = unpack_from_i(buf, offset)
        offset += 4
    except StructError:
        raise MarshallingError(detail="unexpected end of data in CheckVersionRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in CheckVersionRequest")
    node_1 = node_at(state, path)
    state.acls.check(node_1.acl, client, Perm.READ, path)
    if version not in (ANY_VERSION, node_1.version):
        raise bad_version(path, version, node_1.version)
    if state.record is not None:
        log(state, client, 13, CheckVersionTxn(path, version))
    results.append(RESULT_13)
    return offset


def create2(state, client, buf, offset, end, results=None):
    """Execute CREATE2, in its general form in ``writes.py``."""
    try:
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            path, offset = str_or_null_at(buf, start - 4, end)
        else:
            try:
                path = buf[start:offset].decode()
            except UnicodeDecodeError:
                path = text(buf[start:offset])
        (size,) = int_at(buf, offset)
        start = offset + 4
        offset = start + size
        if size < 0 or offset > end:
            data, offset = bytes_or_null_at(buf, start - 4, end)
        else:
            data = buf[start:offset]
        if buf[offset : offset + 27] == encoded_acl:
            acl = usual_acl
            offset += 27
        else:
            acl, offset = read_acl(buf, offset, end)
        (flags,) = unpack_from_i(buf, offset)
        offset += 4
    except StructError:
        raise MarshallingError(detail="unexpected end of data in CreateRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in CreateRequest")
    state.zxid += 1
    path_1 = path
    acl_1 = acl
    if flags not in PLAIN_MODES:
        refuse_flags(state, path_1, flags)
    path_2 = path_1
    if path_2 is None:
        raise MarshallingError(None, "a path must not be null")
    above_2, slash_2, name_2 = path_2.rpartition("/")
    if not slash_2 or "\x00" in path_2:
        raise BadArgumentsError(path_2)
    to_store_2 = OPEN_ACL_UNSAFE if acl_1 is OPEN_ACL_UNSAFE else state.acls.normalized(acl_1, client, path_2)
    parent_2 = state.tree.path_cache.get(above_2) or state.tree.find(above_2)
    if parent_2.acl:
        state.acls.check(parent_2.acl, client, Perm.CREATE, path_2)
    if flags & SEQUENTIAL:
        number_3 = parent_2.creates
        suffix_2 = f"{number_3:010d}"
        path_2 += suffix_2
        name_2 += suffix_2
        if state.on_requests is not None:
            state.details.append((state.zxid, path_2))
    if above_2 == ROOT or not (
        name_2.isprintable() and name_2 not in _DOTS if name_2.isascii() else re.search(_FORBIDDEN, name_2) is None
    ):
        if path_2 == "/":
            raise NodeExistsError(path_2)
        raise BadArgumentsError(path_2, paths.path_error(path_2) or "")
    if parent_2.children and name_2 in parent_2.children:
        raise NodeExistsError(path_2)
    if parent_2.owner and is_session(parent_2.owner):
        raise NoChildrenForEphemeralsError(path_2)
    if state.quota.enforced:
        state.quota.check(path_2, 1, len(data or b""))
    is_ephemeral_1 = flags & EPHEMERAL != 0
    owner_1 = client.session.id if is_ephemeral_1 and client.session is not None else 0
    acl_key_5 = 0 if to_store_2 is OPEN_ACL_UNSAFE else state.acls.intern(to_store_2)
    self_6 = state.tree
    zxid_6 = state.zxid
    now_6 = state.now
    if acl_key_5 or owner_1 or data is None or (not self_6.packs):
        node_6 = Node(data, acl_key_5, owner_1, zxid_6, now_6)
    else:
        node_6 = pack_leaf(zxid_6, now_6) + data
    children_6 = parent_2.children
    if children_6 is None:
        children_6 = parent_2.children = Children()
    if self_6._undo is not None:
        if owner_1 and owner_1 not in self_6.ephemerals:
            self_6._undo.append((_forget_owner, owner_1))
        self_6._undo.append((_detach, path_2, name_2, parent_2, node_6, parent_2.creates, parent_2.pzxid))
    children_6[name_2] = node_6
    if children_6.encoding is not None:
        children_6.add_encoded(name_2)
    creates_6 = parent_2.creates + 1
    parent_2.creates = creates_6 if creates_6 < 2147483648 else int32(creates_6)
    parent_2.pzxid = zxid_6
    parent_2.encoding = None
    self_6.size += 1
    self_6.data_size += len(path_2) + (len(data) if data else 0)
    if owner_1:
        self_6._index_owner(path_2, node_6)
    if self_6._counts_below:
        self_6._count(path_2, 1)
    watches_5 = state.watches
    if watches_5.active:
        watches_5.created(path_2, acl_key_5, paths.parent(path_2), parent_2.acl, state.zxid)
    if state.quota.active or (path_2 >= QUOTA and path_2.startswith(QUOTA)):
        state.quota.created(path_2, len(data or b""))
    if state.record is not None:
        log(state, client, 15, CreateTxn(path_2, data, to_store_2, is_ephemeral_1, parent_2.creates))
    raw_7 = path_2.encode()
    rest_1 = stat_of(node_6)
    return pack_iiqii(20 + len(raw_7) + len(rest_1), client.last_xid, state.zxid, 0, len(raw_7)) + raw_7 + rest_1


def multi(state, client, buf, offset, end):
    """Execute MULTI, in its general form in ``multi.py``."""
    offset_1 = offset
    session_id_1 = client.session.id
    state.zxid += 1
    span_1 = (buf, offset_1, end)
    results_1 = []
    performed_1 = []
    failed_1 = []
    record_1, limit_1 = (state.record, state.settings.max_multi_operations)
    if record_1 is not None:
        state.record = performed_1.append
    self_3 = state.tree
    if self_3._undo is None:
        self_3._undo = []
    self_3._begun.append(len(self_3._undo))
    self_4 = state.watches
    self_4._held = []
    state.quota.in_transaction = state.acls.in_transaction = True
    try:
        for __1 in range(limit_1 + 1):
            at_1 = offset_1 + _HEADER_SIZE
            if at_1 > end:
                raise MarshallingError(None, "the end of the operations is missing")
            kind_1, done_1, __1 = _header_at(buf, offset_1)
            if done_1:
                break
            part_1 = PARTS.get(kind_1)
            after_1 = part_1(state, client, buf, at_1, end, results_1) if part_1 is not None else 0
            offset_1 = after_1 or perform_part(state, client, kind_1, buf, at_1, end, results_1)
        else:
            raise MarshallingError(None, f"a transaction may contain at most {limit_1} operations")
    except ZooKeeperError as error_1:
        state.roll_back()
        failed_1 = _fail(state, client, span_1, offset_1, error_1, results_1)
    except BaseException:
        state.roll_back()
        raise
    else:
        self_6 = state.tree
        self_6._begun.pop()
        if not self_6._begun:
            self_6._undo = None
        quota_5, acls_5 = (state.quota, state.acls)
        quota_5.in_transaction = acls_5.in_transaction = False
        if quota_5.changes is not None:
            quota_5.commit(quota_5.changes)
        self_7 = state.watches
        held_7, self_7._held = (self_7._held or [], None)
        for store_7, path_7, event_7, acl_7, zxid_7 in held_7:
            self_7._fire(store_7, path_7, event_7, acl_7, zxid_7)
        if acls_5.changes is not None:
            acls_5.release_all(acls_5.changes.released)
    finally:
        state.record = record_1
    if record_1 is not None:
        parts_1 = [(kind_1, txn_1) for __1, __1, __1, __1, kind_1, txn_1 in performed_1]
        record_1((session_id_1, client.last_xid, state.zxid, state.now, OpCode.MULTI, parts_1 + failed_1))
    results_1.append(wire.END)
    rest_0 = b"".join(results_1)
    return pack_iiqi(16 + len(rest_0), client.last_xid, state.zxid, 0) + rest_0


RUNS.update({1: create, 15: create2, 2: delete, 5: set_data, 14: multi})
PARTS.update({1: create, 2: delete, 5: set_data, 13: check})

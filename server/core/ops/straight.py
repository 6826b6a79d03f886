"""The frequent requests, each as one function from the bytes of the request to the frame of the reply. For an
operation of a multi, it adds the encoded result to a list.

Made by ``make straight`` from the general forms in ``reads.py``, ``writes.py`` and ``multi.py``, the functions that
they call and the records of the requests; do not edit. Decision 37 gives the reasons.
"""

# mypy: ignore-errors
# pyright: basic, reportArgumentType=false, reportOptionalMemberAccess=false
# ruff: noqa

from __future__ import annotations

from struct import Struct

import re
from ....protocol import multi as wire, paths
from ....protocol.acl import OPEN_ACL_UNSAFE, _OPEN_BYTES, _OPEN_SIZE, _read_entries
from ....protocol.codec import Decoded, StructError, bytes_or_null_at, int_at, str_or_null_at, text
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
from ....protocol.paths import QUOTA, ROOT, _FORBIDDEN, _RESERVED_NAMES
from ....protocol.quotas import STATS
from ....protocol.records import ExistsRequest, GetChildrenRequest, GetDataRequest
from ....protocol.txns import CheckVersionTxn, CreateTxn, DeleteTxn, SetDataTxn
from ..node import (
    CONTAINER_OWNER,
    Children,
    LEAF_HEADER,
    Node,
    _STAT,
    _TTL_OWNER,
    encode_stat,
    int32,
    is_session,
    pack_leaf,
    unpacked,
)
from .dispatch import STRAIGHT_OPERATIONS, STRAIGHT_REQUESTS
from .multi import _HEADER_SIZE, _SHORT_MODES, _fail, _header_at, perform_part
from .reads import NO_NAMES
from .writes import bad_version, finish_delete, log, node_at, refuse_flags
from ..tree import RESERVED, _attach, _detach, _forget_owner, _undo_set_data
from ..watches import CHILD, DATA, STANDARD

unpack_from_i = Struct(">i").unpack_from
pack_ibii = Struct(">i?ii").pack
pack_iiqii = Struct(">iiqii").pack
pack_ibi = Struct(">i?i").pack
RESULT_2 = pack_ibi(2, False, 0)
pack_iiqi = Struct(">iiqi").pack
RESULT_5 = pack_ibi(5, False, 0)
RESULT_13 = pack_ibi(13, False, 0)
exists_requests = Decoded(ExistsRequest)
get_data_requests = Decoded(GetDataRequest)
get_children2_requests = Decoded(GetChildrenRequest)


def create(state, client, buf, offset, end, results=None):
    """Execute CREATE. Its general form is in ``writes.py``."""
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
        acl_1 = OPEN_ACL_UNSAFE
        after_1 = offset + _OPEN_SIZE
        if buf[offset:after_1] != _OPEN_BYTES or after_1 > end:
            acl_1, after_1 = _read_entries(buf, offset, end)
        acl, offset = (acl_1, after_1)
        (flags,) = unpack_from_i(buf, offset)
        offset += 4
        pass
    except StructError:
        raise MarshallingError(detail="unexpected end of data in CreateRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in CreateRequest")
    if results is None:
        state.zxid += 1
    if results is not None and (
        acl is None
        or flags not in _SHORT_MODES
        or (state.quota.changes is not None and path is not None and path.endswith(STATS))
    ):
        return 0
    path_3 = path
    acl_3 = acl
    if flags not in PLAIN_MODES:
        refuse_flags(state, path_3, flags)
    path_4 = path_3
    if path_4 is None:
        raise MarshallingError(None, "a path must not be null")
    above_4, slash_4, name_4 = path_4.rpartition("/")
    if not slash_4 or "\x00" in path_4:
        raise BadArgumentsError(path_4)
    to_store_4 = OPEN_ACL_UNSAFE if acl_3 is OPEN_ACL_UNSAFE else state.acls.normalize(acl_3, client, path_4)
    parent_4 = state.tree.path_cache.get(above_4) or state.tree.find(above_4)
    if parent_4.acl:
        state.acls.check(parent_4.acl, client, Perm.CREATE, path_4)
    if flags & SEQUENTIAL:
        number_5 = parent_4.creates
        suffix_4 = f"{number_5:010d}"
        path_4 += suffix_4
        name_4 += suffix_4
        if state.on_requests is not None:
            state.details.append((state.zxid, path_4))
    if above_4 == ROOT or not (
        name_4.isprintable() and name_4 not in _RESERVED_NAMES
        if name_4.isascii()
        else re.search(_FORBIDDEN, name_4) is None
    ):
        if path_4 == "/":
            raise NodeExistsError(path_4)
        raise BadArgumentsError(path_4, paths.path_error(path_4) or "")
    if parent_4.children and name_4 in parent_4.children:
        raise NodeExistsError(path_4)
    if parent_4.owner and is_session(parent_4.owner):
        raise NoChildrenForEphemeralsError(path_4)
    if state.quota.enforced:
        state.quota.check(path_4, 1, len(data or b""))
    is_ephemeral_3 = flags & EPHEMERAL != 0
    owner_3 = client.session.id if is_ephemeral_3 and client.session is not None else 0
    acl_key_8 = 0 if to_store_4 is OPEN_ACL_UNSAFE else state.acls.intern(to_store_4)
    self_9 = state.tree
    zxid_9 = state.zxid
    now_9 = state.now
    if acl_key_8 or owner_3 or data is None or (not self_9.packs):
        node_9 = Node(data, acl_key_8, owner_3, zxid_9, now_9)
    else:
        node_9 = pack_leaf(zxid_9, now_9) + data
    children_9 = parent_4.children
    if children_9 is None:
        children_9 = parent_4.children = Children()
    if self_9._undo is not None:
        if owner_3 and owner_3 not in self_9.ephemerals:
            self_9._undo.append((_forget_owner, owner_3))
        self_9._undo.append((_detach, path_4, name_4, parent_4, node_9, parent_4.creates, parent_4.pzxid))
    children_9[name_4] = node_9
    if children_9.encoding is not None:
        children_9.record_added(name_4)
    creates_9 = parent_4.creates + 1
    parent_4.creates = creates_9 if creates_9 < 2147483648 else int32(creates_9)
    parent_4.pzxid = zxid_9
    parent_4.encoding = None
    self_9.size += 1
    size_9 = len(data) if data else 0
    self_9.data_size += len(path_4) + size_9
    if size_9 > self_9.largest:
        self_9.largest = size_9
    if owner_3:
        self_9._index_owner(path_4, node_9)
    if self_9._counts_below:
        self_9._count(path_4, 1)
    watches_8 = state.watches
    if watches_8.active:
        watches_8.created(path_4, acl_key_8, paths.parent(path_4), parent_4.acl, state.zxid)
    if state.quota.active or (path_4 >= QUOTA and path_4.startswith(QUOTA)):
        state.quota.created(path_4, len(data or b""))
    if state.record is not None:
        log(state, client, 1, CreateTxn(path_4, data, to_store_4, is_ephemeral_3, parent_4.creates))
    raw_11 = path_4.encode()
    if results is not None:
        results.append(pack_ibii(1, False, 0, len(raw_11)) + raw_11)
        return offset
    return pack_iiqii(20 + len(raw_11), client.last_xid, state.zxid, 0, len(raw_11)) + raw_11


def delete(state, client, buf, offset, end, results=None):
    """Execute DELETE. Its general form is in ``writes.py``."""
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
        pass
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
        children_3.record_removed(name_1)
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
        finish_delete(state, path, unpacked(node_1) if isinstance(node_1, bytes) else node_1, parent_1)
    if state.record is not None:
        log(state, client, 2, DeleteTxn(path))
    if results is not None:
        results.append(RESULT_2)
        return offset
    return pack_iiqi(16, client.last_xid, state.zxid, 0)


def set_data(state, client, buf, offset, end, results=None):
    """Execute SET_DATA. Its general form is in ``writes.py``."""
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
        pass
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
    size_3 = len(data) if data else 0
    self_3.data_size += size_3 - (len(node_1.data) if node_1.data else 0)
    if size_3 > self_3.largest:
        self_3.largest = size_3
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
    """Execute CHECK. Its general form is in ``writes.py``."""
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
        pass
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
    """Execute CREATE2. Its general form is in ``writes.py``."""
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
        acl_1 = OPEN_ACL_UNSAFE
        after_1 = offset + _OPEN_SIZE
        if buf[offset:after_1] != _OPEN_BYTES or after_1 > end:
            acl_1, after_1 = _read_entries(buf, offset, end)
        acl, offset = (acl_1, after_1)
        (flags,) = unpack_from_i(buf, offset)
        offset += 4
        pass
    except StructError:
        raise MarshallingError(detail="unexpected end of data in CreateRequest") from None
    if offset > end:
        raise MarshallingError(detail="unexpected end of data in CreateRequest")
    state.zxid += 1
    path_2 = path
    acl_2 = acl
    if flags not in PLAIN_MODES:
        refuse_flags(state, path_2, flags)
    path_3 = path_2
    if path_3 is None:
        raise MarshallingError(None, "a path must not be null")
    above_3, slash_3, name_3 = path_3.rpartition("/")
    if not slash_3 or "\x00" in path_3:
        raise BadArgumentsError(path_3)
    to_store_3 = OPEN_ACL_UNSAFE if acl_2 is OPEN_ACL_UNSAFE else state.acls.normalize(acl_2, client, path_3)
    parent_3 = state.tree.path_cache.get(above_3) or state.tree.find(above_3)
    if parent_3.acl:
        state.acls.check(parent_3.acl, client, Perm.CREATE, path_3)
    if flags & SEQUENTIAL:
        number_4 = parent_3.creates
        suffix_3 = f"{number_4:010d}"
        path_3 += suffix_3
        name_3 += suffix_3
        if state.on_requests is not None:
            state.details.append((state.zxid, path_3))
    if above_3 == ROOT or not (
        name_3.isprintable() and name_3 not in _RESERVED_NAMES
        if name_3.isascii()
        else re.search(_FORBIDDEN, name_3) is None
    ):
        if path_3 == "/":
            raise NodeExistsError(path_3)
        raise BadArgumentsError(path_3, paths.path_error(path_3) or "")
    if parent_3.children and name_3 in parent_3.children:
        raise NodeExistsError(path_3)
    if parent_3.owner and is_session(parent_3.owner):
        raise NoChildrenForEphemeralsError(path_3)
    if state.quota.enforced:
        state.quota.check(path_3, 1, len(data or b""))
    is_ephemeral_2 = flags & EPHEMERAL != 0
    owner_2 = client.session.id if is_ephemeral_2 and client.session is not None else 0
    acl_key_7 = 0 if to_store_3 is OPEN_ACL_UNSAFE else state.acls.intern(to_store_3)
    self_8 = state.tree
    zxid_8 = state.zxid
    now_8 = state.now
    if acl_key_7 or owner_2 or data is None or (not self_8.packs):
        node_8 = Node(data, acl_key_7, owner_2, zxid_8, now_8)
    else:
        node_8 = pack_leaf(zxid_8, now_8) + data
    children_8 = parent_3.children
    if children_8 is None:
        children_8 = parent_3.children = Children()
    if self_8._undo is not None:
        if owner_2 and owner_2 not in self_8.ephemerals:
            self_8._undo.append((_forget_owner, owner_2))
        self_8._undo.append((_detach, path_3, name_3, parent_3, node_8, parent_3.creates, parent_3.pzxid))
    children_8[name_3] = node_8
    if children_8.encoding is not None:
        children_8.record_added(name_3)
    creates_8 = parent_3.creates + 1
    parent_3.creates = creates_8 if creates_8 < 2147483648 else int32(creates_8)
    parent_3.pzxid = zxid_8
    parent_3.encoding = None
    self_8.size += 1
    size_8 = len(data) if data else 0
    self_8.data_size += len(path_3) + size_8
    if size_8 > self_8.largest:
        self_8.largest = size_8
    if owner_2:
        self_8._index_owner(path_3, node_8)
    if self_8._counts_below:
        self_8._count(path_3, 1)
    watches_7 = state.watches
    if watches_7.active:
        watches_7.created(path_3, acl_key_7, paths.parent(path_3), parent_3.acl, state.zxid)
    if state.quota.active or (path_3 >= QUOTA and path_3.startswith(QUOTA)):
        state.quota.created(path_3, len(data or b""))
    if state.record is not None:
        log(state, client, 15, CreateTxn(path_3, data, to_store_3, is_ephemeral_2, parent_3.creates))
    raw_10 = path_3.encode()
    rest_1 = encode_stat(node_8)
    return b"".join(
        (pack_iiqii(20 + len(raw_10) + len(rest_1), client.last_xid, state.zxid, 0, len(raw_10)), raw_10, rest_1)
    )


def exists(state, client, buf, offset, end):
    """Execute EXISTS. Its general form is in ``reads.py``."""
    request = exists_requests[buf[offset:end]]
    if "\x00" in request.path:
        raise BadArgumentsError(request.path)
    node_1 = state.tree.path_cache.get(request.path) or state.tree.get(request.path)
    if node_1 is not None and node_1.acl and state.settings.compat.exists_needs_read:
        state.acls.check(node_1.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, DATA, request.path, STANDARD)
    if node_1 is None:
        raise NoNodeError(request.path)
    rest_0 = node_1.encoding or node_1.stat()
    return pack_iiqi(16 + len(rest_0), client.last_xid, state.zxid, 0) + rest_0


def get_data(state, client, buf, offset, end):
    """Execute GET_DATA. Its general form is in ``reads.py``."""
    request = get_data_requests[buf[offset:end]]
    node_1 = state.tree.path_cache.get(request.path) or state.tree.find(request.path)
    if node_1.acl:
        state.acls.check(node_1.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, DATA, request.path, STANDARD)
    data_1, size_1 = (node_1.data, len(node_1.data)) if node_1.data is not None else (b"", -1)
    rest_1 = node_1.encoding or node_1.stat()
    return b"".join(
        (pack_iiqii(20 + len(data_1) + len(rest_1), client.last_xid, state.zxid, 0, size_1), data_1, rest_1)
    )


def get_children2(state, client, buf, offset, end):
    """Execute GET_CHILDREN2. Its general form is in ``reads.py``."""
    request = get_children2_requests[buf[offset:end]]
    node_2 = state.tree.path_cache.get(request.path) or state.tree.find(request.path)
    if node_2.acl:
        state.acls.check(node_2.acl, client, Perm.READ, request.path)
    if request.watch:
        state.watches.add(client, CHILD, request.path, STANDARD)
    names_2 = node_2.children.encoded() if node_2.children else NO_NAMES
    rest_1 = node_2.encoding or node_2.stat()
    return b"".join((pack_iiqi(16 + len(names_2) + len(rest_1), client.last_xid, state.zxid, 0), names_2, rest_1))


def multi(state, client, buf, offset, end):
    """Execute MULTI. Its general form is in ``multi.py``."""
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
        for _ in range(limit_1 + 1):
            at_1 = offset_1 + _HEADER_SIZE
            if at_1 > end:
                raise MarshallingError(None, "the end of the operations is missing")
            kind_1, done_1 = _header_at(buf, offset_1)
            if done_1:
                break
            part_1 = STRAIGHT_OPERATIONS.get(kind_1)
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
        parts_1 = [(kind_1, txn_1) for _, _, _, _, kind_1, txn_1 in performed_1]
        record_1((session_id_1, client.last_xid, state.zxid, state.now, OpCode.MULTI, parts_1 + failed_1))
    results_1.append(wire.END)
    rest_0 = b"".join(results_1)
    return pack_iiqi(16 + len(rest_0), client.last_xid, state.zxid, 0) + rest_0


STRAIGHT_REQUESTS.update(
    {3: exists, 4: get_data, 12: get_children2, 1: create, 15: create2, 2: delete, 5: set_data, 14: multi}
)
STRAIGHT_OPERATIONS.update({1: create, 2: delete, 5: set_data, 13: check})

"""The input of the fuzzers: valid requests, and the same requests broken in all the usual ways.

A pool of valid frames is made once; drawing from it and breaking a frame take about a microsecond each. Names, ids and
versions come from small sets, so most requests find a node, a watch or a session to work on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Any, Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.codec import NULL, Record, pack_int, put_bytes, put_str
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectRequest
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.sessions import session_password

SUPER: Final = b"super:secret"
SUPER_DIGEST: Final = digest_id(SUPER)
SASL_USERS: Final = {"alice": "wonder", "bob": "builder", "super": "secret"}
CREDENTIALS: Final = (b"alice:1", b"bob:2", b"bob", b"", b":", b"\xff\xfe:x", SUPER)
FOUR_LETTER_COMMANDS: Final = tuple(
    b"conf cons crst dirs dump envi gtmk hash isro mntr ruok srst srvr stat stmk wchc wchp wchs".split()
)

MAX_INT: Final = 2**31 - 1
INTS: Final = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    31,
    255,
    4096,
    65536,
    1 << 20,
    MAX_INT,
    -1,
    -2,
    -3,
    -4,
    -8,
    -(2**31),
    0x72756F6B,
)
WORDS_OF_INTS: Final = tuple(map(pack_int, INTS))
LONGS: Final = (0, 1, -1, 2, 1000, 2**40, 2**40 - 1, 2**63 - 1, -(2**63), -(1 << 56), 2**32)
BYTES: Final = (0, 1, 0x2F, 0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFF)
VERSIONS: Final = (-1, -1, -1, -1, 0, 0, 1, 2, -2, MAX_INT)

NAMES: Final = ("a", "b", "c")
PATHS: Final = tuple(
    [f"/{a}" for a in NAMES]
    + [f"/{a}/{b}" for a in NAMES for b in NAMES]
    + [f"/{a}/{b}/{c}" for a in NAMES for b in NAMES for c in NAMES[:2]]
)
ODD_PATHS: Final = (
    "", "/", "//", "/a/", "/a//b", "/./a", "/a/..", "a", "a/b", "/a\0b", "/\u00e9", "/a/\u20ac", "/\U0001f600",
    "/a/\uffff", "/a/\ue000x", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/quotax",
    "/" + "n" * 300, "/a/" * 40, "/\x7f", "/a b", "/%s", "/zookeeper/quota/zookeeper_limits",
    "/zookeeper/quota/zookeeper_stats",
)  # fmt: skip
QUOTA_PATHS: Final = tuple(
    f"/zookeeper/quota{above}{leaf}"
    for above in ("/a", "/a/b", "/zookeeper/quota")
    for leaf in ("", "/zookeeper_limits", "/zookeeper_stats")
)
QUOTA_DATA: Final = (
    b"count=3,bytes=100", b"count=-1,bytes=-1=;byteHardLimit=1000;countHardLimit=12",
    b"count=1,bytes=1=;byteHardLimit=-1", b"", None, b"count", b"count=x", b"\xff=1", b"=,;=",
    b"count=9999999999999999999,bytes=9999999999999999999",
)  # fmt: skip
DATA: Final = (None, b"", b"", b"x", b"12", b"data", b"\xff\0\xff", b"d" * 100, b"d" * 1500, *QUOTA_DATA[:3])
MEMBERS: Final = (
    None, "", "server.2=a:1:2:observer;3", "server.2=a:1:2:participant;3", "2=b:1:2:observer;0.0.0.0:3",
    "server.1=localhost:2888:3888:participant;0.0.0.0:2181", "1", "2,3", "x", "server.\u0662=a:\u0661:1;1", ",,\n,",
    "server.1=[::1]:1:2;3", "server.1=a:1:2;3\nserver.2=b:1:2:observer;3",
)  # fmt: skip


def acl(*entries: tuple[int, str | None, str | None]) -> AclList:
    """Build an ACL list from perms, scheme and id."""
    return tuple(ACL(perms, Id(scheme, name)) for perms, scheme, name in entries)


ACLS: Final[tuple[AclList | None, ...]] = (
    *[OPEN_ACL_UNSAFE] * 16,
    CREATOR_ALL_ACL,
    READ_ACL_UNSAFE,
    acl((31, "world", "anyone"), (31, "world", "anyone")),
    acl((31, "digest", digest_id(b"alice:1")), (1, "world", "anyone")),
    acl((31, "digest", digest_id(b"bob:2")), (31, "ip", "127.0.0.1")),
    acl((31, "ip", "127.0.0.0/8"), (3, "ip", "::1/64")),
    acl((29, "sasl", "alice"), (1, "sasl", "bob@realm"), (2, "world", "anyone")),
    acl((0, "world", "anyone")),
    acl((-1, "world", "anyone")),
    acl((31, "digest", "x")),
    acl((31, "ip", "1.2.3.4/99"), (31, "ip", "+1.2.3.4/-0")),
    acl((31, None, "anyone")),
    acl((31, "world", None), (31, "world", None)),
    acl((31, "auth", None)),
    acl((31, "x509", "CN=a"), (31, "", "")),
    (),
    None,
)


def request_frame(xid: int, op: int, body: bytes) -> bytes:
    """Encode one request with its frame."""
    return struct.pack(">iii", 8 + len(body), xid, op) + body


# --- bodies ---


def choose_path(rng: Random) -> str | None:
    """Choose a path, mostly one that can exist."""
    n = rng.random()
    if n < 0.82:
        return rng.choice(PATHS)
    if n < 0.88:
        return f"{rng.choice(PATHS)}{rng.randrange(40):010d}"
    if n < 0.94:
        return rng.choice(QUOTA_PATHS)
    return rng.choice(ODD_PATHS) if n < 0.995 else None


def choose_paths(rng: Random) -> list[str] | None:
    """Choose the paths of a setWatches."""
    return None if rng.random() < 0.03 else [choose_path(rng) or "" for _ in range(rng.randrange(5))]


def choose_data(rng: Random, where: str | None) -> bytes | None:
    """Choose data that suits a path."""
    return rng.choice(QUOTA_DATA if where is not None and "zookeeper_" in where else DATA)


def create(rng: Random) -> Record:
    where = choose_path(rng)
    flags = rng.choices((0, 1, 2, 3, 4, 5, 6, 7, -1), (40, 16, 5, 5, 2, 1, 1, 1, 1))[0]
    return r.CreateRequest(where, choose_data(rng, where), rng.choice(ACLS), flags)


def create_container(rng: Random) -> Record:
    return r.CreateRequest(choose_path(rng), rng.choice(DATA), rng.choice(ACLS), rng.choice((4, 4, 4, 0, 2, 5)))


def create_ttl(rng: Random) -> Record:
    ttl = rng.choice((1, 100, 5000, 60_000, *LONGS))
    return r.CreateTTLRequest(choose_path(rng), rng.choice(DATA), rng.choice(ACLS), rng.choice((5, 5, 6, 0)), ttl)


def set_data(rng: Random) -> Record:
    where = choose_path(rng)
    return r.SetDataRequest(where, choose_data(rng, where), rng.choice(VERSIONS))


def set_acl(rng: Random) -> Record:
    return r.SetACLRequest(rng.choice((choose_path(rng), *PATHS[:4])), rng.choice(ACLS), rng.choice(VERSIONS))


def reconfig(rng: Random) -> Record:
    one, two, three = rng.choices(MEMBERS, k=3)
    return r.ReconfigRequest(one, two, three if rng.random() < 0.4 else None, rng.choice((-1, -1, 0, 5)))


def set_watches2(rng: Random) -> Record:
    return r.SetWatches2(rng.choice((0, 3, 50, *LONGS)), *(choose_paths(rng) for _ in range(5)))


def auth(rng: Random) -> Record:
    n = rng.random()
    scheme = "digest" if n < 0.75 else "ip" if n < 0.95 else rng.choice((None, "world", "sasl", "super", "x"))
    return r.AuthPacket(0, scheme, rng.choice(CREDENTIALS) if n < 0.99 else None)


def watch_maker(kind: type[Any]) -> Callable[[Random], Record]:
    """Return a function that makes reads, some of which set a watch."""
    return lambda rng: kind(choose_path(rng) or "", rng.random() < 0.4)


def multi(rng: Random, most: int = 6) -> bytes:
    """Return the body of a transaction, sometimes with wrong types and ends."""
    makers = (
        create,
        create,
        lambda rng: r.DeleteRequest(choose_path(rng), rng.choice(VERSIONS)),
        set_data,
        create_ttl,
        check,
    )
    kinds = (OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.CREATE_TTL, OpCode.CHECK)
    chosen = [rng.randrange(len(makers)) for _ in range(rng.randrange(most) + 1)]
    operations = [(kinds[one], makers[one](rng)) for one in chosen]
    if rng.random() < 0.1:
        operations.append((OpCode.CREATE_CONTAINER, create_container(rng)))
    body = wire.encode_operations(operations)
    return body if rng.random() < 0.95 else body[:-9] + rng.choice(WORDS_OF_INTS) + b"\0" + NULL


def multi_read(rng: Random) -> bytes:
    """Return the body of a multiRead."""
    kinds = {OpCode.GET_DATA: r.GetDataRequest, OpCode.GET_CHILDREN: r.GetChildrenRequest}
    chosen = [rng.choice(list(kinds)) for _ in range(rng.randrange(5))]
    return wire.encode_operations([(op, kinds[op](choose_path(rng) or "", False)) for op in chosen])


def check(rng: Random) -> Record:
    return r.CheckVersionRequest(choose_path(rng), rng.choice(VERSIONS))


Maker = Callable[[Random], Record | bytes]
MAKERS: Final[dict[int, tuple[float, Maker]]] = {
    OpCode.CREATE: (14, create),
    OpCode.CREATE2: (5, create),
    OpCode.CREATE_CONTAINER: (2, create_container),
    OpCode.CREATE_TTL: (2, create_ttl),
    OpCode.DELETE: (8, lambda rng: r.DeleteRequest(choose_path(rng), rng.choice(VERSIONS))),
    OpCode.EXISTS: (6, watch_maker(r.ExistsRequest)),
    OpCode.GET_DATA: (7, watch_maker(r.GetDataRequest)),
    OpCode.SET_DATA: (9, set_data),
    OpCode.GET_ACL: (2, lambda rng: r.GetACLRequest(choose_path(rng) or "")),
    OpCode.SET_ACL: (2, set_acl),
    OpCode.GET_CHILDREN: (3, watch_maker(r.GetChildrenRequest)),
    OpCode.GET_CHILDREN2: (3, watch_maker(r.GetChildrenRequest)),
    OpCode.SYNC: (1, lambda rng: r.SyncRequest(choose_path(rng))),
    OpCode.PING: (3, lambda rng: b""),
    OpCode.MULTI: (5, multi),
    OpCode.MULTI_READ: (3, multi_read),
    OpCode.RECONFIG: (1, reconfig),
    OpCode.CHECK_WATCHES: (
        2,
        lambda rng: r.CheckWatchesRequest(choose_path(rng) or "", rng.choice((1, 2, 3, 4, 5, 0, 6))),
    ),
    OpCode.REMOVE_WATCHES: (
        2,
        lambda rng: r.RemoveWatchesRequest(choose_path(rng) or "", rng.choice((1, 2, 3, 4, 5, 0))),
    ),
    OpCode.SET_WATCHES: (
        1,
        lambda rng: r.SetWatches(rng.choice((0, 9, *LONGS)), *(choose_paths(rng) for _ in range(3))),
    ),
    OpCode.SET_WATCHES2: (2, set_watches2),
    OpCode.AUTH: (2, auth),
    OpCode.SASL: (0.5, lambda rng: put_bytes(rng.choice((b"", b"x", b'username="alice",nonce="', b'a=b,c="d\\"e"')))),
    OpCode.GET_EPHEMERALS: (1, lambda rng: r.GetEphemeralsRequest(rng.choice((None, "", "/", " ", choose_path(rng))))),
    OpCode.GET_ALL_CHILDREN_NUMBER: (1, lambda rng: r.GetAllChildrenNumberRequest(choose_path(rng) or "")),
    OpCode.ADD_WATCH: (2, lambda rng: r.AddWatchRequest(choose_path(rng), rng.choice((0, 0, 1, 1, 1, 2, -1)))),
    OpCode.WHO_AM_I: (1, lambda rng: b""),
    OpCode.CLOSE_SESSION: (0.15, lambda rng: b""),
    OpCode.DELETE_CONTAINER: (0.1, lambda rng: put_str(choose_path(rng))),
    OpCode.CHECK: (0.05, check),
    99: (0.05, lambda rng: rng.randbytes(8)),
}
"""For each operation, its weight and the function that makes its body."""
assert MAKERS.keys() >= OPERATIONS.keys() - {OpCode.CREATE_SESSION}  # the handshake has a row, but is not a request


def make_pool(rng: Random, count: int) -> list[bytes]:
    """Return valid requests that cover every operation, with positive xids as a client has."""
    ops = list(MAKERS)
    weights = list(accumulate(weight for weight, _ in MAKERS.values()))
    made = []
    for op in [*ops, *rng.choices(ops, cum_weights=weights, k=max(0, count - len(ops)))]:
        body = MAKERS[op][1](rng)
        xid = -4 if op == OpCode.AUTH else rng.randrange(1, MAX_INT)
        made.append(request_frame(xid, op, body if isinstance(body, bytes) else body.encode()))
    return made


# --- broken frames ---


Break = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""A function that returns the replacement of a frame, and may take parts of other frames."""


def _bit(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    at = 12 + int(rng.random() * (len(whole) - 12))
    return b"%b%c%b" % (whole[:at], whole[at] ^ (1 << int(rng.random() * 8)), whole[at + 1 :])


def _byte(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    at = 12 + int(rng.random() * (len(whole) - 12))
    return b"%b%c%b" % (whole[:at], BYTES[int(rng.random() * len(BYTES))], whole[at + 1 :])


def _word(rng: Random) -> bytes:
    return WORDS_OF_INTS[int(rng.random() * len(WORDS_OF_INTS))]


def _length_or_count(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    at = 12 + int(rng.random() * max(1, len(whole) - 15))
    return whole[:at] + _word(rng) + whole[at + 4 :] if at + 4 <= len(whole) else whole


def _truncate(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    stop = 12 + int(rng.random() * (len(whole) - 11))
    return pack_int(stop - 4) + whole[4:stop]


def _extend(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    rest = rng.randbytes(1 + int(rng.random() * 7))
    return pack_int(len(whole) - 4 + len(rest)) + whole[4:] + rest


def _other_operation(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    return whole[:8] + others[int(rng.random() * len(others))][8:12] + whole[12:]


def _splice(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    other = others[int(rng.random() * len(others))]
    body = whole[12 : 12 + int(rng.random() * (len(whole) - 11))] + other[12 + int(rng.random() * (len(other) - 11)) :]
    return pack_int(8 + len(body)) + whole[4:12] + body


def _other_xid(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    return whole[:4] + _word(rng) + whole[8:]


def _replace_by_nulls(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    words = (len(whole) - 12) // 4
    return whole[:12] + NULL * words + whole[12 + words * 4 :]


def _bad_head(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    """Break the length or the op code, which closes the connection, or send no frame at all."""
    how = rng.random()
    if how < 0.5:
        return _word(rng) + whole[4:]
    return whole[:8] + _word(rng) + whole[12:] if how < 0.8 else rng.randbytes(1 + int(rng.random() * 60))


_BREAKS: Final[dict[Break, int]] = {
    _bit: 25,
    _byte: 8,
    _length_or_count: 25,
    _truncate: 17,
    _extend: 5,
    _other_operation: 8,
    _splice: 6,
    lambda rng, whole, others: whole + whole: 2,
    _other_xid: 2,
    _replace_by_nulls: 1,
    _bad_head: 1,
}
_WEIGHTED_BREAKS: Final = tuple(how for how, times in _BREAKS.items() for _ in range(times))


def break_frame(rng: Random, whole: bytes, others: Sequence[bytes]) -> bytes:
    """Break one frame in one way. In most cases the result is still a frame, so its body is parsed."""
    if len(whole) < 13:  # the frame has no body, or has been broken before
        return whole
    return _WEIGHTED_BREAKS[int(rng.random() * len(_WEIGHTED_BREAKS))](rng, whole, others)


def make_hello(rng: Random, session_id: int) -> bytes:
    """Return the first bytes of a connection, in most cases a valid connect request.

    Args:
        rng: Source of all choices.
        session_id: The id of a session that may be alive.
    """
    n = rng.random()
    read_only = rng.choice((False, False, True, None))
    timeout = rng.choice((4000, 10_000, 40_000, 0, -1, MAX_INT))
    if n < 0.5:
        request = ConnectRequest(0, timeout, 0, NO_PASSWORD, read_only)
    elif n < 0.8:
        request = ConnectRequest(
            rng.choice((0, 0, 1, MAX_INT)), timeout, session_id, session_password(session_id), read_only
        )
    elif n < 0.86:
        password = rng.choice((None, b"", NO_PASSWORD, session_password(session_id)[:15], rng.randbytes(16)))
        request = ConnectRequest(0, timeout, session_id, password, read_only)
    elif n < 0.9:
        request = ConnectRequest(rng.choice(LONGS), rng.choice(INTS), rng.choice(LONGS), NO_PASSWORD, read_only)
    elif n < 0.94:
        return rng.choice(FOUR_LETTER_COMMANDS) + rng.choice((b"", b"\n", b" x"))
    elif n < 0.98:
        raw = bytearray(frame(ConnectRequest(0, timeout, session_id, session_password(session_id), read_only).encode()))
        raw[rng.randrange(len(raw))] = rng.choice(BYTES)
        return bytes(raw[: rng.randrange(1, len(raw) + 1)] if n < 0.96 else raw)
    else:
        return rng.randbytes(rng.randrange(1, 80))
    return frame(request.encode())


HELLO: Final = frame(ConnectRequest(0, 10_000, 0, NO_PASSWORD, False).encode())
"""A handshake that opens a session at any server."""


# --- long requests ---


def _vector(item: Callable[[int], bytes], size: int) -> bytes:
    """Return the encoding of a vector of about *size* bytes."""
    count = max(1, size // len(item(size)))
    return pack_int(count) + b"".join(map(item, range(count)))


def _entry(perms: int, scheme: str, name: str) -> bytes:
    return pack_int(perms) + put_str(scheme) + put_str(name)


HEAVY_REQUESTS: Final[dict[str, Callable[[int], bytes]]] = {
    "an ACL list, all permissions different": lambda size: request_frame(
        1, OpCode.CREATE, put_str("/h") + NULL + _vector(lambda i: _entry(i, "world", "anyone"), size) + bytes(4)
    ),
    "an ACL list, all ids different": lambda size: request_frame(
        1,
        OpCode.CREATE,
        put_str("/h") + NULL + _vector(lambda i: _entry(31, "digest", f"{i:06d}:x"), size) + bytes(4),
    ),
    "an ACL list, all the same": lambda size: request_frame(
        1, OpCode.CREATE, put_str("/h") + NULL + _vector(lambda i: _entry(31, "world", "anyone"), size) + bytes(4)
    ),
    "a SASL token of spaces": lambda size: request_frame(1, OpCode.SASL, put_bytes(b"a=" + b" " * size + b'"')),
    "a SASL token of letters": lambda size: request_frame(1, OpCode.SASL, put_bytes(b"a" * size)),
    "a SASL token of directives": lambda size: request_frame(1, OpCode.SASL, put_bytes(b"a=b," * (size // 4))),
    "a SASL token of backslashes": lambda size: request_frame(1, OpCode.SASL, put_bytes(b'a="' + b"\\" * size)),
    "many joining servers": lambda size: request_frame(
        1,
        OpCode.RECONFIG,
        put_str(",".join(f"server.{i}=a:{i:05d}:1:observer;1" for i in range(size // 31))) + NULL + NULL + NULL * 2,
    ),
    "a joining server of dots": lambda size: request_frame(
        1, OpCode.RECONFIG, put_str("." * size + "=a:1:1;1") + NULL + NULL + NULL * 2
    ),
    "a joining server of digits": lambda size: request_frame(
        1, OpCode.RECONFIG, put_str("server.2=" + "1" * size + ":1:") + NULL + NULL + NULL * 2
    ),
    "setWatches for nodes that are gone": lambda size: request_frame(
        1, OpCode.SET_WATCHES, bytes(8) + _vector(lambda i: put_str("/x/y/z/gone"), size) + bytes(8)
    ),
    "recursive watches": lambda size: request_frame(
        1, OpCode.SET_WATCHES2, bytes(24) + _vector(lambda i: put_str(f"/{i:08d}"), size)
    ),
    "a path of slashes": lambda size: request_frame(1, OpCode.EXISTS, put_str("/" * size) + b"\1"),
    "a path of many parts": lambda size: request_frame(1, OpCode.SET_DATA, put_str("/a" * (size // 2)) + NULL + NULL),
    "a path of bad UTF-8": lambda size: request_frame(
        1, OpCode.EXISTS, put_bytes(b"\xed\xa0\x80" * (size // 3)) + b"\0"
    ),
    "a transaction of checks": lambda size: request_frame(
        1,
        OpCode.MULTI,
        wire.encode_operations([(OpCode.CHECK, r.CheckVersionRequest("/", -1))] * (size // 18)),
    ),
    "a transaction of creates that fails at its end": lambda size: request_frame(
        1,
        OpCode.MULTI,
        wire.encode_operations(
            [(OpCode.CREATE, r.CreateRequest(f"/{i}", None, OPEN_ACL_UNSAFE, 2)) for i in range(size // 56)]
            + [(OpCode.CHECK, r.CheckVersionRequest("/none", -1))]
        ),
    ),
    "credentials": lambda size: request_frame(
        -4, OpCode.AUTH, bytes(4) + put_str("digest") + put_bytes(b"u:" + b"p" * size)
    ),
}
"""Functions that make a request of about the given size; its cost must not grow faster than its size."""

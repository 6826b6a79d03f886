"""Steps for a :class:`~differential.pair.Pair`, as hypothesis strategies: mostly sensible, often odd, sometimes
malformed.

A script has one of three topics: anything, watches of all kinds on a few paths, or quotas. Null paths are everywhere,
except where they stop the real 3.8.0: in a watch that stays, and in a multi.

Steps that stop the real server or whose result is undefined (spec 05, appendices B and D) are left out; the pitfall
tests cover them. For example, a stats node of a quota is only written with a valid text, and no quota is ephemeral: the
order in which a session's ephemeral nodes are deleted is undefined, and with it the quota's counts.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from differential.lockstep import CONNECTIONS
from differential.pair import SUPER, Connect, Drop, RawFrame, Request, Step
from differential.script import (
    Operation,
    add_watch,
    check_watches,
    children,
    create,
    exists,
    multi_of,
    read,
    remove_watches,
    request_on,
    set_watches,
    write,
)
from hypothesis import strategies as st

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.codec import NULL, Record, put_str
from zoolet.protocol.operations import OpCode

MIN_STEPS = 20
"""Minimum number of steps in a script."""
who = st.integers(0, CONNECTIONS - 1)

plain_paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/z", "/a/x/p", "/e", "/e/f", "/a/x/p/q"])
odd_paths = st.sampled_from(
    [
        "",
        "/",
        "//x",
        "/a/",
        "/a//x",
        "rel",
        "a/b",
        "/a/.",
        "/a/..",
        "/a/...",
        "/a/.x",
        "/a/\x00",
        "/a/\x01",
        "/a/\x7f",
        "/a/\x85",
        "/a/\xa0",
        "/a/é",
        "/a/\ue000",
        "/a/\uf900",
        "/a/\uffef",
        "/a/\ufff0",
        "/a/😀",
        "/zookeeper",
        "/zookeeper/config",
        "/zookeeper/quota",
        "/zookeeper/config/x",
        "/zookeeper/x",
        "/nope/x",
        "/a b",
        "/a/x/",
        "/b//",
        "/./a",
        "/a/../b",
    ]
)
paths = st.one_of(plain_paths, plain_paths, plain_paths, odd_paths)
versions = st.sampled_from([-1, -1, -1, 0, 0, 1, 2, -2, 2147483647, -2147483648])
datas = st.sampled_from([None, b"", b"x", b"yy", b"\x00\xff", b"z" * 300])

one = digest_id(b"u:p")
two = digest_id(b"v:q")
ids = st.sampled_from(
    [
        Id("world", "anyone"),
        Id("world", "x"),
        Id("auth", ""),
        Id("auth", "u"),
        Id("auth", None),
        Id("digest", one),
        Id("digest", two),
        Id("digest", "x"),
        Id("digest", "a:b:c"),
        Id("digest", ":b"),
        Id("digest", "a:"),
        Id("digest", "a:b:"),
        Id("digest", ":"),
        Id("digest", ""),
        Id("ip", "127.0.0.1"),
        Id("ip", "127.0.0.1/8"),
        Id("ip", "10.0.0.0/8"),
        Id("ip", "127.0.0.1/33"),
        Id("ip", "1.2.3"),
        Id("ip", "0.0.0.0/0"),
        Id("ip", "1.2.3.256"),
        Id("ip", "+127.0.0.1"),
        Id("ip", "::1"),
        Id("ip", "127.0.0.1/"),
        Id("sasl", "bob"),
        Id("super", ""),
        Id("x509", "CN=a"),
        Id(None, "x"),
        Id("nope", "x"),
        Id("world", None),
        Id("digest", None),
        Id("ip", None),
    ]
)
good_ids = st.sampled_from(
    [
        Id("world", "anyone"),
        Id("auth", ""),
        Id("digest", one),
        Id("digest", two),
        Id("ip", "127.0.0.1"),
        Id("ip", "10.0.0.0/8"),
    ]
)
perms = st.sampled_from([31, 1, 2, 4, 8, 16, 3, 15, 30, 0, -1, 255])
good_acl = st.lists(st.builds(ACL, perms, good_ids), min_size=1, max_size=3).map(tuple)
odd_acl = st.one_of(st.just(()), st.none(), st.lists(st.builds(ACL, perms, ids), min_size=1, max_size=3).map(tuple))
acls: st.SearchStrategy[AclList | None] = st.one_of(
    st.just(OPEN_ACL_UNSAFE),
    st.just(OPEN_ACL_UNSAFE),
    st.just(OPEN_ACL_UNSAFE),
    st.just(READ_ACL_UNSAFE),
    good_acl,
    odd_acl,
)
flags = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, -1])
bools = st.booleans()
ttls = st.sampled_from([1000000, 1, 0, (1 << 40) - 1, 1 << 40, 1 << 62])

creates = st.builds(r.CreateRequest, paths, datas, acls, flags)
deletes = st.builds(r.DeleteRequest, paths, versions)
sets = st.builds(r.SetDataRequest, paths, datas, versions)
checks = st.builds(r.CheckVersionRequest, paths, versions)
gets = st.builds(r.GetDataRequest, paths, bools)
lists = st.builds(r.GetChildrenRequest, paths, bools)
bmp_paths = paths.filter(lambda path: "😀" not in path)  # zoolet's events use plain UTF-8, ZooKeeper's CESU-8
path_lists = [st.lists(bmp_paths, max_size=3)] * 6
path_lists_or_none = st.one_of(*path_lists, st.none())
nullable_path_lists = st.one_of(
    *path_lists, st.none(), st.lists(st.one_of(bmp_paths, bmp_paths, st.none()), max_size=3)
)
zxids = st.integers(-1, 60)


def ttl_creates(draw: st.DrawFn) -> r.CreateTTLRequest:
    mode, ttl = draw(flags), draw(st.one_of(ttls, st.integers(-5, -1)))
    if 0 <= mode <= 4 and ttl < 0:
        ttl = 7  # a negative TTL would stop the real server
    return r.CreateTTLRequest(draw(paths), draw(datas), draw(acls), mode, ttl)


ttl_create = st.composite(ttl_creates)()

OPERATIONS: dict[int, st.SearchStrategy[Record]] = {
    OpCode.CREATE: creates,
    OpCode.CREATE2: creates,
    OpCode.CREATE_CONTAINER: creates,
    OpCode.CREATE_TTL: ttl_create,
    OpCode.DELETE: deletes,
    OpCode.SET_DATA: sets,
    OpCode.EXISTS: st.builds(r.ExistsRequest, paths, bools),
    OpCode.GET_DATA: gets,
    OpCode.GET_CHILDREN: lists,
    OpCode.GET_CHILDREN2: lists,
    OpCode.GET_ACL: st.builds(r.GetACLRequest, paths),
    OpCode.SET_ACL: st.builds(r.SetACLRequest, paths, acls, versions),
    OpCode.SYNC: st.builds(r.SyncRequest, bmp_paths),
    OpCode.PING: st.just(r.EmptyRequest()),
    OpCode.GET_EPHEMERALS: st.builds(
        r.GetEphemeralsRequest, st.one_of(paths, st.sampled_from([None, " ", "/a", "/a/e"]))
    ),
    OpCode.GET_ALL_CHILDREN_NUMBER: st.builds(r.GetAllChildrenNumberRequest, paths),
    OpCode.WHO_AM_I: st.just(r.EmptyRequest()),
    OpCode.ADD_WATCH: st.builds(r.AddWatchRequest, paths, st.sampled_from([0, 0, 1, 1, 2, -1])),
    OpCode.CHECK_WATCHES: st.builds(
        r.CheckWatchesRequest,
        paths.filter(bool),
        st.integers(0, 7),  # release 3.8 never finds a watch on an empty path
    ),
    OpCode.REMOVE_WATCHES: st.builds(r.RemoveWatchesRequest, paths, st.integers(0, 7)),
    OpCode.RECONFIG: st.builds(r.ReconfigRequest, st.none(), st.just("1"), st.none(), st.just(-1)),
}
COMMON = [
    OpCode.CREATE,
    OpCode.CREATE2,
    OpCode.DELETE,
    OpCode.SET_DATA,
    OpCode.GET_DATA,
    OpCode.EXISTS,
    OpCode.GET_CHILDREN2,
]
MULTI_WRITES = {
    OpCode.CREATE: creates,
    OpCode.CREATE2: creates,
    # 3.9 treats a container with the flag of an ephemeral node as ephemeral until the end of the transaction
    OpCode.CREATE_CONTAINER: st.builds(r.CreateRequest, paths, datas, acls, flags.filter(lambda n: n not in (1, 3))),
    OpCode.CREATE_TTL: ttl_create,
    OpCode.DELETE: deletes,
    OpCode.SET_DATA: sets,
    OpCode.CHECK: checks,
}
MULTI_READS = {OpCode.GET_DATA: gets, OpCode.GET_CHILDREN: lists}
WITHOUT_PATH: Final = frozenset({OpCode.PING, OpCode.WHO_AM_I, OpCode.RECONFIG})


def with_null_path(body: bytes) -> bytes:
    """Replace the path at the start of a request by null."""
    return body if body[:4] == NULL else NULL + body[4 + int.from_bytes(body[:4], "big") :]


def survives_null_path(release: str, op: int) -> bool:
    """Return whether a release answers a null path in this request and keeps working."""
    return op not in WITHOUT_PATH and not (release == "3.8" and op == OpCode.ADD_WATCH)


@st.composite
def operations_of_multi(draw: st.DrawFn, release: str, op: OpCode) -> Operation:
    """One operation of a multi or a multiRead, sometimes a wrong one or one with a null path."""
    own, others = (MULTI_WRITES, MULTI_READS) if op == OpCode.MULTI else (MULTI_READS, MULTI_WRITES)
    odd = draw(st.integers(0, 39))
    if odd == 0:
        return OpCode.SET_ACL, draw(OPERATIONS[OpCode.SET_ACL]).encode()
    kinds = others if odd == 1 else own
    kind = draw(st.sampled_from(sorted(kinds)))
    body = draw(kinds[kind]).encode()
    if odd in (2, 3) and (release != "3.8" or kinds is MULTI_READS is own):
        body = with_null_path(body)
    return OpCode(kind), body


@st.composite
def multis(draw: st.DrawFn, release: str) -> Operation:
    """A transaction, or a multiRead."""
    op = draw(st.sampled_from([OpCode.MULTI, OpCode.MULTI, OpCode.MULTI, OpCode.MULTI_READ]))
    operations = draw(st.lists(operations_of_multi(release, op), max_size=4))
    if op == OpCode.MULTI_READ and operations and operations[0][0] in MULTI_WRITES:
        operations.insert(0, read("/"))  # the answer to a multiRead with only writes differs
    return multi_of(*operations, op=op)


@st.composite
def set_watches_requests(draw: st.DrawFn, release: str) -> Operation:
    """A setWatches or setWatches2, with null lists and null elements."""
    staying = path_lists_or_none if release == "3.8" else nullable_path_lists
    few = [nullable_path_lists] * 3 + draw(st.sampled_from([[], [staying] * 2]))
    return set_watches(draw(zxids), *map(draw, few))


def choose_request(draw: st.DrawFn, operation: Operation) -> Request:
    """Choose a connection and an xid for an operation."""
    return Request(draw(who), *operation, draw(st.sampled_from([1, 2, 3, 0, 5, -5, 2**31 - 1])))


@st.composite
def requests(draw: st.DrawFn, release: str) -> Request:
    """One request on one connection."""
    kind = draw(st.integers(0, 19))
    if kind < 2:
        return choose_request(draw, draw(multis(release)))
    if kind == 2:
        return choose_request(draw, draw(set_watches_requests(release)))
    op = draw(st.sampled_from(COMMON if kind < 12 else sorted(OPERATIONS)))
    body = draw(OPERATIONS[op]).encode()
    damage = draw(st.integers(0, 30))
    if damage == 0 and body:
        body = body[: draw(st.integers(0, len(body) - 1))]
    elif damage == 1:
        body += b"extra"
    elif damage == 2 and survives_null_path(release, op):
        body = with_null_path(body)
    return choose_request(draw, (OpCode(op), body))


# --- watches of all kinds on a few paths ---

watched = st.sampled_from(["/", "/a", "/a", "/a/x", "/a/x", "/a/x/p", "/b"])
watch_kinds = st.sampled_from([1, 2, 3, 4, 5])
changed_data = st.sampled_from([b"", b"x"])


@st.composite
def watch_requests(draw: st.DrawFn, release: str) -> Request:
    """Set, check or remove a watch, or change a watched node."""
    path = draw(watched)
    maybe_null = draw(st.sampled_from([path] * 9 + [None])) if release != "3.8" else path
    watching = [
        exists(path, True),
        read(path, True),
        children(path, True),
        add_watch(maybe_null, 0),
        add_watch(maybe_null, 1),
        draw(set_watches_requests(release)),
        check_watches(draw(st.sampled_from([path, path, None])), draw(watch_kinds)),
        remove_watches(draw(st.sampled_from([path, path, None])), draw(watch_kinds)),
    ]
    changing = [
        create(path, draw(changed_data), draw(st.sampled_from([0, 0, 1]))),
        write(path, draw(changed_data)),
        (OpCode.DELETE, r.DeleteRequest(path, -1).encode()),
        multi_of(create("/a"), create("/a/x"), create("/a/x/p")),
        multi_of(create("/b"), write("/b", b"1"), (OpCode.DELETE, r.DeleteRequest("/b", -1).encode())),
    ]
    return choose_request(draw, draw(st.sampled_from(watching + changing)))


# --- quotas ---

QUOTAS = ["/zookeeper/quota" + above for above in ("/a", "/a", "/a/x", "/a/x/p", "/b")]
quota_paths = st.sampled_from(QUOTAS)
limit_texts = st.sampled_from(
    [
        b"count=3,bytes=30",
        b"count=1,bytes=1",
        b"count=-1,bytes=-1",
        b"count=-1,bytes=-1=;byteHardLimit=20;countHardLimit=3",
        b"countHardLimit=2",
        b"byteHardLimit=0,countHardLimit=0",
        b"byteHardLimit=8;;,countHardLimit=+5",
        b"count=2=;countHardLimit=-2",
        b"bytes=9223372036854775807",
        b"countHardLimit=4,countHardLimit=2",
        b"count",
        b"count= 1",
        b"count=1.5",
        b"\xff\xfe",
        b"",
        None,
    ]
)
stats_texts = st.sampled_from(
    [
        b"count=3,bytes=8",
        b"count=0,bytes=0",
        b"bytes=3",
        b"",
        b"count=-7;bytes=-9",
        b"a=1,_=2,count=+1",
        b"count=1,bytes=2=;byteHardLimit=-1;countHardLimit=-1",
        b"count=0000000000000000012,bytes=-0",
        b"count=9000000000000000000",
    ]
)
nodes_below = st.sampled_from(["/a", "/a/x", "/a/x/p", "/a/y", "/b", "/b/z"])
some_data = st.sampled_from([b"", b"1", b"22", b"z" * 12, None])


@st.composite
def quota_operations(draw: st.DrawFn) -> Operation:
    """Create, change or delete a node of a quota, or a node that a quota counts."""
    quota, below, version = draw(quota_paths), draw(nodes_below), draw(st.sampled_from([-1, -1, -1, 0, 5]))
    limits, stats = quota + "/zookeeper_limits", quota + "/zookeeper_stats"
    kind = draw(st.sampled_from([OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER]))
    mode = draw(st.sampled_from([0, 0, 2] if kind == OpCode.CREATE_CONTAINER else [0, 0, 1, 2]))
    choices = [
        create(quota),
        create(limits, draw(limit_texts), op=kind),
        create(limits, draw(limit_texts)),
        create(stats, draw(st.one_of(stats_texts, limit_texts))),
        create(stats, b"", 2),
        write(limits, draw(limit_texts), version),
        write(stats, draw(stats_texts), version),
        (OpCode.DELETE, r.DeleteRequest(draw(st.sampled_from([limits, stats, quota])), version).encode()),
        *[create(below, draw(some_data), mode, op=kind)] * 4,
        *[write(below, draw(some_data), version)] * 3,
        *[(OpCode.DELETE, r.DeleteRequest(below, -1).encode())] * 2,
    ]
    return draw(st.sampled_from(choices))


@st.composite
def quota_requests(draw: st.DrawFn) -> Request:
    """One or several operations, or a read of the stats."""
    kind = draw(st.integers(0, 9))
    if kind < 5:
        return choose_request(draw, draw(quota_operations()))
    if kind < 7:
        return choose_request(draw, multi_of(*draw(st.lists(quota_operations(), min_size=1, max_size=4))))
    return choose_request(draw, read(draw(quota_paths) + "/zookeeper_stats"))


START: Final[list[Step]] = [
    request_on(0, multi_of(create("/a"), create("/a/x"), create("/a/x/p"))),
    request_on(0, multi_of(create("/b"), create("/b/z"))),
    request_on(0, create("/e", b"", 1)),
]
WATCH_START: Final[list[Step]] = [
    START[0],
    request_on(0, multi_of(create("/b"), create("/a/y", b"", 1))),
    *[request_on(which, add_watch(path, mode)) for which in (0, 1) for path in ("/a", "/a/x") for mode in (0, 1)],
    *[request_on(which, read("/a", True)) for which in (0, 1)],
    *[request_on(which, children("/a", True)) for which in (0, 2)],
    request_on(1, exists("/a/x/p/q", True)),
]
QUOTA_START: Final[list[Step]] = [
    request_on(0, multi_of(create("/a", b"1"), create("/a/x", b"22"), create("/zookeeper/quota/a"))),
    request_on(
        0,
        multi_of(create("/zookeeper/quota/a/x"), create("/zookeeper/quota/a/x/zookeeper_limits", b"countHardLimit=3")),
    ),
    request_on(0, create("/zookeeper/quota/a/zookeeper_limits", b"countHardLimit=5,byteHardLimit=30")),
    request_on(0, create("/zookeeper/quota/a/zookeeper_stats")),
    request_on(0, create("/zookeeper/quota/a/x/zookeeper_stats")),
]
"""Possible first steps of a script: nodes, watches, nested quotas."""


# --- scripts ---

auths = st.builds(
    lambda w, scheme, data: Request(w, OpCode.AUTH, r.AuthPacket(0, scheme, data).encode(), -4),
    who,
    st.sampled_from(["digest", "digest", "digest", "digest", "ip", "world", "nope", None]),
    st.sampled_from([b"u:p", b"v:q", b"u", b"", SUPER.encode(), b"u:p"]),
)
connects = st.builds(
    Connect,
    who,
    st.one_of(st.none(), who),
    st.sampled_from([True, True, False]),
    st.sampled_from([700_000, 0, 600_000, 9_000_000, -5]),
    st.sampled_from([0, 0, 0, 1]),
    bools,
)
closes = st.builds(lambda w: Request(w, OpCode.CLOSE_SESSION, b""), who)
unknown = st.builds(lambda w, op: Request(w, op, put_str("/a")), who, st.sampled_from([0, 10, 23, 50, 99, 108, -3]))
raws = st.builds(RawFrame, who, st.sampled_from([b"", b"\0\0", b"\0\0\0\1\0\0\0"]))


def anything(usual: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    """One step: a usual one, or a step that affects a session or a connection."""
    return st.integers(0, 99).flatmap(
        lambda n: (
            usual
            if n < 88
            else auths
            if n < 92
            else connects
            if n < 95
            else closes
            if n < 97
            else st.builds(Drop, who)
            if n < 98
            else unknown
            if n < 99
            else raws
        )
    )


def scripts(usual: st.SearchStrategy[Step], start: Sequence[Step] = ()) -> st.SearchStrategy[list[Step]]:
    """Scripts of these steps, after some of the possible first steps."""
    chosen = st.lists(st.sampled_from([True, True, True, False]), min_size=len(start), max_size=len(start))
    head = chosen.map(lambda which: [step for step, taken in zip(start, which, strict=True) if taken])
    return st.builds(operator.add, head, st.lists(usual, min_size=MIN_STEPS, max_size=60))


def quota_steps(release: str) -> st.SearchStrategy[list[Step]]:
    """Scripts about quotas."""
    return scripts(anything(st.one_of(*[quota_requests()] * 4, requests(release))), QUOTA_START)


def steps(release: str) -> st.SearchStrategy[list[Step]]:
    """Scripts on any topic, for a release."""
    mixed = scripts(anything(requests(release)), START)
    watches = scripts(anything(st.one_of(*[watch_requests(release)] * 6, requests(release))), WATCH_START)
    return st.one_of(mixed, mixed, watches, quota_steps(release))

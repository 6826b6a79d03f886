"""Steps for a :class:`~differential.pair.Pair`, as hypothesis strategies: mostly sensible, often odd, sometimes
malformed.

Left out is what stops the real server or what it leaves open (spec 05, appendices B and D); the pitfall tests cover
those.
"""

from __future__ import annotations

from differential.lockstep import CONNECTIONS
from differential.pair import SUPER, Connect, Drop, Raw, Request, Step
from hypothesis import strategies as st

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.codec import NULL, Record, put_str
from zoolet.protocol.opcodes import OpCode

SHORTEST = 20
"""Steps in a script, at the least."""
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
bmp_paths = paths.filter(lambda path: "😀" not in path)  # events answer in plain UTF-8 here, in CESU-8 there
some_paths = st.one_of(st.lists(bmp_paths, max_size=3), st.lists(bmp_paths, max_size=3), st.none())
zxids = st.integers(-1, 60)


def ttl_creates(draw: st.DrawFn) -> r.CreateTTLRequest:
    mode, ttl = draw(flags), draw(st.one_of(ttls, st.integers(-5, -1)))
    if 0 <= mode <= 4 and ttl < 0:
        ttl = 7  # this would stop the real server
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
    OpCode.CHECK_WATCHES: st.builds(r.CheckWatchesRequest, paths, st.integers(0, 7)),
    OpCode.REMOVE_WATCHES: st.builds(r.RemoveWatchesRequest, paths, st.integers(0, 7)),
    OpCode.SET_WATCHES: st.builds(r.SetWatches, zxids, some_paths, some_paths, some_paths),
    OpCode.SET_WATCHES2: st.builds(r.SetWatches2, zxids, some_paths, some_paths, some_paths, some_paths, some_paths),
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
    OpCode.CREATE_CONTAINER: creates,
    OpCode.CREATE_TTL: ttl_create,
    OpCode.DELETE: deletes,
    OpCode.SET_DATA: sets,
    OpCode.CHECK: checks,
}
MULTI_READS = {OpCode.GET_DATA: gets, OpCode.GET_CHILDREN: lists}


@st.composite
def multis(draw: st.DrawFn) -> tuple[int, bytes]:
    """A transaction, or a multiRead; now and then with an operation that does not belong."""
    op = draw(st.sampled_from([OpCode.MULTI, OpCode.MULTI, OpCode.MULTI, OpCode.MULTI_READ]))
    kinds = {OpCode.MULTI: MULTI_WRITES, OpCode.MULTI_READ: MULTI_READS}[op]
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), max_size=4))
    operations: list[tuple[OpCode, Record]] = [(OpCode(kind), draw(kinds[kind])) for kind in chosen]
    if draw(st.integers(0, 19)) == 0:
        operations.append((OpCode.SET_ACL, draw(OPERATIONS[OpCode.SET_ACL])))
    return op, wire.encode_operations(operations)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """One request on one connection."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        op, body = draw(multis())
    else:
        op = draw(st.sampled_from(COMMON if kind < 6 else sorted(OPERATIONS)))
        body = draw(OPERATIONS[op]).encode()
        damage = draw(st.integers(0, 30))
        if damage == 0 and body:
            body = body[: draw(st.integers(0, len(body) - 1))]
        elif damage == 1:
            body += b"extra"
        elif damage == 2 and op in COMMON:
            body = NULL + body[4 + int.from_bytes(body[:4], "big") :] if body[:4] != NULL else body
    return Request(draw(who), op, body, draw(st.sampled_from([1, 2, 3, 0, 5, -5, 2**31 - 1])))


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
raws = st.builds(Raw, who, st.sampled_from([b"", b"\0\0", b"\0\0\0\1\0\0\0"]))

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.integers(0, 99).flatmap(
        lambda n: (
            requests()
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
    ),
    min_size=SHORTEST,
    max_size=60,
)

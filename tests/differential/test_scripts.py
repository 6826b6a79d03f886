"""Short scripts for cases that random steps rarely reach: zoolet and a real ZooKeeper show no difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from differential.lockstep import Lockstep
from differential.pair import Connect, Request
from differential.script import (
    Operation,
    add_watch,
    check_watches,
    children,
    create,
    create_ttl,
    delete,
    exists,
    multi_of,
    multi_read_of,
    read,
    remove_watches,
    request_on,
    script,
    set_watches,
    write,
)
from support.apache import RELEASES

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode

pytestmark = pytest.mark.slow
LIMITS = "/zookeeper/quota/a/zookeeper_limits"
STATS = "/zookeeper/quota/a/zookeeper_stats"
QUOTA = [create("/a", b"1"), create("/zookeeper/quota/a"), create(LIMITS, b"count=3,bytes=30")]
NULL_ACL = create("/n", acl=None)


@pytest.fixture(scope="module", params=RELEASES)
def lockstep(request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    made = Lockstep(request.param)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def newer() -> Iterator[Lockstep]:
    """A pair with 3.9.4 only, because a watch on a null path prevents 3.8.0 from closing the connection."""
    made = Lockstep("3.9")
    yield made
    made.stop()


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 7])
def test_check_of_missing_null_path_watch_shows_no_difference(lockstep: Lockstep, kind: int) -> None:
    lockstep.compare(script(check_watches(None, kind), remove_watches(None, kind)))


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_null_path_watch_is_hidden_from_other_client(newer: Lockstep, kind: int) -> None:
    newer.compare(
        [
            request_on(1, add_watch(None, 0)),
            request_on(0, check_watches(None, kind)),
            request_on(0, remove_watches(None, kind)),
        ]
    )


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_null_path_watch_shows_no_difference(newer: Lockstep, mode: int, kind: int) -> None:
    look, remove = check_watches(None, kind), remove_watches(None, kind)

    newer.compare(script(add_watch(None, mode), look, create("/a"), write("/a", b""), delete("/a"), remove, remove))


@pytest.mark.parametrize(
    "lists",
    [
        (["/a", None, "/b"], ["/a"], ["/a"]),
        (["/a"], ["/b", None, "/a"], ["/a"]),
        (["/a"], ["/b"], ["/b", None, "/a"]),
        ([None], [], []),
        (["/a"], None, ["/a"]),
        (["/a"], ["/b"], None),
        (["/a"], ["/b"], ["/b"], ["/a"], None),
        (["/a"], [None], ["/b"], ["/a"], ["/a"]),
    ],
)
@pytest.mark.parametrize("since", [0, 1 << 40])
def test_null_path_or_list_fails_after_earlier_watches(
    lockstep: Lockstep, lists: tuple[list[str | None] | None, ...], since: int
) -> None:
    made = [create("/a"), create("/b"), set_watches(since, *lists)]

    lockstep.compare(script(*made, write("/a", b"1"), write("/b", b"1"), create("/b/x"), create("/a/x")))


@pytest.mark.parametrize(
    "lists",
    [
        (["/a"], ["/b"], ["/b"], ["/a", None, "/b"], ["/a"]),
        (["/a"], ["/b"], ["/b"], ["/a"], ["/a", None, "/b"]),
    ],
)
def test_persistent_watch_lists_may_contain_null(newer: Lockstep, lists: tuple[list[str | None] | None, ...]) -> None:
    made = [create("/a"), create("/b"), set_watches(0, *lists), check_watches(None, 3)]

    newer.compare(script(*made, write("/a", b"1"), write("/b", b"1"), create("/b/x"), create("/a/x")))


@pytest.mark.parametrize(
    "operation",
    [
        multi_read_of(read(None)),
        multi_read_of(children(None)),
        multi_read_of(read("/"), read(None), read("/zookeeper")),
        multi_read_of(children("/"), read("/none"), children(None), read("/")),
        multi_read_of(read("/none"), read("/"), children("/none")),
        multi_read_of(),
        multi_read_of(read("/"), exists("/")),
        multi_read_of(read("/"), create("/a")),
        (OpCode.MULTI_READ, b""),
        multi_read_of(delete("/a")),
        multi_read_of(delete("/a"), delete("/a")),
        multi_read_of(delete("/a"), read("/")),
        multi_read_of(create("/n", acl=None)),
        multi_read_of(create("/n", flags=9)),
    ],
)
def test_failing_multi_read_shows_no_difference(lockstep: Lockstep, operation: Operation) -> None:
    lockstep.compare(script(operation, read("/")))


@pytest.mark.parametrize(
    "operation",
    [
        multi_of(NULL_ACL),
        multi_of(create("/m"), NULL_ACL),
        multi_of(delete("/none"), NULL_ACL),
        multi_of(create("/n", acl=None, op=OpCode.CREATE2)),
        multi_of(create("/n", acl=None, op=OpCode.CREATE_CONTAINER)),
        multi_of(create("/n", flags=4, acl=None, op=OpCode.CREATE_CONTAINER)),
        multi_of(create("/n", flags=5, acl=None, op=OpCode.CREATE_CONTAINER)),
        multi_of(create("/n", flags=9, acl=None, op=OpCode.CREATE_CONTAINER)),
        multi_of(create("/n", flags=5, acl=None)),
        multi_of(create("/n", flags=9, acl=None)),
        multi_of(create_ttl("/n", 5, 7, acl=None)),
        multi_of(create_ttl("/n", 0, 7, acl=None)),
        multi_of(create_ttl("/n", 9, 7, acl=None)),
        multi_of(create("/n", acl=())),
        multi_of(NULL_ACL, read("/")),
        multi_of(read("/"), NULL_ACL),
        multi_of(NULL_ACL, (OpCode.SET_ACL, b"")),
        multi_of((OpCode.SET_ACL, b""), NULL_ACL),
        (OpCode.MULTI, multi_of(NULL_ACL)[1][:-3]),
    ],
)
def test_null_acl_list_in_multi_shows_no_difference(lockstep: Lockstep, operation: Operation) -> None:
    lockstep.compare(script(operation, create("/after"), exists("/m"), exists("/n")))


NULL_PATHS = [
    create(None),
    create(None, flags=9),
    create(None, acl=None),
    create(None, op=OpCode.CREATE2),
    create(None, flags=4, op=OpCode.CREATE_CONTAINER),
    (OpCode.CREATE_TTL, r.CreateTTLRequest(None, b"", OPEN_ACL_UNSAFE, 5, 7).encode()),
    write(None, b"1"),
    delete(None),
    (OpCode.CHECK, r.CheckVersionRequest(None, -1).encode()),
]


@pytest.mark.parametrize("odd", NULL_PATHS)
@pytest.mark.parametrize(
    "others",
    [
        ((), ()),
        ((create("/m"),), ()),
        ((), (create("/m"),)),
        ((delete("/none"),), ()),
        ((), (NULL_ACL,)),
        ((NULL_ACL,), ()),
        ((), (read("/"),)),
        ((read("/"),), ()),
        ((), ((OpCode.SET_ACL, b""),)),
        (((OpCode.SET_ACL, b""),), ()),
        ((), ((OpCode.SET_DATA, b"x"),)),
        ((create("/m", flags=9),), ()),
        ((), (create("/m", flags=9),)),
    ],
)
def test_null_path_in_multi_shows_no_difference(
    lockstep: Lockstep, odd: Operation, others: tuple[tuple[Operation, ...], tuple[Operation, ...]]
) -> None:
    before, after = others

    lockstep.compare(script(multi_of(*before, odd, *after), create("/after"), exists("/after"), exists("/m")))


@pytest.mark.parametrize("op", [OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER])
@pytest.mark.parametrize("flags", [-1, 0, 1, 2, 3, 4, 5, 6, 7])
def test_flags_of_create_in_multi_show_no_difference(lockstep: Lockstep, op: OpCode, flags: int) -> None:
    odd = create("/x", flags=flags, op=op)

    lockstep.compare(script(multi_of(create("/y"), odd, create("/z")), exists("/y"), multi_of(odd), exists("/x")))


@pytest.mark.parametrize(
    "text",
    [b"count=7,bytes=9,foo=3", b"bytes=3", b"count=5", b"", b"bytes=3,count=1", b"count=1,bytes=1=;countHardLimit=-1"],
)
def test_created_quota_stats_are_counted_as_by_real_server(lockstep: Lockstep, text: bytes) -> None:
    made = [*QUOTA, create(STATS, text), read(STATS), create("/a/b", b"22"), read(STATS)]

    lockstep.compare(script(*made, write("/a/b", b"4444"), read(STATS), delete("/a/b"), read(STATS)))


@pytest.mark.parametrize(
    "text",
    [
        b"count=7,bytes=9,foo=3;countHardLimit=9",
        b"byteHardLimit=9",
        b"z=1,a=2,B=3,count=1,_=4",
        b"a=1,a=2",
        b"count=0,bytes=0=;byteHardLimit=-1;countHardLimit=-1",
        "é=1,z=2,count=3".encode(),
        b"count=1,",
        b"count==5",
        b",",
        b"count=1=2",
        "count=\u0663".encode(),
        b"count=9223372036854775807",
        b"bytes=-9223372036854775808",
        b"bytes=3",
        b"",
    ],
)
def test_stats_of_quota_keep_other_text(lockstep: Lockstep, text: bytes) -> None:
    made = [*QUOTA, create(STATS), write(STATS, text), read(STATS), create("/a/b", b"22"), read(STATS)]

    lockstep.compare(script(*made, write("/a/b", b"4444"), read(STATS), delete("/a/b"), read(STATS)))


@pytest.mark.parametrize("right", [True, False])
def test_client_ahead_of_server_is_refused_by_both(lockstep: Lockstep, right: bool) -> None:
    close = Request(0, OpCode.CLOSE_SESSION, b"")
    ahead = Connect(1, of=0, ahead=1, right=right)

    lockstep.compare([Connect(0), ahead, request_on(0, read("/")), close, ahead, Connect(2, ahead=1)])

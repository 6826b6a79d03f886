"""The same calls at the same times give the same bytes, in this process and in another, with any hash seed.

Run as a script, it prints a digest of every byte that the clients of a seeded script receive.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

NOW = 1_700_000_000_000
TESTS = Path(__file__).resolve().parents[1]
STEPS = 400
PATHS = ["/a", "/b", "/c", "/a/x", "/a/y", "/b/z", "/a/x/p", "/"]
ACLS = [OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, CREATOR_ALL_ACL]


def random_write(rng: Random) -> tuple[OpCode, Record]:
    """Return a random operation that a transaction may contain."""
    path, data, acl = rng.choice(PATHS), rng.randbytes(3), rng.choice(ACLS)
    return rng.choice(
        [
            (OpCode.CREATE, r.CreateRequest(path, data, acl, rng.choice([0, 0, 1, 2, 3]))),
            (OpCode.CREATE2, r.CreateRequest(path, data, acl, 0)),
            (OpCode.CREATE_CONTAINER, r.CreateRequest(path, data, acl, 4)),
            (OpCode.CREATE_TTL, r.CreateTTLRequest(path, data, acl, 5, 100)),
            (OpCode.SET_DATA, r.SetDataRequest(path, data, -1)),
            (OpCode.DELETE, r.DeleteRequest(path, -1)),
        ]
    )


def random_request(rng: Random) -> tuple[OpCode, bytes]:
    """Return a random request of a client."""
    path, flag = rng.choice(PATHS), rng.random() < 0.5
    some = [rng.choice(PATHS) for _ in range(2)]
    op, body = rng.choice(
        [
            random_write(rng),
            random_write(rng),
            random_write(rng),
            (OpCode.CREATE, r.CreateRequest("/mine-", b"", OPEN_ACL_UNSAFE, 3)),
            (OpCode.SET_ACL, r.SetACLRequest(path, rng.choice(ACLS), -1)),
            (OpCode.GET_DATA, r.GetDataRequest(path, flag)),
            (OpCode.EXISTS, r.ExistsRequest(path, flag)),
            (OpCode.GET_CHILDREN2, r.GetChildrenRequest(path, flag)),
            (OpCode.GET_ACL, r.GetACLRequest(path)),
            (OpCode.ADD_WATCH, r.AddWatchRequest(path, int(flag))),
            (OpCode.SET_WATCHES2, r.SetWatches2(3, some, some, some, some, some)),
            (OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/")),
            (OpCode.WHO_AM_I, r.EmptyRequest()),
            (OpCode.SASL, r.GetSASLRequest(b"")),
            (OpCode.AUTH, r.AuthPacket(0, "digest", rng.choice([b"u:p", b"v:q", b"w:r"]))),
        ]
    )
    if rng.random() < 0.15:
        return OpCode.MULTI, wire.encode_operations([random_write(rng) for _ in range(3)])
    return op, body.encode()


def record_transcript(seed: int) -> bytes:
    """Return every byte that four clients receive while they connect and disconnect, and time passes."""
    rng = Random(seed)
    settings = EngineSettings(sasl_users={"bob": "secret"}, container_check_interval=3000, container_never_used=5000)
    engine = make_engine(settings, now=NOW)
    peers = [join_client(engine, rng) for _ in range(4)]
    seen = []
    for _ in range(STEPS):
        at = rng.randrange(len(peers))
        if peers[at].closed or rng.random() < 0.02:
            peers[at] = join_client(engine, rng)
        op, body = random_request(rng) if rng.random() < 0.97 else (OpCode.CLOSE_SESSION, b"")
        header = r.RequestHeader(rng.randrange(1000), op).encode()
        seen.append(peers[at].feed((8 + len(body)).to_bytes(4, "big") + header + body))
        silence = 7000 if rng.random() < 0.02 else rng.randrange(300)  # sometimes all sessions expire together
        engine.set_time(engine.now + rng.randrange(100), engine.monotonic_ms + silence)
        engine.tick()
        seen += [peer.pop_output() for peer in peers]
    return b"".join(seen)


def join_client(engine: Engine, rng: Random) -> Peer:
    peer = Peer(engine, host=f"10.0.0.{rng.randrange(9)}")
    peer.connect(timeout=4000)
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))
    return peer


def digest(seed: int) -> str:
    return hashlib.sha256(record_transcript(seed)).hexdigest()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_server_sends_same_bytes_for_same_script(seed: int) -> None:
    assert record_transcript(seed) == record_transcript(seed)


def test_server_sends_different_bytes_for_different_script() -> None:
    assert digest(1) != digest(2)


def test_script_of_determinism_test_has_logins_and_transactions() -> None:
    seen = record_transcript(1)

    assert b'nonce="' in seen  # a login with a nonce from the engine
    assert seen.count(b"\xff\xff\xff\xff\x01\xff\xff\xff\xff") > 10  # transactions
    assert len(seen) > 20_000


@pytest.mark.slow
def test_hash_seed_does_not_change_bytes_of_server() -> None:
    digests = [
        subprocess.run(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hash_seed in ("1", "4242")
    ]

    assert digests == [[digest(1), digest(2)]] * 2


if __name__ == "__main__":
    print(digest(1), digest(2))

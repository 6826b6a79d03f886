"""A forked child does not use its parent's client."""

from __future__ import annotations

import json
import os
import signal
import warnings

from support.simulation import Connect

from zoolet.client import blocking
from zoolet.client.blocking.recipes import Election, Lock, NodeCache, Party
from zoolet.testing import Server


async def test_forked_child_cannot_use_client_of_parent(server: Server, connect: Connect) -> None:
    zk = await connect(server.hosts)
    session_id = zk.session_id
    await zk.create("/here", ephemeral=True)
    copy = zk.with_operation_timeout(1.0)
    hear, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn about forks with threads
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        reported = []
        for attempt in (lambda: zk.get("/"), lambda: copy.get("/"), lambda: zk.add_auth("digest", b"a:b")):
            try:
                attempt()
                reported.append("nothing was raised")
            except BaseException as caught:
                reported.append(f"{type(caught).__name__}: {caught}")
        try:
            zk.aclose().send(None)
        except StopIteration:
            reported.append("closed")
        os.write(tell, json.dumps(reported).encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear) as lines:
        *errors, closed = json.loads(lines.read())
    os.waitpid(child, 0)  # noqa: ASYNC222 - the child has already written everything

    assert closed == "closed"
    assert len(errors) == 3
    assert all(
        text.startswith("RuntimeError: this Client belongs to the parent of this forked process") for text in errors
    )
    assert await zk.ephemerals() == ["/here"]
    assert zk.session_id == session_id


def test_lock_of_parent_survives_exit_of_forked_child_in_blocks(
    zoolet: Server,
) -> None:
    hear, tell = os.pipe()
    child = -1
    try:
        with blocking.Client(zoolet.hosts) as zk, Lock(zk, "/lock") as lease, Election(zk, "/leader"), zk.watch("/"):
            with Party(zk, "/party", b"me"), NodeCache(zk, "/cached"), lease.transaction():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                if child == 0:
                    signal.alarm(10)
                    raise SystemExit
                status = os.waitpid(child, 0)[1]
                lease.raise_if_lost()
                assert set(zk.ephemerals()) >= {lease.path}
    except BaseException as error:
        if child == 0:
            os.write(tell, repr(error).encode())
            os._exit(3)
        raise
    finally:
        if child == 0:
            os._exit(4)
    os.close(tell)
    with os.fdopen(hear) as lines:
        assert lines.read() == "SystemExit()"
    assert os.waitstatus_to_exitcode(status) == 3

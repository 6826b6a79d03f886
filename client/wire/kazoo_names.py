"""zoolet's equivalents of kazoo names, for the messages of AttributeErrors and docs/coming-from-kazoo.md."""

from __future__ import annotations

from typing import Final

KAZOO_NAMES: Final = {
    "get_children": "children(path) or children_and_stat(path)",
    "ensure_path": "ensure_path(path)",
    "get_acls": "get_acl(path)",
    "set_acls": "set_acl(path, acl)",
    "create_async": "create(path) with asyncio (it is sent before you await it)",
    "get_async": "get(path) with asyncio (it is sent before you await it)",
    "set_async": "set(path, value) with asyncio (it is sent before you await it)",
    "delete_async": "delete(path) with asyncio (it is sent before you await it)",
    "exists_async": "exists(path) with asyncio (it is sent before you await it)",
    "get_children_async": "children(path) with asyncio (it is sent before you await it)",
    "add_listener": "states() or wait_for(State.CONNECTED)",
    "close": "aclose() with asyncio (`async with` calls it)",
    "connected": "state is State.CONNECTED",
    "client_state": "state",
    "client_id": "session_id and session_password",
    "stop": "close(), or aclose() with asyncio (`with` calls it)",
    "restart": "a new Client",
    "server_version": "zoolet status HOSTS or the four-letter command srvr",
    "command": "zoolet shell or the four-letter commands",
    "retry": "retry(lambda: zk.get(path))",
    "DataWatch": "recipes.NodeCache or watch(path)",
    "ChildrenWatch": "recipes.ChildrenCache or watch_children(path)",
    "Lock": "lock(path) or recipes.Lock(zk, path)",
    "ReadLock": "recipes.ReadWriteLock(zk, path).read()",
    "WriteLock": "recipes.ReadWriteLock(zk, path).write()",
    "Semaphore": "recipes.Semaphore(zk, path, leases)",
    "Election": "recipes.Election(zk, path) and its run()",
    "Barrier": "recipes.Barrier(zk, path)",
    "DoubleBarrier": "recipes.DoubleBarrier(zk, path, members)",
    "Counter": "recipes.Counter(zk, path)",
    "Queue": "recipes.Queue(zk, path)",
    "LockingQueue": "recipes.LockingQueue(zk, path)",
    "Party": "recipes.Party(zk, path, name)",
    "ShallowParty": "recipes.Party(zk, path, name, naming='curator')",
    "SetPartitioner": "recipes.Discovery or recipes.Party with your own assignment",
    "NonBlockingLease": "recipes.DurableLock(zk, path, owner, ttl=...)",
}
"""The equivalent of each KazooClient attribute that a zoolet client does not have."""
_KAZOO_PROPERTIES: Final = frozenset({"connected", "client_state", "client_id"})
"""The kazoo names that are properties, not methods."""


def no_such_attribute(client: object, name: str) -> AttributeError:
    """Return the error for a missing attribute of a client. For a kazoo name, it contains zoolet's equivalent."""
    known = KAZOO_NAMES.get(name)
    if known is None:
        text = f"zoolet's Client has no attribute {name!r}"
    else:
        text = f"zoolet's Client has no {name if name in _KAZOO_PROPERTIES else f'{name}()'}; use {known} instead"
    return AttributeError(text, name=name, obj=client)

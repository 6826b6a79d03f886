"""Our names for kazoo's, for the messages of AttributeErrors and docs/coming-from-kazoo.md."""

from __future__ import annotations

from typing import Final

KAZOO_NAMES: Final = {
    "get_children": "children(path), children_and_stat(path)",
    "ensure_path": "ensure_path(path)",
    "get_acls": "get_acl(path)",
    "set_acls": "set_acl(path, acl)",
    "create_async": "create(path); with asyncio it is under way when it returns, as is every call",
    "get_async": "get(path); with asyncio it is under way when it returns, as is every call",
    "set_async": "set(path, value); with asyncio it is under way when it returns, as is every call",
    "delete_async": "delete(path); with asyncio it is under way when it returns, as is every call",
    "exists_async": "exists(path); with asyncio it is under way when it returns, as is every call",
    "get_children_async": "children(path); with asyncio it is under way when it returns, as is every call",
    "add_listener": "states(), wait_for(State.CONNECTED)",
    "close": "aclose() with asyncio; `async with` does it",
    "connected": "state is State.CONNECTED",
    "client_state": "state",
    "client_id": "session_id, session_password",
    "stop": "close(), or aclose() with asyncio; `with` does it",
    "restart": "a new Client",
    "server_version": "zoolet status HOSTS, or the four-letter command srvr",
    "command": "zoolet shell, or the four-letter commands",
    "retry": "retry(lambda: zk.get(path))",
    "DataWatch": "recipes.NodeCache, or watch(path)",
    "ChildrenWatch": "recipes.ChildrenCache, or watch_children(path)",
    "Lock": "lock(path), recipes.Lock(zk, path)",
    "ReadLock": "recipes.ReadWriteLock(zk, path).read()",
    "WriteLock": "recipes.ReadWriteLock(zk, path).write()",
    "Semaphore": "recipes.Semaphore(zk, path, leases)",
    "Election": "recipes.Election(zk, path), and its run()",
    "Barrier": "recipes.Barrier(zk, path)",
    "DoubleBarrier": "recipes.DoubleBarrier(zk, path, members)",
    "Counter": "recipes.Counter(zk, path)",
    "Queue": "recipes.Queue(zk, path)",
    "LockingQueue": "recipes.LockingQueue(zk, path)",
    "Party": "recipes.Party(zk, path, name)",
    "ShallowParty": "recipes.Party(zk, path, name, naming='curator')",
    "SetPartitioner": "recipes.Discovery or recipes.Party, and your own assignment",
    "NonBlockingLease": "recipes.DurableLock(zk, path, owner, ttl=...)",
}
"""kazoo's name of what a KazooClient has, and what there is in its place."""


def no_such_attribute(client: object, name: str) -> AttributeError:
    """Return the error of an attribute that a client does not have; for a name of kazoo's it says ours."""
    known = KAZOO_NAMES.get(name)
    hint = "" if known is None else f"; what kazoo calls so is {known} here"
    return AttributeError(f"a zoolet Client has no attribute {name!r}{hint}", name=name, obj=client)

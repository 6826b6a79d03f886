"""The asyncio client. It is not written yet; the server speaks to kazoo and to every other ZooKeeper client."""

if __name__ != "zoolet.client":
    raise ImportError("import zoolet.client, not client")

"""The server: a deterministic core, a thin asyncio shell around it, and the ``zoolet`` command."""

if __name__ != "zoolet.server":
    raise ImportError("import zoolet.server, not server")

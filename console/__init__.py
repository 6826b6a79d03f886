"""The console: a web page with the tree, sessions, locks and history of a server."""

if __name__ != "zoolet.console":
    raise ImportError("import zoolet.console, not console")

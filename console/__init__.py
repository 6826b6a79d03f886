"""The console, a web page with the tree, the sessions, the locks and the history of a server."""

if __name__ != "zoolet.console":
    raise ImportError("import zoolet.console, not console")

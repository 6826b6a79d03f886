"""The ``zoolet`` command: one module for each of its commands.

Exit codes: 0 for success, including a server that stops gracefully; 1 for a failure; 2 for wrong usage or
configuration, including a file that is missing or unreadable; 130 after Ctrl-C. An error is one line on stderr that
names the problem and its location.
"""

from __future__ import annotations

if __name__ != "zoolet.cli":
    raise ImportError("import zoolet.cli, not cli")

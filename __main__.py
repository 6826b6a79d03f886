"""``python -m zoolet`` runs the ``zoolet`` command."""

from __future__ import annotations

import sys

from zoolet.server.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m zoolet.server`` is the ``zoolet`` command."""

import sys

from zoolet.server.cli import main

sys.exit(main())

"""ZooKeeper's wire constants, written out so that no test compares the server with its own tables."""

from __future__ import annotations

from typing import Final

# --- errors ---

OK: Final = 0
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
BAD_ARGUMENTS: Final = -8
NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115
NO_WATCHER: Final = -121
RECONFIG_DISABLED: Final = -123
REQUIRE_AUTH: Final = -124
QUOTA_EXCEEDED: Final = -125
THROTTLED_OP: Final = -127

# --- types of events ---

CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3
CHILDREN: Final = 4

# --- flags of a create ---

EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
CONTAINER: Final = 4
TTL: Final = 5

# --- modes of addWatch ---

PERSISTENT_WATCH: Final = 0
RECURSIVE_WATCH: Final = 1

# --- transactions ---

END: Final = "ffffffff 01 ffffffff"
"""The header after the last operation or result of a transaction, in hexadecimal digits."""

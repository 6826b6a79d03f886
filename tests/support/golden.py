"""A Stat and an ACL list, and their bytes as ZooKeeper writes them, in hexadecimal digits."""

from __future__ import annotations

from typing import Final

from zoolet.protocol import records as r

STAT: Final = r.Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES: Final = (
    "0000000000000001 0000000000000002 0000000000000003 0000000000000004 00000005 00000006 00000007"
    "0000000000000008 00000009 0000000a 000000000000000b"
)
OPEN_BYTES: Final = "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65"

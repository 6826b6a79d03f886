"""Distinguished names, valid and invalid, on every supported Python and as Java reads them."""

from __future__ import annotations

from typing import Final

NAMES: Final = [
    "", "CN=a", "cn = a , O=b;OU=c", "CN=a+O=b", 'CN="a,b"', 'CN="a,b"+OU=x', r"CN=a\,b", r"CN=\41", "CN=", "1.2.3=a",
    "OID.1.2.3=x", "CN=#0c0161", "CN=a=b", "CN=a#b", "EMAIL=a@b", "S=x", "CN=Jörg", "CN=a\nb", "DNQ=x",
    " CN=a ", r"CN=a\,",
]  # fmt: skip
INVALID_NAMES: Final = [
    "a", "CN", "=a", "CN=a,", ",", ",CN=a", "XX=a", "X=a", "CN=a<b", "CN=a,b", r"CN=a\x", "CN=a\\", 'CN="a', 'CN="a"b',
    "CN=#0", "CN=#a", "CN=#abg", "CN=#zz", "CN=a+",
]  # fmt: skip

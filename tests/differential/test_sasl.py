"""SASL DIGEST-MD5 over sockets: zoolet's daemon and a real ZooKeeper give the same transcript."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from differential.sockets import Client
from support.apache import RELEASES, ApacheZooKeeper
from support.daemon import DaemonProcess

from zoolet.protocol.codec import NULL
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import DIGEST_URI, MAX_TOKEN_BYTES, REALM, parse_directives, proof

pytestmark = pytest.mark.slow
LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule required"
JAAS = f'Server {{ {LOGIN} user_bob="secret" user_super="root"; }};\n'
PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
WHO_AM_I = (OpCode.WHO_AM_I, b"")
GET_ROOT = (OpCode.GET_DATA, b"\0\0\0\1/\0")
Token = bytes | None
Step = Token | Callable[[bytes], bytes]
"""A token, or a function that makes one from the server's challenge."""


@dataclass(frozen=True)
class Sides:
    """The ports of both servers."""

    real: int
    ours: int

    def same(self, *steps: Step) -> None:
        """Send tokens to both servers, then a whoAmI and a read, and compare the answers.

        Raises:
            AssertionError: The answers differ.
        """
        assert transcript(self.ours, steps) == transcript(self.real, steps)


def transcript(port: int, steps: tuple[Step, ...]) -> list[object]:
    """Send tokens on a new connection. Return the replies with their random parts blanked."""
    seen: list[object] = []
    with ExitStack() as closing:
        client = Client(port)
        closing.callback(client.close)
        challenge = b""
        for step in steps:
            token = step(challenge) if callable(step) else step
            body = NULL if token is None else struct.pack(">i", len(token)) + token
            answer = client.exchange(OpCode.SASL, body)
            if answer is not None and b"nonce=" in answer:
                challenge = answer[20:]
            blanked = re.sub(rb'(nonce="|rspauth=)[^",]*', rb"\1", answer or b"closed")
            seen.append(blanked if answer is None else (answer[4:16], len(answer), blanked[16:]))
        return [*seen, client.do(WHO_AM_I), client.do(GET_ROOT)]


def response(
    user: str = "bob",
    password: str = "secret",
    *,
    without: tuple[str, ...] = (),
    unproved: bool = False,
    change: Callable[[bytes], bytes] = bytes,
    **directive: str,
) -> Callable[[bytes], bytes]:
    """Return a function that makes a response with deviations.

    Args:
        user: The user name.
        password: The password.
        without: Directives to leave out.
        unproved: Whether to apply the deviations only after the proof is computed.
        change: Function that changes the final bytes.
        directive: Different text of a directive, with ``_`` for ``-`` in its name.
    """
    given_directives = {name.replace("_", "-"): text for name, text in directive.items()}

    def make(challenge: bytes) -> bytes:
        usual = {
            "charset": "utf-8", "username": user, "realm": REALM,
            "nonce": parse_directives(challenge).get("nonce", "none"),
            "nc": "00000001", "cnonce": "abc", "digest-uri": DIGEST_URI, "maxbuf": "65536", "qop": "auth",
        }  # fmt: skip
        fields = {name: text for name, text in {**usual, **given_directives}.items() if name not in without}
        fields.setdefault("response", proof(usual if unproved else fields, user, password, "AUTHENTICATE:"))
        bare = ("charset", "nc", "maxbuf", "qop", "response")
        parts = [f"{name}={text if name in bare else quote(text)}" for name, text in fields.items()]
        return change(",".join(parts).encode())

    return make


def quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def replace_bytes(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return a function that replaces some bytes."""
    return lambda token: token.replace(old, new)


def append_padding(size: int) -> Callable[[bytes], bytes]:
    """Return a function that appends an unknown directive, up to a length of *size* bytes."""
    return lambda token: token + b",foo=" + b"x" * (size - len(token) - 5)


def running_servers(release: str, folder: Path, **properties: str) -> Iterator[Sides]:
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    login = {"java.security.auth.login.config": str(jaas), **{f"zookeeper.{k}": v for k, v in properties.items()}}
    definitions = [f"-D{name}={text}" for name, text in login.items()]
    definitions += ["-Dzookeeper.maxClientCnxns=0", "-Dzookeeper.maxSessionTimeout=600000"]
    with (
        ApacheZooKeeper(
            release, config={"maxSessionTimeout": "600000", "authProvider.1": PROVIDER}, properties=login
        ) as apache,
        DaemonProcess("--compat", release, *definitions) as daemon,
    ):
        yield Sides(apache.port, daemon.port)


@pytest.fixture(scope="module", params=RELEASES)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    yield from running_servers(request.param, tmp_path_factory.mktemp("sasl"))


@pytest.fixture(scope="module", params=RELEASES)
def forgiving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Servers that keep a connection open after a failed login."""
    yield from running_servers(request.param, tmp_path_factory.mktemp("sasl"), allowSaslFailedClients="true")


@pytest.mark.parametrize(
    "steps",
    [
        (b"", response()),
        (b"", response("super", "root")),
        (b"", response(password="wrong")),
        (b"", response("nobody", "of nobody")),
        (b"anything", response()),
        (None,),
        (b"", None),
        (b"", b""),
        (b"", b"garbage"),
        (b"", b"\0\xff\xfe,=\0"),
        (b"", b"="),
        (b"", b",,,"),
        (b"", response(password="wrong"), b""),
        (b"", response(), b""),
        (b"", response(), response()),
        (b"", response(), b"", response()),
        (b"", response(), None),
    ],
)
def test_sasl_exchange_shows_no_difference(sides: Sides, steps: tuple[Step, ...]) -> None:
    sides.same(*steps)


@pytest.mark.parametrize(
    "steps",
    [
        (b"", response(password="wrong")),
        (b"", b"garbage"),
        (None, b"", response()),
        (b"", response()),
        (b"", response(), b""),
    ],
)
def test_steps_after_failed_login_show_no_difference(forgiving: Sides, steps: tuple[Step, ...]) -> None:
    forgiving.same(*steps)


@pytest.mark.parametrize("unproved", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("digest-uri", "zookeeper/other"),
        ("digest-uri", "other/zk-sasl-md5"),
        ("digest-uri", "ZOOKEEPER/ZK-SASL-MD5"),
        ("digest-uri", "zookeeper/zk-sasl-md5/x"),
        ("digest-uri", ""),
        ("realm", "other"),
        ("realm", "ZK-SASL-MD5"),
        ("realm", ""),
        ("qop", "auth-int"),
        ("qop", "auth-conf"),
        ("qop", "AUTH"),
        ("qop", "nothing"),
        ("qop", ""),
        ("charset", "latin1"),
        ("charset", "UTF-8"),
        ("charset", ""),
        ("cnonce", ""),
        ("cnonce", 'with "quotes" and \\'),
        ("maxbuf", "0"),
        ("maxbuf", "1"),
        ("maxbuf", "-5"),
        ("maxbuf", "16777216"),
        ("nonce", "another"),
        ("nc", "00000002"),
        ("nc", "1"),
        ("nc", "zzzzzzzz"),
        ("nc", ""),
        ("authzid", "bob"),
        ("authzid", "super"),
        ("authzid", ""),
        ("cipher", "rc4"),
        ("response", "00"),
        ("response", ""),
    ],
)
def test_sasl_directive_with_other_text_shows_no_difference(sides: Sides, name: str, text: str, unproved: bool) -> None:
    sides.same(b"", response(unproved=unproved, **{name: text}))


@pytest.mark.parametrize("unproved", [False, True])
@pytest.mark.parametrize(
    "name", ["charset", "username", "realm", "nonce", "nc", "cnonce", "digest-uri", "maxbuf", "qop"]
)
def test_missing_sasl_directive_shows_no_difference(sides: Sides, name: str, unproved: bool) -> None:
    sides.same(b"", response(without=(name,), unproved=unproved))


@pytest.mark.parametrize(
    "name",
    [b"charset", b"username", b"realm", b"nonce", b"nc", b"cnonce", b"digest-uri", b"maxbuf", b"qop", b"response"],
)
def test_duplicate_sasl_directive_shows_no_difference(sides: Sides, name: bytes) -> None:
    def twice(token: bytes) -> bytes:
        match = re.search(rb'(?:^|,)(%s=(?:"[^"]*"|[^,]*))' % name, token)
        assert match is not None
        return token + b"," + match[1]

    sides.same(b"", response(change=twice))


@pytest.mark.parametrize(
    "change",
    [
        lambda token: b"," + token,
        lambda token: token + b",",
        lambda token: token + b" ",
        lambda token: b" \t\r\n" + token,
        lambda token: token + b",foo=bar",
        lambda token: token + b",foo=1,foo=2",
        lambda token: token + b",foo",
        lambda token: token + b",foo=",
        lambda token: token + b",=bar",
        lambda token: token + b',foo="bar',
        lambda token: token + b',foo="b"r',
        lambda token: token + b",foo=b\xe9",
        lambda token: token + b",foo=\0",
        replace_bytes(b",nc", b",,nc"),
        replace_bytes(b",nc", b" , nc"),
        replace_bytes(b"nc=", b"nc = "),
        replace_bytes(b"nc=00000001", b'nc="00000001"'),
        replace_bytes(b"username", b"USERNAME"),
        replace_bytes(b'"bob"', b"bob"),
        replace_bytes(b'"bob"', b'"b\\ob"'),
        replace_bytes(b"qop=auth", b'qop="auth"'),
        replace_bytes(b",", b";"),
        lambda token: re.sub(rb"response=\w+", lambda found: found[0].upper().replace(b"RESPONSE", b"response"), token),
        lambda token: re.sub(rb"response=(\w+)", rb'response="\1"', token),
        lambda token: token[:-1],
        append_padding(MAX_TOKEN_BYTES),
        append_padding(MAX_TOKEN_BYTES + 1),
        append_padding(5000),
    ],
)
def test_changed_form_of_sasl_response_shows_no_difference(sides: Sides, change: Callable[[bytes], bytes]) -> None:
    sides.same(b"", response(change=change))


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0\0\0\5abc", b"\xff\xff\xff\xfe", b"\0\0\0\1ab"])
def test_undecodable_sasl_packet_shows_no_difference(sides: Sides, body: bytes) -> None:
    def answers(port: int) -> object:
        with ExitStack() as closing:
            client = Client(port)
            closing.callback(client.close)
            answer = client.exchange(OpCode.SASL, body)
            return answer and (answer[4:16], len(answer)), client.do(GET_ROOT)

    assert answers(sides.ours) == answers(sides.real)

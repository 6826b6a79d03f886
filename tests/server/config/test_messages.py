"""Error messages: each is one line that names the key, the value, the place and the remedy."""

from __future__ import annotations

import errno
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configuration import config_error

from zoolet.server.config import ConfigError, build, messages, parse_definitions, read_environment

# --- each kind of message ---

NO_FILE = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
NO_TEXT = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            messages.invalid("zoo.cfg:12", "tickTime", "abc", "a whole number from 1 to 9 (milliseconds)"),
            "zoo.cfg:12: tickTime must be a whole number from 1 to 9 (milliseconds), not 'abc'",
        ),
        (
            messages.unsupported_value("zoo.cfg:3", "electionAlg", "1", "only 3 is"),
            "zoo.cfg:3: electionAlg=1 is not supported; only 3 is",
        ),
        (
            messages.incomplete("command line", "--tls-cert", "--secure-port"),
            "--tls-cert requires --secure-port",
        ),
        (
            messages.incomplete("zoo.cfg:3", "secureClientPort", "ssl.keyStore.location (--tls-cert)"),
            "zoo.cfg:3: secureClientPort requires ssl.keyStore.location (--tls-cert)",
        ),
        (
            messages.unreadable("zoo.cfg:1", "ssl.keyStore.passwordPath", "/nope", NO_FILE),
            "zoo.cfg:1: ssl.keyStore.passwordPath: cannot read /nope: no such file or directory",
        ),
        (
            messages.unreadable("zoo.cfg:1", "ssl.keyStore.passwordPath", "/nope", NO_TEXT),
            "zoo.cfg:1: ssl.keyStore.passwordPath: cannot read /nope: not valid UTF-8 text",
        ),
        (
            messages.unknown_key("zoo.cfg:7", "maxClientCnxn", "maxClientCnxns"),
            "zoo.cfg:7: unknown key maxClientCnxn; did you mean maxClientCnxns?",
        ),
        (messages.unknown_key("zoo.cfg:7", "colour", None), "zoo.cfg:7: unknown key colour"),
    ],
    ids=[
        "invalid",
        "unsupported",
        "incomplete option",
        "incomplete key",
        "no file",
        "no text",
        "unknown",
        "unknown like no other",
    ],
)
def test_config_error_names_place_key_and_remedy(error: ConfigError, expected: str) -> None:
    assert str(error) == expected


@given(st.text(), st.text(min_size=1), st.text())
def test_config_error_is_one_line_for_any_input(key: str, path: str, value: str) -> None:
    errors = [
        messages.invalid("zoo.cfg:1", "tickTime", value, "a whole number"),
        messages.unsupported_value("zoo.cfg:1", key, value, "leave it out"),
        messages.unreadable("zoo.cfg:1", "dynamicConfigFile", path, NO_FILE),
        messages.unknown_key("zoo.cfg:1", key, None),
    ]

    assert [error for error in errors if len(str(error).splitlines()) != 1] == []


# --- messages of a configuration ---


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("tickTime", "abc", "a whole number from 1 to"),
        ("tickTime", "0", "a whole number from 1 to"),
        ("tickTime", "", "a whole number from 1 to"),
        ("tickTime", "2s", "a whole number from 1 to"),
        ("tickTime", "1.5", "a whole number from 1 to"),
        ("tickTime", "99999999999", "a whole number from 1 to 2147483647"),
        ("clientPort", "65536", "a whole number from 0 to 65535"),
        ("clientPort", "-1", "a whole number from 0 to 65535"),
        ("minSessionTimeout", "-2", "a whole number from -1 to"),
        ("zookeeper.maxCnxns", "many", "a whole number from 0 to"),
        ("jute.maxbuffer", "1M", "a whole number from 0 to"),
        ("DigestAuthenticationProvider.digestAlg", "ROT13", "SHA-256"),
    ],
)
def test_refused_setting_names_key_value_place_and_remedy(key: str, value: str, remedy: str) -> None:
    message = config_error(f"# comment\n\n{key}={value}\n")

    assert message.startswith("zoo.cfg:3: ")
    assert f"{key} must be" in message
    assert remedy in message
    assert repr(value) in message


def test_refusal_of_java_option_names_option() -> None:
    with pytest.raises(ConfigError) as caught:
        build({}, {}, parse_definitions(["-Dzookeeper.tickTime=abc"], "command line"))

    assert str(caught.value) == (
        "command line: -Dzookeeper.tickTime must be a whole number from 1 to 2147483647 (milliseconds), not 'abc'"
    )


@pytest.mark.parametrize("line", ["tickTime=a\\nb", "electionAlg=a\\nb", "authProvider.a\\nb=c"])
def test_escaped_newline_in_setting_keeps_refusal_in_one_line(line: str) -> None:
    assert re.fullmatch(r"zoo\.cfg:1: .+[^.]", config_error(f"{line}\n"))


@pytest.mark.parametrize("argument", ["-Dzookeeper.ssl.crl=true", "-Dssl.crl=true", "-Dzookeeper.ssl.ocsp=true"])
def test_unsupported_option_is_refused_by_name(argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build({}, {}, parse_definitions([argument], "command line"))

    assert str(caught.value).startswith(f"command line: {argument} is not supported; ")


def test_setting_from_environment_is_refused_like_file() -> None:
    with pytest.raises(ConfigError, match=r"^environment variable JVMFLAGS: -Dzookeeper\.ssl\.ocsp=true is not"):
        build(read_environment({"JVMFLAGS": "-Dzookeeper.ssl.ocsp=true"}))

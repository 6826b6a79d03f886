"""The users in a JAAS file, and the errors for invalid files.

Source: the login configuration syntax of javax.security.auth.login.Configuration; DigestLoginModule.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.configuration import LOGIN_MODULE

from zoolet.server.config import jaas


def users(tmp_path: Path, text: str) -> dict[str, str] | None:
    """Write a JAAS file with *text*, and return the users that the server reads from it."""
    path = tmp_path / "jaas.conf"
    path.write_text(text, encoding="utf-8")
    return jaas.read_users(str(path))


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ('user_bob="secret"', {"bob": "secret"}),
        ('user_bob="a"\n  user_super="b"', {"bob": "a", "super": "b"}),
        ("user_bob=secret", {"bob": "secret"}),
        ('user_bob = "secret"', {"bob": "secret"}),
        ('user_user_x="secret"', {"user_x": "secret"}),
        ('user_bob="two words; and = signs"', {"bob": "two words; and = signs"}),
        ('user_bob="// no comment"', {"bob": "// no comment"}),
        ('user_bob="a}b"', {"bob": "a}b"}),
        ('user_bob="}" user_eve="x"', {"bob": "}", "eve": "x"}),
        ('user_bob="=" user_eve="x"', {"bob": "=", "eve": "x"}),
        ('user_bob=""', {"bob": ""}),
        (r'user_bob="say \"hi\" \\ bye"', {"bob": r'say "hi" \ bye'}),
        ('user_bob="sëcret"', {"bob": "sëcret"}),
        ('other="x" user_bob="y"', {"bob": "y"}),
        ('// user_eve="x"\n user_bob="y" # more\n /* user_z="z" */', {"bob": "y"}),
        ("", {}),
    ],
)
def test_users_of_server_section_are_read(tmp_path: Path, inside: str, expected: dict[str, str]) -> None:
    assert users(tmp_path, f"Server {{\n  {LOGIN_MODULE}\n  {inside};\n}};\n") == expected


def test_only_server_section_is_read(tmp_path: Path) -> None:
    client = f'Client {{ {LOGIN_MODULE} user_eve="x"; }};\n'
    server = f'Server {{ {LOGIN_MODULE} user_bob="y"; }};\n'

    assert users(tmp_path, client + server) == users(tmp_path, server + client) == {"bob": "y"}


def test_option_value_named_server_starts_no_section(tmp_path: Path) -> None:
    text = f'Client {{ {LOGIN_MODULE} username="Server"; }};\nServer {{ {LOGIN_MODULE} user_bob="y"; }};\n'

    assert users(tmp_path, text) == {"bob": "y"}


@pytest.mark.parametrize("text", ["", "Client { };", "// Server { }", "# nothing\n"])
def test_jaas_file_without_server_section_has_no_users(tmp_path: Path, text: str) -> None:
    assert users(tmp_path, text) is None


def test_jaas_section_of_given_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(f'Other {{ {LOGIN_MODULE} user_bob="y"; }};\n')

    assert jaas.read_users(str(tmp_path / "jaas.conf"), "Other") == {"bob": "y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Server { com.sun.security.auth.module.Krb5LoginModule required; };", "Krb5LoginModule"),
        ("Server { };", "uses no login module"),
        (f'Server {{ {LOGIN_MODULE} user_bob="x";', "is not enclosed in braces"),
        ("Server", "is not enclosed in braces"),
    ],
)
def test_error_names_invalid_jaas_file_and_section(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        users(tmp_path, text)

    assert re.fullmatch(r"section Server of [^\n]+/jaas\.conf [^\n]+[^.\n]", str(caught.value))

"""Prepare what griffe has read of the package for the pages in docs/reference: an extension, which mkdocs.yml names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import griffe

ROLE: Final = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<target>[\w.]+)`")
"""A reference in reStructuredText, such as ``:class:`Client```."""
DESCRIBED: Final = re.compile(r"^ {4}(\w+): ", re.MULTILINE)
"""A name that is described in a list, such as that of the arguments."""
ENUMERATIONS: Final = frozenset({"Enum", "IntEnum", "IntFlag", "StrEnum"})
LAZY: Final = "__getattr__"
"""The function of a module that imports a public name when it is first used."""


class Reference(griffe.Extension):
    """Completes and translates what cannot be shown as it stands in the source."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Count names of ``__all__`` that are imported for type checkers, and on first use, as those of the module."""
        if LAZY in mod.members:
            for name in map(str, mod.exports or ()):
                if name in mod.members:
                    mod.members[name].runtime = True

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Complete named tuples, choose what has a section, and translate docstrings to Markdown."""
        for documented in objects(pkg):
            if isinstance(documented, griffe.Class) and "NamedTuple" in map(str, documented.bases):
                documented.set_member("__init__", constructor(documented))
            if documented.docstring:
                documented.docstring.value = self._to_markdown(documented, documented.docstring.value)
            elif needs_section(documented):
                documented.docstring = griffe.Docstring("", parent=documented)

    def _to_markdown(self, documented: griffe.Object, text: str) -> str:
        """Return a docstring with links, and without the colons that announce a block of code."""
        text = ROLE.sub(lambda role: self._link(documented, role), text)
        text = re.sub(r"^ *::\n", "", text, flags=re.MULTILINE)
        return re.sub(r"::$", ":", text, flags=re.MULTILINE)

    def _link(self, documented: griffe.Object, role: re.Match[str]) -> str:
        """Return a reference in Markdown. The reference pages need not show what it leads to, but it must exist."""
        target = role["target"]
        title = target.rpartition(".")[2] if role["short"] else target.lstrip(".")
        path = absolute(documented, target)
        if exists(documented, path):
            return f'<autoref identifier="{path}" optional>`{title}`</autoref>'
        return f"[`{title}`][{path}]"


def objects(top: griffe.Object) -> Iterator[griffe.Object]:
    """Yield an object and all that is defined in it."""
    yield top
    for member in list(top.members.values()):
        if isinstance(member, griffe.Object):
            yield from objects(member)


def needs_section(documented: griffe.Object) -> bool:
    """Return whether a public name is shown without a docstring too.

    What has a signature is, the members of an enumeration are, and so are the fields that the docstring of their class
    does not describe.
    """
    owner = documented.parent
    if not documented.is_attribute or "property" in documented.labels:
        return True
    if not isinstance(owner, griffe.Class):
        return False
    if any(str(base) in ENUMERATIONS for base in owner.bases):
        return True
    described = DESCRIBED.findall(owner.docstring.value) if owner.docstring else []
    return documented.annotation is not None and documented.name not in described


def constructor(named_tuple: griffe.Class) -> griffe.Function:
    """Return the constructor of a named tuple: its fields are the parameters."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [
        griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
        for field in named_tuple.members.values()
        if isinstance(field, griffe.Attribute) and field.annotation is not None and "property" not in field.labels
    ]
    parameters = griffe.Parameters(griffe.Parameter("self", kind=kind), *fields)
    lines = {"lineno": named_tuple.lineno, "endlineno": named_tuple.endlineno}
    return griffe.Function("__init__", parameters=parameters, **lines)


def absolute(documented: griffe.Object, target: str) -> str:
    """Return the path of what a docstring refers to."""
    if target.startswith("."):
        return documented.module.path.rpartition(".")[0] + target
    first, dot, rest = target.partition(".")
    try:
        return target if first == "zoolet" else documented.resolve(first) + dot + rest
    except griffe.NameResolutionError:
        return target


def exists(documented: griffe.Object, path: str) -> bool:
    """Return whether there is something with this path in the package."""
    package = documented.package
    try:
        package.get_member(path.removeprefix(f"{package.name}."))
    except (KeyError, griffe.AliasResolutionError):
        return False
    return True

"""A griffe extension, registered in mkdocs.yml, that prepares the objects for the pages in docs/reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import griffe

ROLE_PATTERN: Final = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<target>[\w.]+)`")
"""A reference in reStructuredText, such as ``:class:`Client```."""
DESCRIBED_PATTERN: Final = re.compile(r"^ {4}(\w+): ", re.MULTILINE)
"""A name that is described in a list, such as the list of arguments."""
ENUMERATIONS: Final = frozenset({"Enum", "IntEnum", "IntFlag", "StrEnum"})
INTERNAL_MEMBERS: Final = (
    "client.aio.call.Call.__init__",
    "client.aio.call.Call.close",
    "client.aio.call.Call.send",
    "client.aio.call.Call.throw",
    "client.aio.view.View.add_chroot",
    "client.aio.view.View.strip_chroot",
    "client.aio.watcher.Watcher.__init__",
    "client.blocking.client.Client.add_chroot",
    "client.blocking.client.Client.first_round",
    "client.blocking.client.Client.strip_chroot",
    "client.client.Client.first_round",
    "client.wire.transaction.Transaction.__init__",
    "client.recipes.*.excludes",
    "client.recipes.*.includes",
    "client.recipes.*.is_exclusive",
    "client.recipes.*.kinds",
    "client.recipes.*.levels",
    "client.recipes.*.namings",
    "client.recipes.*.on_state",
    "client.recipes.*.reentrant",
    "client.recipes.*.rule",
    "client.recipes.*.waits_for_release",
    "client.recipes.discovery.Instance.read",
    "client.recipes.durable_lock.DurableLease.mark_renewed",
    "client.recipes.durable_lock.Holder.encode",
    "client.recipes.durable_lock.Holder.proof_node",
    "client.recipes.durable_lock.Holder.read",
    "server.net.daemon.Daemon.abort_all",
    "server.net.daemon.Daemon.measure",
    "server.net.daemon.Daemon.tick",
    "server.net.daemon.Daemon.on_tick",
    "server.net.daemon.Daemon.wake",
    "testing.*.supports_chaos",
    "testing.*.console_views",
    "testing.*.daemon",
    "testing.*.ensemble",
    "testing.*.has_changed",
    "testing.*.runs_here",
    "testing.*.move_to",
    "testing.frames.actions.Action.on_release",
    "testing.frames.faults.Fault.claim",
    "testing.frames.faults.Fault.delay",
    "testing.sim.network.SimNetwork.call_after_latency",
    "testing.sim.network.SimNetwork.close",
    "testing.sim.network.SimNetwork.connect",
    "testing.sim.network.SimNetwork.forget",
    "testing.sim.network.SimNetwork.fragment",
    "testing.sim.network.SimNetwork.listen",
)
"""Members of public classes that only other modules of the package use. The reference does not show them."""
FIELD_BASES: Final = frozenset({"NamedTuple", "Fields"})
"""Base classes that turn their annotated attributes into parameters of the constructor."""
LAZY_IMPORT_FUNCTION: Final = "__getattr__"
"""Name of the module function that imports a public name on first use."""


class Reference(griffe.Extension):
    """The extension, which adapts objects that the reference cannot show as they are in the source."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Treat names of ``__all__`` that a module imports on first use as the module's own."""
        if LAZY_IMPORT_FUNCTION in mod.members:
            for name in map(str, mod.exports or ()):
                if name in mod.members:
                    mod.members[name].runtime = True

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Prepare all objects of the package.

        Complete classes of fields, select the objects that get a section, convert docstrings to Markdown, and hide
        internal members.
        """
        for documented in objects(pkg):
            if isinstance(documented, griffe.Class) and not FIELD_BASES.isdisjoint(map(str, documented.bases)):
                documented.set_member("__init__", constructor(documented))
            if documented.docstring:
                documented.docstring.value = self._to_markdown(documented, documented.docstring.value)
            elif needs_section(documented):
                documented.docstring = griffe.Docstring("", parent=documented)
        for member in list(objects(pkg)):  # last, because docstrings may link to internal members
            if member.parent is not None and is_internal(member.path.removeprefix(f"{pkg.name}.")):
                member.parent.del_member(member.name)
        merge_client_bases(pkg)

    def _to_markdown(self, documented: griffe.Object, text: str) -> str:
        """Convert a docstring to Markdown, with links, and without the colons that introduce blocks of code."""
        text = ROLE_PATTERN.sub(lambda role: self._link(documented, role), text)
        text = re.sub(r"^ *::\n", "", text, flags=re.MULTILINE)
        return re.sub(r"::$", ":", text, flags=re.MULTILINE)

    def _link(self, documented: griffe.Object, role: re.Match[str]) -> str:
        """Convert a reference to Markdown. The target must exist, but need not be on a page of the reference."""
        target = role["target"]
        title = target.rpartition(".")[2] if role["short"] else target.lstrip(".")
        path = absolute(documented, target)
        if exists(documented, path):
            return f'<autoref identifier="{path}" optional>`{title}`</autoref>'
        return f"[`{title}`][{path}]"


def objects(top: griffe.Object) -> Iterator[griffe.Object]:
    """Yield an object and all objects that are defined in it."""
    yield top
    for member in list(top.members.values()):
        if isinstance(member, griffe.Object):
            yield from objects(member)


def merge_client_bases(package: griffe.Module) -> None:
    """Merge the base classes of the client into it: the members move to ``Client``, and signatures name ``Client``."""
    module = package["client.client"]
    for base in module["Client"].mro():
        for name, member in base.members.items():
            module["Client"].members.setdefault(name, member)
    functions = [documented for documented in objects(package) if isinstance(documented, griffe.Function)]
    functions += [overload for function in functions for overload in function.overloads or ()]
    for annotation in (parameter.annotation for function in functions for parameter in function.parameters):
        for part in annotation.iterate() if isinstance(annotation, griffe.Expr) else ():
            if isinstance(part, griffe.ExprName) and part.name == "BaseClient":
                part.name, part.parent = "Client", module


def is_internal(path: str) -> bool:
    """Return whether the reference hides the object with this path below the package."""
    return any(fnmatchcase(path, pattern) for pattern in INTERNAL_MEMBERS)


def needs_section(documented: griffe.Object) -> bool:
    """Return whether a public name gets a section even without a docstring.

    These are objects with a signature, members of an enumeration, and fields that the docstring of their class does not
    describe.
    """
    owner = documented.parent
    if not documented.is_attribute or "property" in documented.labels:
        return True
    if not isinstance(owner, griffe.Class):
        return False
    if any(str(base) in ENUMERATIONS for base in owner.bases):
        return True
    described = DESCRIBED_PATTERN.findall(owner.docstring.value) if owner.docstring else []
    return documented.annotation is not None and documented.name not in described


def constructor(documented: griffe.Class) -> griffe.Function:
    """Return the constructor of a class of fields, with the fields as parameters."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = [
        griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=field.value)
        for field in documented.members.values()
        if isinstance(field, griffe.Attribute) and field.annotation is not None and "property" not in field.labels
    ]
    parameters = griffe.Parameters(griffe.Parameter("self", kind=kind), *fields)
    lines = {"lineno": documented.lineno, "endlineno": documented.endlineno}
    return griffe.Function("__init__", parameters=parameters, **lines)


def absolute(documented: griffe.Object, target: str) -> str:
    """Return the absolute path of a reference's target."""
    if target.startswith("."):
        return documented.module.path.rpartition(".")[0] + target
    first, dot, rest = target.partition(".")
    try:
        return target if first == "zoolet" else documented.resolve(first) + dot + rest
    except griffe.NameResolutionError:
        return target


def exists(documented: griffe.Object, path: str) -> bool:
    """Return whether the package contains an object with this path."""
    package = documented.package
    try:
        package.get_member(path.removeprefix(f"{package.name}."))
    except (KeyError, griffe.AliasResolutionError):
        return False
    return True

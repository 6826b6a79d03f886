"""A compiler for wire records. It turns the declared fields of a record into functions that encode and decode it.

A record is declared as a class with annotated fields. :func:`record` generates the functions from this declaration when
the record is first used. Adjacent fixed-size fields share one ``struct.Struct``. Tracebacks show the generated source,
because it is registered with ``linecache``.

========================  =======================================================================
annotation                on the wire
========================  =======================================================================
``Byte Int Long Bool``    1, 4, 8 and 1 bytes, big-endian. Any byte but 0 reads as true
``str``                   int length, UTF-8. Null (length -1) does not decode
``bytes``                 int length, bytes. Null does not decode
``str | None`` ...        the same, with null as None
a record class            its fields in order
``list[T]``               int count, items. A count below -1 reads as 0. Null does not decode
``list[str | None]``      the same, with null as None among the items
``Annotated[T, Codec]``   the format that the two functions of the ``Codec`` read and write
========================  =======================================================================

Any bytes decode to a record or raise :class:`MarshallingError`. The time and memory are linear in their number.

Source: zookeeper.jute, BinaryInputArchive.
"""

from __future__ import annotations

import inspect
import linecache
import re
import struct
from collections.abc import Callable
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from .errors import MarshallingError

Byte = Annotated[int, "b"]
Int = Annotated[int, "i"]
Long = Annotated[int, "q"]
Bool = Annotated[bool, "?"]
R = TypeVar("R", bound="Record")

_INT = struct.Struct(">i")
int_at = _INT.unpack_from
pack_int = _INT.pack
NULL = b"\xff\xff\xff\xff"


class Codec(NamedTuple):
    """The functions that read and write a field whose type alone does not determine its format.

    Args:
        read: A function ``(buf, offset, end) -> (value, next_offset)`` that raises MarshallingError.
        write: A function ``value -> bytes``.
    """

    read: Callable[[bytes, int, int], tuple[Any, int]]
    write: Callable[[Any], bytes]


class Record:
    """The base class of wire records. :func:`record` replaces ``decode``, ``read_from`` and ``encode`` by compiled
    code.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fields(cls) -> dict[str, Any]:
        """Return the annotations of the declared fields by name, in their order on the wire."""
        return inspect.get_annotations(cls, eval_str=True)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({fields})"

    @classmethod
    def decode(cls, buf: bytes, offset: int = 0, end: int | None = None) -> Self:
        """Read one record from ``buf[offset:end]``. Bytes after the record are ignored.

        Raises:
            MarshallingError: The record is truncated, a length is negative, or a required field is null.
        """
        raise TypeError(f"{cls.__name__} is not decorated with @record")

    @classmethod
    def read_from(cls, buf: bytes, offset: int, end: int) -> tuple[Self, int]:
        """Read one record that starts at *offset* and ends before *end*. Return the record and the offset after it.

        Raises:
            MarshallingError: The record is truncated, a length is negative, or a required field is null.
        """
        raise TypeError(f"{cls.__name__} is not decorated with @record")

    def encode(self) -> bytes:
        """Return the record in its wire format."""
        raise TypeError(f"{type(self).__name__} is not decorated with @record")


_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def text(raw: bytes) -> str:
    """Decode malformed UTF-8 like Java's ``new String(bytes, UTF_8)``, which replaces malformed bytes with U+FFFD.

    Python does the same, except for an encoded surrogate (``ED A0..BF xx``): Java replaces its bytes with one U+FFFD.
    """
    return _SURROGATE.sub(b"\xff", raw).decode("utf-8", "replace")


def str_at(buf: bytes, offset: int, end: int) -> tuple[str, int]:
    """Read a string that must not be null. Return the string and the offset after it.

    Raises:
        MarshallingError: The string is null or truncated, or its length is invalid.
    """
    value, offset = str_or_null_at(buf, offset, end)
    if value is None:
        raise MarshallingError(detail="a required string is null")
    return value, offset


def str_or_null_at(buf: bytes, offset: int, end: int) -> tuple[str | None, int]:
    """Read a string or null, and replace malformed UTF-8 as :func:`text` does. Return it and the offset after it.

    Raises:
        MarshallingError: The string is truncated, or its length is below -1.
    """
    value, offset = bytes_or_null_at(buf, offset, end)
    if value is None:
        return None, offset
    try:
        return value.decode(), offset
    except UnicodeDecodeError:
        return text(value), offset


def bytes_at(buf: bytes, offset: int, end: int) -> tuple[bytes, int]:
    """Read a buffer that must not be null. Return its bytes and the offset after it.

    Raises:
        MarshallingError: The buffer is null or truncated, or its length is invalid.
    """
    value, offset = bytes_or_null_at(buf, offset, end)
    if value is None:
        raise MarshallingError(detail="a required buffer is null")
    return value, offset


def bytes_or_null_at(buf: bytes, offset: int, end: int) -> tuple[bytes | None, int]:
    """Read a buffer or null. Return its bytes, or None, and the offset after it.

    Raises:
        MarshallingError: The buffer is truncated, or its length is below -1.
    """
    if offset + 4 > end:
        raise MarshallingError(detail="unexpected end of data in a length")
    (size,) = int_at(buf, offset)
    offset += 4
    if size == -1:
        return None, offset
    value_end = offset + size
    if size < 0 or value_end > end:
        raise MarshallingError(detail=f"invalid length {size}: {end - offset} bytes are left")
    return buf[offset:value_end], value_end


def count_at(buf: bytes, offset: int, end: int) -> int:
    """Read the number of items of a vector. Return -1 for null. Any other negative number is read as 0.

    Raises:
        MarshallingError: The count is truncated.
    """
    if offset + 4 > end:
        raise MarshallingError(detail="unexpected end of data in a count")
    (count,) = int_at(buf, offset)
    return -1 if count == -1 else max(count, 0)


def put_str(value: str | None) -> bytes:
    """Return a string or null in its wire format."""
    if value is None:
        return NULL
    raw = value.encode()
    return pack_int(len(raw)) + raw


def put_bytes(value: bytes | None) -> bytes:
    """Return a buffer or null in its wire format."""
    return NULL if value is None else pack_int(len(value)) + value


def put_strs(values: list[str] | None) -> bytes:
    """Return a vector of strings, or null, in its wire format."""
    return NULL if values is None else pack_int(len(values)) + b"".join([put_str(value) for value in values])


_READERS: dict[Any, str] = {
    str: "str_at",
    bytes: "bytes_at",
    (str, None): "str_or_null_at",
    (bytes, None): "bytes_or_null_at",
}
_WRITERS: dict[Any, str] = {str: "put_str", bytes: "put_bytes"}


def _struct_letter(hint: Any) -> str | None:
    """Return the ``struct`` letter of a fixed-size field, or None for a field of variable size."""
    meta = get_args(hint)[1] if get_origin(hint) is Annotated else None
    return meta if isinstance(meta, str) else None


def _split_optional(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not NoneType)
        return inner, True
    return hint, False


class _Compiler:
    """A generator of the source of a record's functions, with the global names that the source uses."""

    def __init__(self, cls: type[Record], hints: dict[str, Any]) -> None:
        self.cls = cls
        self.hints = hints
        self.env: dict[str, Any] = {"cls": cls, **globals()}
        self.reads: list[str] = []
        self.writes: list[str] = []

    def add_fields(self) -> None:
        """Collect the statements that read and write the fields."""
        run: list[tuple[str, str]] = []
        for name, hint in self.hints.items():
            if code := _struct_letter(hint):
                run.append((name, code))
                continue
            self._add_fixed_fields(run)
            run = []
            self._add_variable_field(name, hint)
        self._add_fixed_fields(run)

    def read_block(self) -> list[str]:
        """Return the statements that read all fields into local names, from *buf* between *offset* and *end*."""
        problem = f"raise MarshallingError(detail='unexpected end of data in {self.cls.__name__}')"
        body = (f"        {line}" for line in [*self.reads, "pass"])
        guard = (
            "    except StructError:",
            f"        {problem} from None",
            "    if offset > end:",
            f"        {problem}",
        )
        return ["    try:", *body, *guard]

    def source(self) -> str:
        """Return the source of the methods that are compiled for the record."""
        self.add_fields()
        names = ", ".join(self.hints)
        reading = self.read_block()
        own = "".join(f"self.{name}, " for name in self.hints)
        others = "".join(f"other.{name}, " for name in self.hints)
        parts = [
            f"def __init__(self{''.join(', ' + name for name in self.hints)}):",
            *(f"    self.{name} = {name}" for name in self.hints),
            "    pass",
            f"def __eq__(self, other): return ({own}) == ({others}) if type(other) is cls else NotImplemented",
            f"def __hash__(self): return hash(({own}))",
            "def read_from(buf, offset, end):",
            *reading,
            f"    return cls({names}), offset",
            "def decode(buf, offset=0, end=None):",
            "    if end is None:",
            "        end = len(buf)",
            *reading,
            f"    return cls({names})",
            "def encode(self):",
            f"    return {' + '.join(self.writes) or repr(b'')}",
            "",
        ]
        return "\n".join(parts)

    def _add_fixed_fields(self, run: list[tuple[str, str]]) -> None:
        """Add the statements that read and write neighbouring fixed-size fields with one Struct."""
        if not run:
            return
        packed = struct.Struct(">" + "".join(code for _, code in run))
        tag = f"fixed{len(self.reads)}"
        self.env[f"{tag}_at"], self.env[f"{tag}_pack"] = packed.unpack_from, packed.pack
        self.reads += [f"{', '.join(name for name, _ in run)}, = {tag}_at(buf, offset)", f"offset += {packed.size}"]
        self.writes.append(f"{tag}_pack({', '.join('self.' + name for name, _ in run)})")

    def _add_variable_field(self, name: str, hint: Any) -> None:
        """Add the statements that read and write a field whose size depends on its value."""
        inner, optional = _split_optional(hint)
        if get_origin(inner) is Annotated and isinstance(codec := get_args(inner)[1], Codec):
            self.env[f"read_{name}"], self.env[f"write_{name}"] = codec.read, codec.write
            self.reads.append(f"{name}, offset = read_{name}(buf, offset, end)")
            self.writes.append(f"write_{name}(self.{name})")
        elif get_origin(inner) is list:
            self._add_vector(name, get_args(inner)[0], optional)
        elif inner in _WRITERS:
            self._add_scalar(name, inner, optional)
        else:
            self._add_nested(name, inner)

    def _add_nested(self, name: str, item: type[Record]) -> None:
        """Add the statements for a field that is a record. A record of fixed size, such as a Stat, is read inline."""
        self.env[f"item_{name}"] = item
        if all(_struct_letter(hint) for hint in item.fields().values()):
            packed = combined_struct(item)
            self.env[f"{name}_at"] = packed.unpack_from
            self.reads += [f"{name} = item_{name}(*{name}_at(buf, offset))", f"offset += {packed.size}"]
        else:
            self.reads.append(f"{name}, offset = item_{name}.read_from(buf, offset, end)")
        self.writes.append(f"self.{name}.encode()")

    def _add_scalar(self, name: str, kind: type, optional: bool) -> None:
        """Add the statements for a string or buffer. It is read inline, because one call per field costs too much."""
        reader = _READERS[(kind, None) if optional else kind]
        self.reads += ["size, = int_at(buf, offset)", "start = offset + 4", "offset = start + size"]
        self.reads += ["if size < 0 or offset > end:", f"    {name}, offset = {reader}(buf, start - 4, end)", "else:"]
        if kind is str:
            self.reads += [
                "    try:",
                f"        {name} = buf[start:offset].decode()",
                "    except UnicodeDecodeError:",
                f"        {name} = text(buf[start:offset])",
            ]
        else:
            self.reads.append(f"    {name} = buf[start:offset]")
        self.writes.append(f"{_WRITERS[kind]}(self.{name})")

    def _add_vector(self, name: str, item: Any, optional: bool) -> None:
        """Add the statements for a vector: a count, followed by this number of items."""
        self.env[f"item_{name}"] = item
        kind, nullable = _split_optional(item)
        reader = _READERS.get((kind, None) if nullable else item) or f"item_{name}.read_from"
        writer = f"{_WRITERS[kind]}(value)" if kind in _WRITERS else "value.encode()"
        null = f"    {name} = None" if optional else f"    raise MarshallingError(detail='the vector {name} is null')"
        self.reads += [
            "size = count_at(buf, offset, end)",
            "offset += 4",
            "if size < 0:",
            null,
            "else:",
            f"    {name} = []",
        ]
        self.reads.append("    for _ in range(size):")
        if kind is str:  # inlined, because lists of children and lists of watches are long
            self.reads += [
                "        length, = int_at(buf, offset)",
                "        start = offset + 4",
                "        offset = start + length",
                "        if length < 0 or offset > end:",
                f"            value, offset = {reader}(buf, start - 4, end)",
                "        else:",
                "            try:",
                "                value = buf[start:offset].decode()",
                "            except UnicodeDecodeError:",
                "                value = text(buf[start:offset])",
            ]
        else:
            self.reads.append(f"        value, offset = {reader}(buf, offset, end)")
        self.reads.append(f"        {name}.append(value)")
        self.writes.append(
            f"(NULL if self.{name} is None else "
            f"pack_int(len(self.{name})) + b''.join([{writer} for value in self.{name}]))"
        )


StructError = struct.error


def combined_struct(*parts: Any) -> struct.Struct:
    """Return one ``Struct`` for consecutive fixed-size fields, for hot paths that do not create records.

    Args:
        *parts: Types of the fields: ``Byte``, ``Int``, ``Long``, ``Bool``, or a record class, which stands for its
            leading fixed-size fields.

    Raises:
        TypeError: A part before the last contains a field of variable size.
    """
    letters = ""
    varies = False
    for part in parts:
        if varies:
            raise TypeError(f"the fields before {part} must all have a fixed size")
        hints = list(part.fields().values()) if isinstance(part, type) and issubclass(part, Record) else [part]
        for hint in hints:
            code = _struct_letter(hint)
            if code is None:
                varies = True
                break
            letters += code
    return struct.Struct(">" + letters)


@dataclass_transform(eq_default=False)
def record(cls: type[R]) -> type[R]:
    """Turn an annotated class into a record with slots and compiled methods.

    The result is like a class that ``dataclass(slots=True)`` creates, with the functions of :class:`Record`. A record
    is compiled when it is first used: this takes half a millisecond, and most programs use few of the sixty records.
    """
    hints = inspect.get_annotations(cls, eval_str=True)
    kept = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    slots = {"__slots__": tuple(hints), "__match_args__": tuple(hints)}
    slotted: Any = type(cls.__name__, cls.__bases__, {**kept, **slots})

    def first_init(self: Any, *args: Any, **kwargs: Any) -> None:
        ensure_compiled(slotted).__init__(self, *args, **kwargs)

    slotted.__init__ = first_init
    slotted.decode = staticmethod(lambda *args: ensure_compiled(slotted).decode(*args))
    slotted.read_from = staticmethod(lambda *args: ensure_compiled(slotted).read_from(*args))
    return cast(type[R], slotted)


_compiled: set[type[Record]] = set()


class Decoded(dict[bytes, R]):
    """A cache of decoded records by their bytes, for small requests that are repeated. Missing records are decoded.

    Callers must not modify the records. Entries never become invalid, because equal bytes decode to equal records. The
    cache contains up to 4,096 records of up to 128 bytes each, at most 4 MB, and is cleared when it is full.

    Args:
        cls: The class of the records.
    """

    def __init__(self, cls: type[R]) -> None:
        self._cls = cls

    def __missing__(self, raw: bytes) -> R:
        size = len(raw)
        record = self._cls.decode(raw, 0, size)
        if size <= 1 << 7:
            if len(self) >= 1 << 12:
                self.clear()
            self[raw] = record
        return record


def ensure_compiled(cls: type[R]) -> type[R]:
    """Compile a record's functions on the first call, and return the class.

    Call this function before you keep a reference to one of the record's functions.
    """
    if cls in _compiled:
        return cls
    compiler = _Compiler(cls, cls.fields())
    _execute(compiler.source(), f"<record {cls.__qualname__}>", compiler.env)
    for name in ("__init__", "__eq__", "__hash__", "encode"):
        setattr(cls, name, compiler.env[name])
    for name in ("decode", "read_from"):
        setattr(cls, name, staticmethod(compiler.env[name]))
    _compiled.add(cls)  # added last, because a class that failed to compile must not count as compiled
    return cls


class ReadStatements(NamedTuple):
    """The statements that read the fields of a record from ``buf``, between ``offset`` and ``end``.

    Args:
        fields: The names of the fields. The statements assign each field to a local variable of this name.
        text: The statements. They move ``offset`` to the end of the record, or raise MarshallingError.
        names: The global names that the statements use, with their values.
    """

    fields: tuple[str, ...]
    text: str
    names: dict[str, Any]


def read_statements(cls: type[Record]) -> ReadStatements:
    """Return the statements that read a record, for a function that uses its fields without creating the record."""
    compiler = _Compiler(cls, cls.fields())
    compiler.add_fields()
    text = "\n".join(line.removeprefix("    ") for line in compiler.read_block())
    used = {name: value for name, value in compiler.env.items() if re.search(rf"\b{name}\b", text)}
    return ReadStatements(tuple(compiler.hints), text, used)


def _execute(source: str, filename: str, env: dict[str, Any]) -> None:
    """Execute generated source in *env*, and register it with ``linecache``, so tracebacks and debuggers show it."""
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), env)

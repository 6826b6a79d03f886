"""A base class for settings: fields with defaults, which are set by keyword."""

from __future__ import annotations

from typing import Any, dataclass_transform


@dataclass_transform()
class Fields:
    """The base class of classes whose annotated attributes are fields. Each field needs a default.

    It replaces ``dataclass``, which compiles code for each class. For the settings of a daemon, compiling would take a
    twentieth of the startup time. If a default is a ``Fields`` object, each instance receives its own default object.

    Raises:
        TypeError: A keyword is not the name of a field.
        ValueError: ``__post_init__`` rejects a value.
    """

    def __init__(self, *args: Any, **values: Any) -> None:
        names = type(self).__annotations__
        values |= zip(names, args, strict=False)
        if unknown := ", ".join(values.keys() - names.keys()):
            raise TypeError(f"{type(self).__name__} has no field {unknown}; its fields are {', '.join(names)}")
        for name in names:
            default = getattr(type(self), name)
            value = values.get(name, default)
            setattr(self, name, type(default)() if value is default and isinstance(default, Fields) else value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values, and compute the values that depend on other fields."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

"""The configuration of a server: the table of keys, the sources that set them, and the result.

``keys.py`` is the table. ``load.py`` reads the sources and builds a :class:`Config`. ``properties.py`` and ``jaas.py``
parse the formats, ``converters.py`` defines the types of values, and ``messages.py`` the texts of the errors.
"""

from .config import Config, UnknownKey
from .keys import KEYS, Key, Status, find
from .load import build, masked, read_environment, read_file
from .messages import ConfigError
from .properties import Setting, Source, parse_definitions, parse_properties

__all__ = [
    "KEYS",
    "Config",
    "ConfigError",
    "Key",
    "Setting",
    "Source",
    "Status",
    "UnknownKey",
    "build",
    "find",
    "masked",
    "parse_definitions",
    "parse_properties",
    "read_environment",
    "read_file",
]

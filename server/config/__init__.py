"""The configuration of a server: the table of keys, the sources that set them, and the result.

``keys.py`` is the table. ``load.py`` reads the sources and builds a :class:`ServerConfig`. ``properties.py`` and
``jaas.py`` parse the formats, ``converters.py`` defines the types of values, and ``messages.py`` the texts of the
errors.
"""

from .config import ServerConfig, UnknownKey
from .keys import KEYS, Key, KeyStatus, find
from .load import build, masked_lines, read_environment, read_file
from .messages import ConfigError
from .properties import Setting, SettingSource, parse_definitions, parse_properties

__all__ = [
    "KEYS",
    "ConfigError",
    "Key",
    "KeyStatus",
    "ServerConfig",
    "Setting",
    "SettingSource",
    "UnknownKey",
    "build",
    "find",
    "masked_lines",
    "parse_definitions",
    "parse_properties",
    "read_environment",
    "read_file",
]

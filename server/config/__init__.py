"""The configuration of a server: the table of keys, the sources that set them, and the result.

``keys.py`` is the table; ``load.py`` reads the sources and builds a :class:`Config`; ``properties.py`` and ``jaas.py``
parse the formats, ``converters.py`` has the types of values and ``messages.py`` the sentences of the errors.
"""

from zoolet.server.config.config import Config, UnknownKey
from zoolet.server.config.keys import KEYS, Key, Status, find
from zoolet.server.config.load import build, masked, read_environment, read_file
from zoolet.server.config.messages import ConfigError
from zoolet.server.config.properties import Setting, Source, parse_definitions, parse_properties

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

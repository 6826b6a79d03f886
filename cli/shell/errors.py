"""Error messages of the shell, with the texts of zkCli.

Source: CliWrapperException.getMessage; KeeperException.getCodeMessage; PathUtils.validatePath.
"""

from __future__ import annotations

from typing import Final

from ...protocol import paths
from ...protocol.errors import ErrorCode, ZooKeeperError


class ShellCommandError(Exception):
    """A command of the shell failed. The message is printed without a prefix.

    Args:
        text: The message.
        code: Exit code of the command.
        advice: Text to print before the message, such as the usage of the command.
    """

    def __init__(self, text: str, code: int = 1, advice: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.advice = advice


class ShellUsageError(Exception):
    """The words of a command are invalid. The shell prints the usage of the command."""


NOT_FOUND_EXIT_CODE: Final = 127
"""Exit code of an unknown command."""
_NODE_MESSAGES: Final = {
    ErrorCode.NO_NODE: "Node does not exist: ",
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: "Ephemerals cannot have children: ",
    ErrorCode.NODE_EXISTS: "Node already exists: ",
    ErrorCode.NOT_EMPTY: "Node not empty: ",
    ErrorCode.NOT_READ_ONLY: "Not a read-only call: ",
    ErrorCode.INVALID_ACL: "Acl is not valid : ",
    ErrorCode.NO_AUTH: "Insufficient permission : ",
    ErrorCode.BAD_ARGUMENTS: "Arguments are not valid : ",
    ErrorCode.BAD_VERSION: "version No is not valid : ",
    ErrorCode.QUOTA_EXCEEDED: "Quota has exceeded : ",
}
_OTHER_MESSAGES: Final = {
    ErrorCode.RECONFIG_IN_PROGRESS: "Another reconfiguration is in progress -- concurrent reconfigs not supported "
    "(yet)",
    ErrorCode.NEW_CONFIG_NO_QUORUM: "No quorum of new config is connected and up-to-date with the leader of last "
    "commmitted config - try invoking reconfiguration after new servers are connected and synced",
}
_ERROR_NAMES: Final = {
    ErrorCode.SYSTEM_ERROR: "SystemError",
    ErrorCode.RUNTIME_INCONSISTENCY: "RuntimeInconsistency",
    ErrorCode.DATA_INCONSISTENCY: "DataInconsistency",
    ErrorCode.CONNECTION_LOSS: "ConnectionLoss",
    ErrorCode.MARSHALLING_ERROR: "MarshallingError",
    ErrorCode.UNIMPLEMENTED: "Unimplemented",
    ErrorCode.OPERATION_TIMEOUT: "OperationTimeout",
    ErrorCode.API_ERROR: "APIError",
    ErrorCode.SESSION_EXPIRED: "Session expired",
    ErrorCode.INVALID_CALLBACK: "Invalid callback",
    ErrorCode.INVALID_ACL: "InvalidACL",
    ErrorCode.AUTH_FAILED: "AuthFailed",
    ErrorCode.SESSION_MOVED: "Session moved",
    ErrorCode.EPHEMERAL_ON_LOCAL_SESSION: "Ephemeral node on local session",
    ErrorCode.NO_WATCHER: "No such watcher",
    ErrorCode.RECONFIG_DISABLED: "Reconfig is disabled",
    ErrorCode.SESSION_CLOSED_REQUIRE_AUTH: "Session closed because client failed to authenticate",
    ErrorCode.THROTTLED_OP: "Op throttled due to high load",
}


def error_code_text(code: ErrorCode, path: str | None) -> str:
    """Return an error code, and the path if any, in the format of the Java client."""
    name = _ERROR_NAMES.get(code) or "".join(word.title() for word in code.name.split("_"))
    return f"KeeperErrorCode = {name}" + (f" for {path}" if path else "")


def error_text(error: ZooKeeperError) -> str:
    """Return zkCli's message for an error of the server or of the connection."""
    prefix = _NODE_MESSAGES.get(error.code)
    if prefix is not None:
        return f"{prefix}{error.path or 'null'}"
    text = _OTHER_MESSAGES.get(error.code) or error_code_text(error.code, error.path)
    if error.code is ErrorCode.CONNECTION_LOSS and error.detail:
        text += f": {error.detail}"
    return text


def unknown_command_message(name: str, near: str = "") -> str:
    """Return zoolet's message for an unknown command, which suggests *near*, the closest match."""
    return f"Command not found: {name}; {f'did you mean {near}?' if near else 'type help for a list'}"


def validate_path(path: str) -> str:
    """Check that a path is valid, and return it.

    Raises:
        ShellCommandError: The path is invalid. The message is the Java client's text.
    """
    if (why := _path_error(path)) is not None:
        raise ShellCommandError(why)
    return path


def _path_error(path: str) -> str | None:
    if not path:
        return "Path length must be > 0"
    if not path.startswith("/"):
        return "Path must start with / character"
    if path == "/":
        return None
    if path.endswith("/"):
        return "Path must not end with / character"
    if paths.path_error(path) is None:
        return None
    place = 0
    for name in path[1:].split("/"):
        end = place + 1 + len(name)
        if not name:
            return _invalid_path_message(path, f"empty node name specified @{place + 1}")
        if name in (".", ".."):
            return _invalid_path_message(path, f"relative paths not allowed @{end - 1}")
        for letter in range(place + 1, end):
            if path[letter] == "\0":
                return _invalid_path_message(path, f"null character not allowed @{letter}")
            if not paths.is_valid_name("a" + path[letter]):
                return _invalid_path_message(path, f"invalid character @{letter}")
        place = end
    return None


def _invalid_path_message(path: str, reason: str) -> str:
    return f'Invalid path string "{path}" caused by {reason}'

"""The replies to operators' commands: text about the engine, without sockets."""

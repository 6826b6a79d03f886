"""What operators ask a server: text about the engine, made without sockets."""

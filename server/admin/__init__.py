"""The interfaces for operators, without sockets: commands, metrics, health checks, the history and the audit log."""

"""The asyncio client: connection, calls, watchers, and the building blocks of recipes."""

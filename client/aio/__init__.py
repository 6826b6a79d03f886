"""The asyncio client: connection, calls, watchers, and what recipes are built of."""

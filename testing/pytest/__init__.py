"""The fixtures that need a plugin for asyncio, and the types of fixtures."""

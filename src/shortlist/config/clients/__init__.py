"""The files of MCP clients: where they are, what they hold, and how they are changed without harm."""

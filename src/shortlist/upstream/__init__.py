"""Connections to MCP servers, supervised, in both eras of the protocol."""

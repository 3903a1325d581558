"""Configuration files in the shapes people already have, read into frozen settings."""

from shortlist.config.settings import (
    HttpTransport,
    Limits,
    MemoryTransport,
    PresetSettings,
    ServerSettings,
    Settings,
    SseTransport,
    StdioTransport,
    TokenSettings,
    ToolOverride,
    ToolsetSettings,
    Transport,
    hash_token,
)

__all__ = [
    "HttpTransport",
    "Limits",
    "MemoryTransport",
    "PresetSettings",
    "ServerSettings",
    "Settings",
    "SseTransport",
    "StdioTransport",
    "TokenSettings",
    "ToolOverride",
    "ToolsetSettings",
    "Transport",
    "hash_token",
]

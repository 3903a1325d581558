"""Configuration files in the shapes people already have, read into frozen settings.

Reading them is in `shortlist.config.load`, apart from the values: it needs pydantic.
"""

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

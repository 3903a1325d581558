"""Configuration files in the shapes people already have, read into frozen settings."""

from shortlist.config.load import find_config, load_settings, settings_of, user_config_path, user_state_path
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
    "find_config",
    "hash_token",
    "load_settings",
    "settings_of",
    "user_config_path",
    "user_state_path",
]

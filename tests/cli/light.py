"""What a light command must not import, so that it starts at once."""

HEAVY = frozenset(
    {"anyio", "asyncio", "email", "httpx2", "mcp", "mcp_types", "numpy", "pydantic", "starlette", "uvicorn"}
)


def imported(import_times: str) -> set[str]:
    """Return the top-level packages that a run with `-X importtime` names on stderr."""
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in import_times.splitlines()}

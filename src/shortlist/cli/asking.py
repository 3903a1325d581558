"""Questions on the terminal."""

import sys


def confirmed(question: str) -> bool:
    """Ask for a yes; without a terminal nobody can answer, and it is a no."""
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")

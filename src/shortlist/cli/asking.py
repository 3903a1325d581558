"""Questions on the terminal."""

import sys


def confirmed(question: str) -> bool:
    """Ask the user to confirm; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")

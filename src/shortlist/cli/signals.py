"""Signals that ask this process to end."""

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end this process in order: a closed terminal too, unless `nohup` started it."""
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return (signal.SIGINT, signal.SIGTERM)
    return (signal.SIGINT, signal.SIGTERM, hangup)

"""Signals ask a run to save and stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping_on_signals(run: Any) -> Iterator[None]:
    """SIGINT and SIGTERM ask the run to save and stop after its step; a second one ends it at once.

    `run` has a `stop_requested`: a trainer in this process, or the driver of many elsewhere.
    Only the main thread may handle signals: in any other one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: Any, frame: Any) -> None:
        run.stop_requested = signal.Signals(number).name
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Programs that run, as tests/guest-files has them, and waiting with a bound."""

import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Behind this folder: both have a module `trial`.
sys.path.append(str(HERE.parent / "guest-files"))
# pylint: disable=wrong-import-position
from host import CLIENTS, Failed, call, expect_no_panic, ignored, run, started  # noqa: E402

__all__ = ["CLIENTS", "HERE", "Failed", "call", "expect_no_panic", "ignored", "run", "started", "wait_until"]

LOOK_S = 0.05


def wait_until(condition, seconds, what):
    """Waits until a condition holds, and returns after how many seconds it did. Not within `seconds` is a failure."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(LOOK_S)
    return time.monotonic() - began

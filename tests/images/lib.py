"""Programs that run, and guests that are made, as tests/guest-files has them."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Behind this folder: both have a module `trial`.
sys.path.append(str(HERE.parent / "guest-files"))
# pylint: disable=wrong-import-position
from host import RUN_S, Failed, call, expect_no_panic, ignored, make_guests, started, sum_of  # noqa: E402

__all__ = ["Failed", "call", "expect_no_panic", "ignored", "make_guests", "run", "started", "sum_of"]


def run(command, timeout=RUN_S, is_text=True):
    """Runs a program to its end, and returns its exit code and what it printed, as text or as bytes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if is_text:
        pipes |= {"text": True, "errors": "replace"}
    with started(command, **pipes) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{' '.join(process.args)}` did not end within {timeout} s") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)

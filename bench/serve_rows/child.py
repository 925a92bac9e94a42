"""Processes that run beside others, and what each took."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass

from lib import system
from lib.system import BenchError

POLL_SECONDS = 0.02


@dataclass
class Took:
    """What a process took, and what it said."""

    seconds: float
    cpu_seconds: float
    memory_bytes: int
    out: str
    err: str


class Child:
    """A program that runs."""

    def __init__(self, *words, group=None):
        self.words = [os.fspath(word) for word in words]
        self._out, self._err = (tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2))
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            self.words, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err,
            preexec_fn=system.before_program(group),
        )  # fmt: skip
        self._usage, self._ended = None, 0.0

    def poll(self):
        """Looks after the process; returns whether it has ended."""
        if self.process.returncode is not None:
            return True
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._ended, self._usage = time.perf_counter(), usage
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return True

    def said(self):
        """Returns what it has written to standard error so far."""
        # The process goes on writing where this one has read to: both have one place in the file.
        return os.pread(self._err.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def kill(self):
        """Kills it, wherever it is, and forgets what it said."""
        if not self.poll():
            system.end(self.process)
        self._out.close()
        self._err.close()

    def took(self):
        """Returns what it took. Raises BenchError where it has failed."""
        self._out.seek(0)
        self._err.seek(0)
        out, err = self._out.read(), self._err.read()
        if self.process.returncode != 0:
            text = " ".join(self.words)
            raise BenchError(f"`{text}` failed with {self.process.returncode}: {(err or out).strip()[-500:]}")
        usage = self._usage
        return Took(
            self._ended - self.started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out, err.strip()
        )


def wait_all(children, seconds=system.COMMAND_SECONDS_MAX):
    """Waits for processes; returns what each took. Raises BenchError where one fails or takes too long."""
    ends = time.monotonic() + seconds
    try:
        # Each of them is polled, whatever the others say.
        while not all([child.poll() for child in children]):
            for child in children:
                # The others may wait for it for ever.
                if child.process.returncode:
                    child.took()
            if time.monotonic() > ends:
                raise BenchError(f"`{' '.join(children[0].words)}` did not end within {seconds} s")
            time.sleep(POLL_SECONDS)
        return [child.took() for child in children]
    finally:
        for child in children:
            child.kill()

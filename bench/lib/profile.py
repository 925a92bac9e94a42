"""Where the time of each measured stretch goes: `perf record` of the whole machine beside it.

A profiled run is slower than others, so its table is not for the document; what it says is how the time is divided.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from .system import BenchError, run

SAMPLES_PER_SECOND = 499
# What takes less of the time than this is left out of the text.
PERCENT_MIN = 0.5
START_SECONDS_MAX = 10
START_POLL_SECONDS = 0.05
END_SECONDS_MAX = 60


class Profiler:
    """Writes `ROW-SIDE-NUMBER.txt` into a folder for each stretch, with the samples beside it as `.data`."""

    def __init__(self, folder):
        if shutil.which("perf") is None:
            raise BenchError("there is no `perf` to profile with: install it (Debian's package is linux-perf)")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.row = "run"
        self._count = 0

    @contextmanager
    def around(self, side):
        """Records what all processors do while something goes on inside."""
        self._count += 1
        samples = self._folder / f"{self.row}-{side}-{self._count:02}.data"
        samples.unlink(missing_ok=True)
        with open(samples.with_suffix(".log"), "wb") as log:
            recorder = subprocess.Popen(
                ["perf", "record", "--all-cpus", f"--freq={SAMPLES_PER_SECOND}", "--output", samples],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            try:
                wait_for(samples)
                before = shares_of_time()
                yield
            finally:
                after = shares_of_time()
                recorder.send_signal(signal.SIGINT)
                recorder.wait(END_SECONDS_MAX)
        samples.with_suffix(".txt").write_text(time_between(before, after) + report_of(samples), encoding="utf-8")


def share_in(process, functions, work):
    """Returns the part of a process's time, from 0 to 1, in some functions or below them while `work` goes on.

    Needs `perf`: see `why_no_samples`.
    """
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "perf.data"
        with open(samples.with_suffix(".log"), "wb") as log:
            recorder = subprocess.Popen(
                ["perf", "record", f"--freq={SAMPLES_PER_SECOND}", f"--pid={process}", "--call-graph=dwarf,8192",
                 "--output", samples],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
            try:
                wait_for(samples)
                work()
            finally:
                recorder.send_signal(signal.SIGINT)
                recorder.wait(END_SECONDS_MAX)
        words = ["--stdio", "--no-inline", "--children", "--call-graph=none", "--fields=overhead_children,symbol"]
        return share_of_lines(run("perf", "report", *words, "--input", samples).text, functions)


def why_no_samples():
    """Returns why no process can be sampled, None where it can."""
    if shutil.which("perf") is None:
        return "there is no `perf` (Debian's package is linux-perf)"
    # Containers may forbid it, and a kernel may lack it.
    tried = subprocess.run(["perf", "record", "--output", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "`perf record` does not work here"


def share_of_lines(report, functions):
    """Adds what perf's report tells of functions, each with all that it calls; returns a part from 0 to 1."""
    # Of a program without symbols nothing could be told.
    if "onefold" not in report and re.search(r"\[\.\]\s+0x[0-9a-f]+", report):
        raise BenchError("perf's report names no function of onefold: is the program stripped?")
    found = 0.0
    for line in report.splitlines():
        if match := re.match(r"\s*([0-9.]+)%\s+\[.\]\s+(.*)", line):
            if any(name in match[2] for name in functions):
                found += float(match[1])
    return found / 100


def wait_for(samples):
    """Waits until the recorder is at work: it makes its file once everything is set up."""
    started = time.monotonic()
    while not samples.exists():
        if time.monotonic() - started > START_SECONDS_MAX:
            log = samples.with_suffix(".log")
            raise BenchError(f"perf does not begin: {log.read_text(encoding='utf-8', errors='replace').strip()}")
        time.sleep(START_POLL_SECONDS)


def shares_of_time():
    """Returns the moment, and the seconds that all processors were busy, idle, and idle with a disk at work."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, idle, waiting, irq, softirq = map(int, file.readline().split()[1:8])
    tick = os.sysconf("SC_CLK_TCK")
    return time.monotonic(), (user + nice + system + irq + softirq) / tick, idle / tick, waiting / tick


def time_between(before, after):
    seconds, busy, idle, waiting = (late - early for early, late in zip(before, after))
    return (
        f"{seconds:.2f} s; of {os.cpu_count()} processors {busy / max(seconds, 0.01):.2f} were busy, "
        f"{waiting / max(seconds, 0.01):.2f} idle with a request at the disk, {idle / max(seconds, 0.01):.2f} idle\n\n"
    )


def report_of(samples):
    """Returns perf's text: each program's share of the samples, then each function's."""
    words = ["--stdio", f"--percent-limit={PERCENT_MIN}", "--input", samples]
    return "\n".join(run("perf", "report", "--sort", sort, *words).text for sort in ("comm", "comm,symbol"))

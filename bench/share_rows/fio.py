"""fio on one file of the ground, with one request at a time."""

import json
import signal
import subprocess
from dataclasses import dataclass

from lib.system import BenchError, before_program, end, run

# A fio that is told to end does so after the request in flight, and reads back what it still has to verify.
END_SECONDS_MAX = 60
# What fio calls a write in its logs.
WRITE = 1
NS_PER_SECOND = 1e9
MS_PER_SECOND = 1e3


def words(path, length, seed, **options):
    """Returns the command: 4 KiB, O_DIRECT, one request at a time, within a file that is there."""
    given = {
        "name": "guest", "filename": path, "size": length, "bs": 4096, "direct": 1, "ioengine": "psync",
        # A job that is a process outlives a fio that is killed, and works on.
        "thread": 1,
        "randrepeat": 0, "randseed": seed, "allow_file_create": 0, "output-format": "json",
    } | options  # fmt: skip
    return ["fio", *(f"--{name}={value}" for name, value in given.items())]


def for_seconds(path, length, seed, seconds, user=None, **options):
    """Returns what fio tells of its job, which works for so long, as a user where one is given."""
    return job_of(run(*words(path, length, seed, time_based=1, runtime=seconds, **options), user=user).text)


class Beside:
    """fio working beside what goes on inside; `job` is what it tells of that afterwards."""

    def __init__(self, path, length, seed, user=None, **options):
        # Whatever is inside takes less.
        self._words = words(path, length, seed, time_based=1, runtime=3600, **options)
        self._before = before_program(user=user)
        self._process = None
        self.job = None

    def __enter__(self):
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        self._process = subprocess.Popen(
            list(map(str, self._words)), stdin=null, stdout=pipe, stderr=null, text=True, preexec_fn=self._before
        )
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            end(self._process)
            self._process.stdout.close()
            return
        self._process.send_signal(signal.SIGINT)
        try:
            out, _ = self._process.communicate(timeout=END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            end(self._process)
            raise BenchError("fio did not end") from None
        self.job = job_of(out)


def job_of(text):
    """Returns the only job of fio's JSON. Raises BenchError where it met an error: it read other bytes than it wrote."""
    # It may say first that it was interrupted.
    start = text.find("{")
    if start < 0:
        raise BenchError(f"fio has told nothing: {text.strip()}")
    (job,) = json.loads(text[start:])["jobs"]
    if job["error"]:
        raise BenchError(f"fio has met error {job['error']}")
    return job


@dataclass(frozen=True)
class Write:
    """A write of fio's log, in seconds: when it was done, by the clock of the day, and how long it took."""

    done_at: float
    seconds: float


def log_options(path):
    """Returns options that have fio log the latency of each request."""
    return {"write_lat_log": path, "log_unix_epoch": 1}


def logged_writes(path, begin, end):
    """Returns the writes of a log that were in flight at any time from `begin` to `end`."""
    # fio completes the name: latencies between submission and completion, of its first job.
    with open(f"{path}_clat.1.log", encoding="ascii") as log:
        writes = [write for write in map(write_of, log) if write]
    return [write for write in writes if write.done_at >= begin and write.done_at - write.seconds <= end]


def write_of(line):
    """Returns the Write of a line of a log; None where it is of another kind of request."""
    done_ms, latency_ns, direction, *_ = map(int, line.split(","))
    return Write(done_ms / MS_PER_SECOND, latency_ns / NS_PER_SECOND) if direction == WRITE else None

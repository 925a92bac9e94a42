"""Requests of 4 KiB, driven by fio."""

import json

from ..data import BLOCK_BYTES
from ..measure import Line, Sample, Work
from ..side import ORIGINAL, as_words
from ..system import BenchError, run
from .row import MB, OneLineRow, expect_unique, seed_of

NAME = "random"
DEPTH = 32


class RandomRow(OneLineRow):
    """O_DIRECT with 32 requests in flight, in a file written in order. No block is visited twice in a round."""

    uses_original = True
    share_of_time = 1.5

    def __init__(self, name, writes):
        self.direction, goal = ("write", "1.0x / 2.0x") if writes else ("read", "0.5x / 0.9x")
        super().__init__(name, f"O_DIRECT 4 KiB random {self.direction}, depth {DEPTH}", "op/s", goal=goal)

    def measure(self, side, settings, round_no):
        # The pool's daemon has a cache of its own, which O_DIRECT does not pass by.
        side.make_cold()
        job, cost = fio(
            side, f"rand{self.direction}", round_no, settings.fio_seconds, filename=side.path(ORIGINAL), direct=1,
            ioengine="libaio", iodepth=DEPTH,
            # Part of the time where it is a write, as with every other write.
            end_fsync=1,
        )  # fmt: skip
        if self.direction == "write":
            expect_unique(cost, self.name)
        return {self.name: rate(job, self.direction, cost)}

    def finish(self, side, settings):
        if self.direction == "write":
            side.drop_original()


class SmallWritesRow(OneLineRow):
    """A new file, written in order with 4 KiB in each call, and fsync; the kernel gathers them where it is let."""

    def __init__(self, name, writeback_cache):
        switch, goal = ("on", "0.5x / 0.8x") if writeback_cache else ("off", "report / 0.2x")
        title = f"sequential unique write, 4 KiB, buffered, fsync; pool's kernel writeback cache {switch}"
        super().__init__(name, title, "MB/s", goal=goal)
        self.options = {"writeback-cache": True} if writeback_cache else {}

    def prepare(self, side, settings):
        side.remount(**self.options)

    def measure(self, side, settings, round_no):
        return {self.name: small_writes(side, settings, seed_no=round_no)}

    def finish(self, side, settings):
        side.remount()


class FsyncRow(OneLineRow):
    """Writes of 4 KiB to random places, each followed by fsync before the next; a file for each writer, as machines
    have their disks, or one for all."""

    needs_journal = True

    def __init__(self, name, what, goal, writers=1, files=1):
        super().__init__(name, f"fsync'd 4 KiB random writes, {what}", "op/s", goal=goal)
        self.writers = writers
        self.names = [f"{NAME}.{number}" for number in range(files)]

    def prepare(self, side, settings):
        for number, name in enumerate(self.names):
            length = settings.fsync_file_bytes // len(self.names)
            side.client("write", side.path(name), bytes=length, seed=seed_of(number, use=3))

    def measure(self, side, settings, round_no):
        job, cost = fio(
            side, "randwrite", round_no, settings.fsync_seconds, names=self.names, ioengine="psync", fsync=1,
            numjobs=self.writers // len(self.names),
        )  # fmt: skip
        expect_unique(cost, self.name)
        sample = rate(job, "write", cost, jobs=self.writers)
        sample.more["fsync_p99_ms"] = job["sync"]["lat_ns"].get("percentile", {}).get("99.000000", 0) / 1e6
        return {self.name: sample}

    def finish(self, side, settings):
        side.remove(*self.names)


def small_writes(side, settings, seed_no):
    """Writes a new file with 4 KiB in each call, and fsync; returns the sample of its rate, and removes the file."""
    # Without reserving space beforehand, as the client writes its files too.
    job, cost = fio(
        side, "write", seed_no, None, size=settings.small_writes_bytes, ioengine="psync", end_fsync=1,
        fallocate="none", allow_file_create=1,
    )  # fmt: skip
    expect_unique(cost, "small writes")
    side.remove(NAME)
    moved_bytes, seconds = job["write"]["io_bytes"], job["job_runtime"] / 1000
    if moved_bytes != settings.small_writes_bytes:
        raise BenchError(f"fio wrote {moved_bytes} bytes of {settings.small_writes_bytes}")
    return Sample(moved_bytes / seconds / MB, cost, Work.moved(moved_bytes))


def fio(side, mode, round_no, seconds, **options):
    """Runs fio on a row's files, for some seconds or to its end; returns fio's account, of all jobs together, and what it
    cost."""
    finished, cost = side.command(*fio_command(side, mode, round_no, seconds, **options))
    return fio_account(finished.text, side.path(NAME)), cost


def fio_account(text, path):
    """Returns fio's account of its jobs, all together, from what it printed; raises BenchError where they failed."""
    # Warnings, if any, come before the JSON.
    job = json.loads(text[text.find("{") :])["jobs"][0]
    if job["error"]:
        raise BenchError(f"fio's job on {path} ended with error {job['error']}")
    return job


def fio_command(side, mode, round_no, seconds, names=(NAME,), filename=None, **options):
    """Returns the words of fio on a row's files, a job for each, for some seconds or to its end; `filename` is one that
    lies elsewhere."""
    files = [filename] if filename else [side.path(name) for name in names]
    defaults = {
        "bs": BLOCK_BYTES,
        "randseed": seed_of(round_no, use=4),
        "allow_file_create": 0,
        # Changes every buffer a little before it is written: no two blocks are equal.
        "scramble_buffers": 1,
    }
    if seconds is not None:
        defaults["runtime"] = fio_time(seconds)
    jobs = [word for number, path in enumerate(files) for word in (f"--name=bench-{number}", f"--filename={path}")]
    return ["fio", "--output-format=json", f"--rw={mode}", *as_words(defaults | options), "--group_reporting", *jobs]


def fio_time(seconds):
    """Returns a time as fio takes it, which knows no parts of seconds."""
    return f"{round(seconds * 1000)}ms"


def disk_rate(path, direction, depth, seconds):
    """Returns how fast fio reads or writes single blocks at random places of a whole disk's file, past all file systems
    but the one that it lies on. What it writes destroys what the disk holds.
    """
    options = {
        "direct": 1, "ioengine": "libaio", "iodepth": depth, "bs": BLOCK_BYTES, "runtime": fio_time(seconds), "time_based": True,
        "allow_file_create": 0, "end_fsync": 1, "scramble_buffers": 1,
    }  # fmt: skip
    words = ["--output-format=json", f"--rw=rand{direction}", *as_words(options), "--name=disk", f"--filename={path}"]
    job = fio_account(run("fio", *words).text, path)
    moved_bytes, seconds = job[direction]["io_bytes"], job["job_runtime"] / 1000
    return Sample(moved_bytes / seconds / MB, None, Work.moved(moved_bytes))


def rate(job, direction, cost, jobs=1):
    done = job[direction]
    # The job's own time, which holds the last fsync, not that of its requests alone.
    seconds = job["job_runtime"] / 1000 / jobs
    latency = done["clat_ns"]
    more = {"mean_latency_ms": latency["mean"] / 1e6, "p99_latency_ms": latency["percentile"]["99.000000"] / 1e6}
    return Sample(done["total_ios"] / seconds, cost, Work.operations(done["total_ios"]), more)

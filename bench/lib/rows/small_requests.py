"""Small requests: how long one takes, alone and beside other work, and what looking for the next one costs."""

import json
import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from .. import system
from ..caches import drop_names
from ..measure import Line, Sample, Work
from ..profile import share_in, why_no_samples
from ..side import ORIGINAL
from ..system import BenchError
from .random_io import fio, fio_command, rate
from .row import Row, seed_of

CLIENT = Path(__file__).parents[1] / "small_requests.py"
FOLDER = "empty"
# The client's job for each line about names, in their order.
NAME_JOBS = {"create": "make", "stat": "stat", "unlink": "unlink"}
WRITTEN = "sectors"

# Part of the file that is read again and again, so that the pool has it in memory.
CACHED_BYTES = 8 << 20
# Where the daemon's time counts as polling: these, and what they call.
POLLING_FUNCTIONS = ("polling::Polling::look", "polling::Polling::slept")
# What runs beside the reads begins before them, and would end after them.
LEAD_SECONDS = 0.5
# How long each kind of read goes on.
READ_SECONDS = 2
BESIDE_SECONDS_MAX = 60


class WorkBesideCreates(NamedTuple):
    """What programs did at the same time: those that count, the client that makes files, and the daemon."""

    steps: int
    files: int
    daemon_seconds: float


class DepthOneRow(Row):
    """Reads of 4 KiB to random places, O_DIRECT, one at a time: by one client, and by two in halves of the file."""

    name = "read-depth-1"
    uses_original = True
    # A round makes each side cold twice, and reads three times on three sides.
    share_of_time = 5.0
    in_quick = False
    lines = (
        Line("read-depth-1", "O_DIRECT 4 KiB random read, depth 1, one client", "op/s", goal="report"),
        Line("read-depth-1-two", "the same, two clients", "op/s", goal="report"),
        Line("read-depth-1-gain", "two clients against one", "x", goal="1.7x", has_ratio=False),
        Line("read-depth-1-cached", "the same by one client, from the pool's memory", "op/s", goal="report"),
    )

    def measure(self, side, settings, round_no):
        samples = {}
        for key, clients in (("read-depth-1", 1), ("read-depth-1-two", 2)):
            side.make_cold()
            half = settings.file_bytes // 2
            job, cost = read(side, settings, round_no, numjobs=clients, size=half, offset_increment=half)
            samples[key] = rate(job, "read", cost, jobs=clients)
        gain = samples["read-depth-1-two"].value / samples["read-depth-1"].value
        read(side, settings, round_no, size=CACHED_BYTES, rw="read", seconds=min(settings.fio_seconds, 1))
        job, cost = read(side, settings, round_no, size=CACHED_BYTES)
        return samples | {"read-depth-1-gain": Sample(gain), "read-depth-1-cached": rate(job, "read", cost)}


class BesideRow(Row):
    """The slowest hundredth of reads at depth 1: alone, and beside writers of sectors and makers of files."""

    name = "read-beside"
    uses_original = True
    share_of_time = 5.0
    in_quick = False
    lines = tuple(
        Line(
            f"read-{key}", f"O_DIRECT 4 KiB random read, depth 1, {what}: 99th percentile", "us",
            higher_is_better=False, goal=goal,
        )
        for key, what, goal in (
            ("alone", "alone", "report"),
            ("beside-writer", "beside a writer of 512 bytes at a time", "2x of alone, or 1.3x of ext4"),
            ("beside-creates", "beside a loop that makes files", "2x of alone, or 1.3x of ext4"),
        )
    )  # fmt: skip

    def prepare(self, side, settings):
        side.client("write", side.path(WRITTEN), bytes=settings.fsync_file_bytes, seed=seed_of(0, use=21))

    def measure(self, side, settings, round_no):
        samples = {"read-alone": p99(side, settings, round_no)}
        writer = fio_command(
            side, "randwrite", round_no, BESIDE_SECONDS_MAX, filename=side.path(WRITTEN), bs=512, direct=1,
            ioengine="psync", time_based=True,
            # One process, so that none is left when it is killed.
            thread=True,
        )  # fmt: skip
        samples["read-beside-writer"] = p99(side, settings, round_no, beside=writer)
        folder = side.make_folder(FOLDER)
        maker = (side.place.python, "-B", CLIENT, "create", folder, BESIDE_SECONDS_MAX)
        samples["read-beside-creates"] = p99(side, settings, round_no, beside=[str(word) for word in maker])
        shutil.rmtree(folder)
        side.settle()
        return samples

    def finish(self, side, settings):
        side.remove(WRITTEN)


class EmptyFilesRow(Row):
    """One client makes empty files, asks for each when the kernel has forgotten them, and removes them."""

    name = "empty-files"
    share_of_time = 0.8
    lines = tuple(
        Line(f"empty-{what}", f"{what} of empty files, one folder, one client", "op/s", goal="report")
        for what in NAME_JOBS
    )

    def measure(self, side, settings, round_no):
        folder, count = side.make_folder(FOLDER), settings.small_files
        samples = {}
        for what, job in NAME_JOBS.items():
            if what == "stat":
                drop_names()
            finished, cost = side.command(side.place.python, "-B", CLIENT, job, folder, str(count))
            samples[f"empty-{what}"] = Sample(json.loads(finished.text)["rate"], cost, Work.operations(count))
        folder.rmdir()
        side.settle()
        return samples


class PollingRow(Row):
    """What it costs that threads look for work before they sleep.

    Idle: a mount that does so against one that does not. Under load the difference between two mounts would be lost in that
    between two turns, so the daemon is sampled, and its time in the functions of polling counts.
    """

    name = "polling"
    sides = ("pool",)
    share_of_time = 1.5
    in_quick = False
    lines = (
        Line(
            "polling-idle", "polling: the daemon's processor time while idle, more than without", "ms/s",
            higher_is_better=False, goal="0", has_ratio=False,
        ),
        Line(
            "polling-load", "polling: what it takes of all processors' time while programs keep them busy", "%",
            higher_is_better=False, goal="5 %", has_ratio=False,
        ),
    )  # fmt: skip

    def missing(self, settings):
        return why_no_samples()

    def measure(self, side, settings, round_no):
        side.remount(polling="off")
        idle_without = idle_seconds(side, settings)
        side.remount(polling="on")
        work = []
        folder = side.make_folder(FOLDER)
        part = share_in(
            side.daemon, POLLING_FUNCTIONS, lambda: work.append(work_beside_creates(side, settings, folder))
        )
        shutil.rmtree(folder)
        side.settle()
        idle = idle_seconds(side, settings)
        load = 100 * part * work[0].daemon_seconds / (os.cpu_count() * settings.fio_seconds)
        return {
            "polling-idle": Sample(1000 * (idle - idle_without) / settings.idle_seconds),
            "polling-load": Sample(load, more={"part_of_daemon": part} | work[0]._asdict()),
        }

    def finish(self, side, settings):
        side.remount()


def read(side, settings, round_no, **options):
    """Runs reads at depth 1 in the row's file; returns fio's account and the cost."""
    seconds = options.pop("seconds", min(settings.fio_seconds, READ_SECONDS))
    defaults = {"direct": 1, "ioengine": "psync", "time_based": True}
    mode = options.pop("rw", "randread")
    return fio(side, mode, round_no, seconds, filename=side.path(ORIGINAL), **defaults | options)


def p99(side, settings, round_no, beside=None):
    """Returns a sample of the 99th percentile of reads, in microseconds, with a command beside them."""
    side.make_cold()
    with ExitStack() as stack:
        process = beside and stack.enter_context(system.in_background(*beside, user=side.user))
        time.sleep(LEAD_SECONDS if beside else 0)
        job, cost = read(side, settings, round_no)
        if process and process.poll() is not None:
            raise BenchError(f"`{' '.join(map(str, beside))}` ended before the reads beside it")
    done = job["read"]
    latency = done["clat_ns"]
    more = {"mean_us": latency["mean"] / 1000}
    return Sample(latency["percentile"]["99.000000"] / 1000, cost, Work.operations(done["total_ios"]), more)


def work_beside_creates(side, settings, folder):
    """Returns what is done while a client makes files beside programs that keep all processors busy a little longer."""
    seconds = settings.fio_seconds
    client = side.place.python, "-B", os.fspath(CLIENT)
    counters = [
        subprocess.Popen([*client, "count", "-", str(seconds + LEAD_SECONDS)], stdout=subprocess.PIPE, text=True)
        for _ in range(os.cpu_count())
    ]
    finished, cost = side.command(*client, "create", folder, str(seconds))
    steps = sum(json.loads(counter.communicate()[0])["steps"] for counter in counters)
    return WorkBesideCreates(steps, json.loads(finished.text)["made"], cost.server_seconds)


def idle_seconds(side, settings):
    """Returns the daemon's processor time in a while without work."""
    time.sleep(settings.calm_seconds)
    before = side.server_cpu_seconds()
    time.sleep(settings.idle_seconds)
    return side.server_cpu_seconds() - before

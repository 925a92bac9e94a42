"""Small requests: how long one takes, alone and beside other work."""

import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

from .. import system
from ..caches import drop_names
from ..measure import Line, Sample, Work
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
# What runs beside the reads begins before them, and would end after them.
LEAD_SECONDS = 0.5
# How long each kind of read goes on.
READ_SECONDS = 2
BESIDE_SECONDS_MAX = 60


class DepthOneRow(Row):
    """Reads of 4 KiB to random places, O_DIRECT, one at a time: by one client, and by two in halves of the file."""

    name = "read-depth-1"
    uses_original = True
    # A round makes each side cold twice, and reads three times on three sides.
    share_of_time = 2.0
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
    share_of_time = 2.0
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
        return {f"empty-{what}": sample for what, sample in empty_files(side, settings)}


def read(side, settings, round_no, **options):
    """Runs reads at depth 1 in the row's file; returns fio's account and the cost."""
    seconds = options.pop("seconds", min(settings.fio_seconds, READ_SECONDS))
    defaults = {"direct": 1, "ioengine": "psync", "time_based": True}
    mode = options.pop("rw", "randread")
    return fio(side, mode, round_no, seconds, filename=side.path(ORIGINAL), **defaults | options)


def empty_files(side, settings):
    """Yields each of NAME_JOBS with the rate of one client that does it with empty files in one folder."""
    folder, count = side.make_folder(FOLDER), settings.small_files
    for what, job in NAME_JOBS.items():
        if what == "stat":
            drop_names()
        finished, cost = side.command(side.place.python, "-B", CLIENT, job, folder, str(count))
        yield what, Sample(json.loads(finished.text)["rate"], cost, Work.operations(count))
    folder.rmdir()
    side.settle()


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

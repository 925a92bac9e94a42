"""What it costs that threads look for the next request before they sleep, and what it gains."""

import json
import os
import shutil
import subprocess
import time
from typing import NamedTuple

from ..measure import Line, Sample
from ..profile import share_in, why_no_samples
from .random_io import NAME, fio, rate
from .row import Row, expect_unique, seed_of
from .small_requests import CACHED_BYTES, CLIENT, FOLDER, LEAD_SECONDS, NAME_JOBS, empty_files, read

# Where the daemon's time counts as polling: these, and what they call.
POLLING_FUNCTIONS = ("polling::Polling::look", "polling::Polling::slept")


class WorkBesideCreates(NamedTuple):
    """What programs did at the same time: those that count, the client that makes files, and the daemon."""

    steps: int
    files: int
    daemon_seconds: float


class PollingRow(Row):
    """What it costs that threads look for work before they sleep.

    Idle: a mount that does so against one that does not. Under load the difference between two mounts would be lost in that
    between two turns, so the daemon is sampled, and its time in the functions of polling counts.
    """

    name = "polling"
    sides = ("pool",)
    share_of_time = 1.0
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


class PollingGainRow(Row):
    """Small requests of one client on a mount whose threads look before they sleep, against one whose threads do not."""

    name = "polling-gain"
    sides = ("pool",)
    uses_original = True
    share_of_time = 2.0
    in_quick = False
    KINDS = {
        **{what: f"{what} of empty files" for what in NAME_JOBS},
        "read": "O_DIRECT 4 KiB random read, depth 1",
        "read-cached": "the same, from the pool's memory",
        "fsync": "fsync'd 4 KiB random writes, 1 writer",
    }
    lines = tuple(
        Line(f"polling-gain-{kind}", f"with polling against without: {title}", "x", goal="report", has_ratio=False)
        for kind, title in KINDS.items()
    )

    def prepare(self, side, settings):
        side.client("write", side.path(NAME), bytes=settings.fsync_file_bytes, seed=seed_of(0, use=22))

    def measure(self, side, settings, round_no):
        rates = {}
        # The way that goes first changes, in case going first matters.
        for polling in ("on", "off") if round_no % 2 == 0 else ("off", "on"):
            side.remount(polling=polling)
            side.settle()
            # Each way has places and data of its own: nothing is read or written a second time.
            rates[polling] = dict(self.rates(side, settings, 2 * round_no + (polling == "on")))
        return {
            f"polling-gain-{kind}": Sample(
                rates["on"][kind] / rates["off"][kind], more={way: of[kind] for way, of in rates.items()}
            )
            for kind in self.KINDS
        }

    def rates(self, side, settings, seed_no):
        """Yields how much of each kind the mount does in a second."""
        for what, sample in empty_files(side, settings):
            yield what, sample.value
        half = settings.file_bytes // 2
        job, cost = read(side, settings, seed_no, size=half)
        yield "read", rate(job, "read", cost).value
        read(side, settings, seed_no, size=CACHED_BYTES, rw="read", seconds=min(settings.fio_seconds, 1))
        job, cost = read(side, settings, seed_no, size=CACHED_BYTES)
        yield "read-cached", rate(job, "read", cost).value
        job, cost = fio(side, "randwrite", seed_no, settings.fsync_seconds, ioengine="psync", fsync=1)
        expect_unique(cost, self.name)
        yield "fsync", rate(job, "write", cost).value
        side.settle()

    def finish(self, side, settings):
        side.remount()
        side.remove(NAME)


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

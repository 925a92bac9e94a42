"""Pools that describe very many blocks without their data (crates/onefold-synthetic), each in a sparse file."""

import os
import signal
import time
from dataclasses import dataclass

from lib import system, workplace
from lib.data import BLOCK_BYTES
from lib.measure import Line, Sample
from lib.rows.row import Row
from lib.runner import Measuring, say
from lib.pool_side import PoolSide, send, wait_for_end

MIB = 1 << 20
# The pool's one file, fully mapped.
DESCRIBED = "described-0"

# On disk, rounded up from what was seen: entries, maps and the saved filter of a block; a pool's journal and the rest.
METADATA_BYTES_PER_BLOCK = 40
METADATA_BYTES = 192 * MIB
# A daemon of this memory and what works beside it.
MACHINE_SHARE_MAX = 0.8


@dataclass(frozen=True)
class PoolPlan:
    """A pool to be made."""

    blocks: int
    # Room for data of the rows.
    free_bytes: int
    memory_mib: int

    def disk_bytes(self):
        """Returns what the pool takes of the disk at most, once its free room was written."""
        return self.blocks * METADATA_BYTES_PER_BLOCK + METADATA_BYTES + self.free_bytes


class DescribedPool(PoolSide):
    """A pool with a file of blocks that have no data."""

    # Entries of 1 TiB that are read from the stores, on a busy machine.
    settle_seconds_max = 600

    def __init__(self, place, programs, plan):
        self.name = f"pool-{plan.blocks}"
        super().__init__(place, programs.onefold, f"{plan.memory_mib}M")
        self.plan = plan
        self._synthetic = programs.synthetic

    def format(self):
        """Makes it as a clean unmount leaves it, with a saved filter."""
        blocks, free = self.plan.blocks, self.plan.free_bytes // BLOCK_BYTES
        words = ("pool", f"--blocks={blocks}", f"--free-blocks={free}", f"--saved-filter={self.plan.memory_mib}")
        system.run(self._synthetic, *words, self.device)

    def serve(self):
        """Mounts it with cold caches and has it answer; returns when that began, by `time.perf_counter`, and how long
        it took.
        """
        self.forget_device()
        self.place.ballast.fill()
        started = time.perf_counter()
        self.mount()
        if DESCRIBED in os.listdir(self.mountpoint):
            self.path(DESCRIBED).stat()
        return started, time.perf_counter() - started

    def highest_memory(self):
        """Returns the highest resident memory that its daemon ever had."""
        return Sample(self.memory_status()["VmHWM"] / MIB, more={"setting": self.memory})

    def drop(self):
        """Takes it away with its file, in whatever state. What its daemon would still write is lost with it."""
        if self.daemon is not None and send(self.daemon, signal.SIGKILL):
            wait_for_end(self.daemon)
        if system.is_mounted(self.mountpoint):
            system.run("umount", "--lazy", self.mountpoint)
        self.close()
        self.device.unlink(missing_ok=True)


class ScaleRow(Row):
    """A row whose lines tell the size of its pools; they are made before it and unmounted."""

    sides = ("pool",)
    # Whether the next row cannot use its pools.
    spends_pools = False

    def __init__(self, settings):
        self.settings = settings
        self.lines = tuple(self.make_lines(settings))

    def make_lines(self, settings):
        """Returns what it adds to the table."""
        raise NotImplementedError

    def plans(self, settings):
        """Returns the pools that it needs."""
        raise NotImplementedError

    def missing(self, settings):
        needed = max(plan.memory_mib for plan in self.plans(settings)) * MIB
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there * MACHINE_SHARE_MAX:
            return f"a daemon of {needed // MIB} MiB does not fit the {there // MIB} MiB of this machine's memory"
        return None

    def prepare(self, pools, settings):
        """Mounts the pools and makes what is needed before the first round."""

    def measure(self, pools, settings, round_no):
        """Measures once; returns pairs of a line's key and a sample, of which a line may have several."""
        raise NotImplementedError

    def finish(self, pools, settings):
        for pool in pools:
            pool.unmount()


def memory_line(key, memory_mib, of=""):
    """Returns the line for `DescribedPool.highest_memory`."""
    title = f"highest resident memory{of} at `--memory {memory_mib}M`"
    return Line(key, title, "MiB", higher_is_better=False, goal="within `--memory`")


class ScaleBench(Measuring):
    """The pools of one row at a time. One that the next row needs too is kept."""

    def __init__(self, place, programs, settings):
        self.place = place
        self.programs = programs
        self.settings = settings
        self.pools = {}

    def open(self):
        """Makes nothing: each row's pools are made when its turn comes."""

    def prepare(self, row):
        plans = row.plans(self.settings)
        self._drop([plan for plan in self.pools if plan not in plans])
        for plan in plans:
            if plan not in self.pools:
                self._make(plan)
        row.prepare(self._pools_of(row), self.settings)

    def _pools_of(self, row):
        return [self.pools[plan] for plan in row.plans(self.settings)]

    def round(self, row, round_no, series):
        self.place.ballast.fill()
        with series.turn():
            for key, sample in row.measure(self._pools_of(row), self.settings, round_no):
                series.add(key, "pool", sample)

    def finish(self, row):
        if row.spends_pools:
            self._drop(row.plans(self.settings))
        else:
            row.finish(self._pools_of(row), self.settings)

    def _make(self, plan):
        say(f"  making a pool that describes {plan.blocks} blocks")
        pool = self.pools[plan] = DescribedPool(self.place, self.programs, plan)
        pool.format()

    def _drop(self, plans):
        for plan in plans:
            # In the middle of it, Ctrl-C would leave a daemon without a mount.
            with workplace.uninterrupted():
                self.pools.pop(plan).drop()

    def start_anew(self):
        self._drop(list(self.pools))

    close = start_anew


def amount(blocks):
    """Returns a number of blocks as people say it: `10^6 blocks`, or `1 TiB`."""
    power = len(str(blocks)) - 1
    if blocks == 10**power:
        return f"10^{power} blocks"
    gib = blocks * BLOCK_BYTES >> 30
    return f"{gib >> 10} TiB" if gib >= 1024 else f"{gib} GiB"


def disk_bytes(rows, settings):
    """Returns how much of the disk the rows take at most, one after the other."""
    return max(sum(plan.disk_bytes() for plan in row.plans(settings)) for row in rows)

"""What it costs to remove a very large file, for the process that removes it and for others."""

import statistics
import time

from lib.measure import GIB, Line, Sample
from lib.rows.random_io import NAME, fio
from lib.rows.row import seed_of
from lib.side import sync_folder
from lib.system import BenchError

from .mounts import LargeRow
from .pools import DESCRIBED, amount

# What others do meanwhile: fio's modes, by what the lines call them.
OTHERS = {"write": "randwrite", "read": "randread"}
POLL_SECONDS = 1.0
# For the reclaim to begin.
BEGIN_SECONDS = 5.0


class UnlinkRow(LargeRow):
    """The file that is the pool goes. Others write and read single blocks of another file before that, and while the
    file's blocks are reclaimed; then nobody disturbs the reclaim for a while.
    """

    name = "unlink"
    spends_pools = True
    rounds_max = 1

    def make_lines(self, settings):
        size = amount(settings.large_blocks)
        yield lower("unlink", f"unlink of a fully mapped file of {size}, fsync of its folder", "s", "1 s / 0.1 s")
        for direction in OTHERS:
            title = f"p99 of O_DIRECT 4 KiB random {direction}s, depth 1, before it"
            yield lower(f"unlink-{direction}-before", title, "ms", "report")
            yield lower(f"unlink-{direction}", "while it is reclaimed", "ms", "report")
            yield lower(f"unlink-{direction}-times", "over the one before", "x", "2x / 1.5x")
        yield Line("reclaim-beside", "reclaimed beside these", "GiB/s", goal="report")
        yield Line("reclaim-alone", "reclaimed when nobody else works", "GiB/s", goal="report")
        yield lower("reclaim-whole", f"that is, for {size}", "s", "report")
        yield self.memory_line(settings)

    def prepare(self, pools, settings):
        (pool,) = pools
        pool.serve()
        pool.client("write", pool.path(NAME), bytes=settings.scratch_bytes, seed=seed_of(0, use=25), direct=True)
        pool.settle()

    def measure(self, pools, settings, round_no):
        (pool,) = pools
        before = self._others(pool, settings, 0)
        started = time.perf_counter()
        pool.path(DESCRIBED).unlink()
        sync_folder(pool.mountpoint)
        samples = [(self.name, Sample(time.perf_counter() - started))]
        with Reclaimed(pool) as beside:
            meanwhile = self._others(pool, settings, settings.fio_samples)
        if not pool.stat()["reclaim_pending"]:
            raise BenchError(f"{self.name}: all was reclaimed before the others had ended; take a larger file")
        for direction in OTHERS:
            usual = statistics.median(before[direction])
            samples += [(f"unlink-{direction}-before", Sample(value)) for value in before[direction]]
            samples += [(f"unlink-{direction}", Sample(value)) for value in meanwhile[direction]]
            samples += [(f"unlink-{direction}-times", Sample(value / usual)) for value in meanwhile[direction]]
        with Reclaimed(pool) as alone:
            wait(pool, settings.alone_seconds)
        whole_bytes = settings.large_blocks * 4096
        return [
            *samples,
            ("reclaim-beside", Sample(beside.gib_per_second)),
            ("reclaim-alone", Sample(alone.gib_per_second)),
            ("reclaim-whole", Sample(whole_bytes / GIB / alone.gib_per_second)),
            (f"{self.name}-memory", pool.highest_memory()),
        ]

    @staticmethod
    def _others(pool, settings, first_round):
        """Returns p99 in ms of some samples of each kind of request."""
        found = {direction: [] for direction in OTHERS}
        for number in range(settings.fio_samples):
            for direction, mode in OTHERS.items():
                job, _ = fio(pool, mode, first_round + number, settings.fio_seconds, direct=1, ioengine="psync")
                found[direction].append(job[direction]["clat_ns"]["percentile"]["99.000000"] / 1e6)
        return found


def lower(key, title, unit, goal):
    """Returns a line whose lower values are the better ones."""
    return Line(key, title, unit, higher_is_better=False, goal=goal)


class Reclaimed:
    """Measures how fast blocks are reclaimed while something goes on inside."""

    def __init__(self, pool):
        self._pool = pool
        self.gib_per_second = 0.0

    def __enter__(self):
        # The kernel lets go of a removed file a moment after it was removed: only then is there anything to reclaim.
        deadline = time.monotonic() + BEGIN_SECONDS
        left = self._left_bytes()
        while not left and time.monotonic() < deadline:
            time.sleep(0.01)
            left = self._left_bytes()
        self._before, self._started = left, time.perf_counter()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            seconds = time.perf_counter() - self._started
            self.gib_per_second = (self._before - self._left_bytes()) / GIB / seconds
            if self.gib_per_second <= 0:
                raise BenchError("nothing was reclaimed")

    def _left_bytes(self):
        return self._pool.stat()["freeing_bytes"]


def wait(pool, seconds):
    """Waits so long, or until all is reclaimed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and pool.stat()["reclaim_pending"]:
        time.sleep(POLL_SECONDS)

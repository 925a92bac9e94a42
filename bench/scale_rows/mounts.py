"""How soon a large pool serves, and how soon it finds every equal block again."""

import time

from lib.measure import Line, Sample
from lib.rows.random_io import NAME, fio_command
from lib.rows.row import seed_of
from lib.system import BenchError, in_background

from .pools import MIB, PoolPlan, ScaleRow, amount, memory_line

# The crash comes when the journal is full. The pool is asked so often how far it is:
WATCH_POLL_SECONDS = 0.005
WATCH_SECONDS_MAX = 120
# Small transactions: then the last one before a checkpoint is a small part of the journal.
COMMIT_INTERVAL = "100ms"
DEPTH = 16
# The checkpoint may come before the crash all the same.
CRASH_TRIES = 6


def large_plan(settings):
    """Returns the large pool, with room for the file that requests of 4 KiB go to, and what overwriting it takes."""
    return PoolPlan(settings.large_blocks, 2 * settings.scratch_bytes, settings.large_memory_mib)


class LargeRow(ScaleRow):
    """A row on the one large pool."""

    def plans(self, settings):
        return [large_plan(settings)]

    def memory_line(self, settings):
        return memory_line(f"{self.name}-memory", settings.large_memory_mib)


class CleanMountRow(LargeRow):
    """The pool is mounted with cold caches, as its last unmount has left it."""

    name = "clean-mount"

    def make_lines(self, settings):
        size = amount(settings.large_blocks)
        return (
            Line(
                "clean-mount", f"mount of a pool with {size} of distinct blocks until it answers, cleanly unmounted",
                "s", higher_is_better=False, goal="3 s / 1 s",
            ),
            Line(
                "clean-mount-filter", "until its filter is complete", "s", higher_is_better=False, goal="10 s / 5 s"
            ),
            Line(
                "clean-mount-unmount", "its unmount, which saves the filter", "s", higher_is_better=False,
                goal="report",
            ),
            self.memory_line(settings),
        )  # fmt: skip

    def measure(self, pools, settings, round_no):
        (pool,) = pools
        started, serving = pool.serve()
        pool.wait_for_filter()
        complete, memory = time.perf_counter() - started, pool.highest_memory()
        # What an unused pool has saved already it need not save again.
        pool.client("write", pool.path(NAME), bytes=MIB, seed=seed_of(round_no, use=23))
        started = time.perf_counter()
        pool.unmount()
        return [
            (self.name, Sample(serving)),
            (f"{self.name}-filter", Sample(complete)),
            (f"{self.name}-unmount", Sample(time.perf_counter() - started)),
            (f"{self.name}-memory", memory),
        ]

    def finish(self, pools, settings):
        """Leaves the pool unmounted, as each round does."""


class CrashMountRow(LargeRow):
    """Random blocks are overwritten until the journal is as full as it gets but for one transaction; then the daemon is
    killed.
    """

    name = "crash-mount"
    # The filter is read from the stores in each round.
    share_of_time = 1.5

    def make_lines(self, settings):
        size = amount(settings.large_blocks)
        return (
            Line(
                "crash-mount", f"mount of a pool with {size} of distinct blocks until it answers, killed with a full "
                "journal", "s", higher_is_better=False, goal="1 s / 0.2 s",
            ),
            Line("crash-mount-journal", "what was replayed of the journal", "MiB", goal="report"),
            Line(
                "crash-mount-filter", "until its filter is complete, from the stores", "s", higher_is_better=False,
                goal="60 s / 30 s",
            ),
            self.memory_line(settings),
        )  # fmt: skip

    def prepare(self, pools, settings):
        (pool,) = pools
        pool.options = {"commit-interval": COMMIT_INTERVAL}
        pool.serve()
        pool.client("write", pool.path(NAME), bytes=settings.scratch_bytes, seed=seed_of(0, use=24), direct=True)

    def measure(self, pools, settings, round_no):
        (pool,) = pools
        for number in range(CRASH_TRIES):
            wanted = self._crash_when_full(pool, CRASH_TRIES * round_no + number)
            started, serving = pool.serve()
            activity = pool.stat()["activity"]
            if activity["replayed"] >= wanted:
                break
        else:
            raise BenchError(f"{self.name}: {CRASH_TRIES} times the journal was emptied before the crash")
        pool.wait_for_filter()
        return [
            (self.name, Sample(serving, more={"transactions": activity["replayed"]})),
            (f"{self.name}-journal", Sample(activity["replayed_bytes"] / MIB)),
            (f"{self.name}-filter", Sample(time.perf_counter() - started)),
            (f"{self.name}-memory", pool.highest_memory()),
        ]

    @staticmethod
    def _crash_when_full(pool, seed):
        """Crashes the pool; returns how many transactions its journal must hold then."""
        command = fio_command(
            pool, "randwrite", seed, WATCH_SECONDS_MAX, direct=1, ioengine="libaio", iodepth=DEPTH, time_based=1
        )
        with in_background(*command, user=pool.user) as writer:
            watch = wait_for_full_journal(pool, writer)
            pool.crash()
        return watch.transactions()

    def finish(self, pools, settings):
        (pool,) = pools
        pool.remove(NAME)
        pool.unmount()
        pool.options = {}


class JournalWatch:
    """Tells from the pool's counters when the journal is nearly as full as it gets: a checkpoint comes after about as
    many transactions as the last time, and all of them but one are there.
    """

    def __init__(self):
        self._checkpoints = None
        # Commits when the last checkpoint was seen, and how many came between the last two.
        self._commits_then = None
        self._commits_between = None

    def transactions(self):
        """Returns how many the journal holds then."""
        return max(1, self._commits_between - 1)

    def is_full(self, activity):
        commits, checkpoints = activity["commits"], activity["checkpoints"]
        if checkpoints == self._checkpoints:
            return self._commits_between is not None and commits - self._commits_then >= self.transactions()
        # The first that is seen is the end of a stretch whose beginning nobody saw.
        if self._commits_then is not None:
            self._commits_between = commits - self._commits_then
        if self._checkpoints is not None:
            self._commits_then = commits
        self._checkpoints = checkpoints
        return False


def wait_for_full_journal(pool, writer):
    """Returns the watch that has seen it. Raises BenchError where that does not happen."""
    watch, started = JournalWatch(), time.monotonic()
    while not watch.is_full(pool.stat()["activity"]):
        if writer.poll() is not None:
            raise BenchError("the writer ended before the journal was full")
        if time.monotonic() - started > WATCH_SECONDS_MAX:
            raise BenchError(f"the journal was not full within {WATCH_SECONDS_MAX} s")
        time.sleep(WATCH_POLL_SECONDS)
    return watch

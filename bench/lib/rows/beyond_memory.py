"""Files twice as long as the memory that client, daemon and page cache may use together."""

from ..cgroup import LimitedMemory, why_missing
from ..measure import Line
from ..system import BenchError
from .row import Row, expect_shared, expect_unique, seed_of
from .streams import COPY, throughput

# Of the limited memory, what the pool's daemon is told that it may use: there has to be room for the page cache.
DAEMON_SHARE = 4
# The least that it takes.
DAEMON_BYTES_MIN = 64 << 20
FIRST = "first"
SEED = seed_of(0, use=13)


class BeyondMemoryRow(Row):
    """Unique and duplicate writes in a control group; on both sides the client, and on the pool's the daemon too."""

    name = "beyond-memory"
    share_of_time = 1.5
    lines = (
        Line(
            "beyond-memory-unique", "sequential unique write, 1 MiB, buffered, fsync, twice the memory", "MB/s",
            goal="0.75x / 1.0x",
        ),
        Line(
            "beyond-memory-duplicate", "sequential all-duplicate write, 1 MiB, buffered, fsync, twice the memory",
            "MB/s", goal="1.2x / 1.6x",
        ),
    )  # fmt: skip

    def missing(self, settings):
        return why_missing("memory")

    def prepare(self, side, settings):
        limit = settings.beyond_memory_bytes // 2
        side.client("write", side.path(FIRST), bytes=settings.beyond_memory_bytes, seed=SEED)
        # After the mount the original is in no cache.
        group = LimitedMemory(side.group_name(), limit)
        side.remount(group, memory=max(limit // DAEMON_SHARE, DAEMON_BYTES_MIN))

    def measure(self, side, settings, round_no):
        length, samples = settings.beyond_memory_bytes, {}
        for kind, seed, expect in (
            ("unique", seed_of(round_no, use=14), expect_unique),
            ("duplicate", SEED, expect_shared),
        ):
            answer, cost = side.client("write", side.path(COPY), bytes=length, seed=seed)
            expect(cost, self.name)
            side.remove(COPY)
            samples[f"{self.name}-{kind}"] = throughput(length, answer, cost)
        return samples

    def finish(self, side, settings):
        if not side.group.was_short():
            raise BenchError(f"{self.name}: the memory of {side.name} was never short")
        side.remount()
        side.remove(COPY, FIRST)

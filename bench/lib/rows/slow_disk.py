"""A disk that is slow on both sides: there, what need not be written is what counts."""

from ..cgroup import why_missing
from ..system import BenchError
from .row import MB, OneLineRow, expect_shared, seed_of
from .streams import COPY, throughput

# What the disk moves in a second, each way.
SLOW_BYTES_PER_SECOND = 100 * MB
# The limit is kept over some time, not in each moment, and the last of a write may still be counted differently.
TOLERANCE = 1.3
FIRST = "first"
SEED = seed_of(0, use=12)


class SlowDuplicateRow(OneLineRow):
    """Writing a file whose every block another file has already, where both sides' loop devices are slowed."""

    def __init__(self):
        disk = f"disk slowed to {SLOW_BYTES_PER_SECOND // MB} MB/s"
        title = f"sequential all-duplicate write, 1 MiB, buffered, fsync, {disk}"
        super().__init__("duplicate-write-slow", title, "MB/s", goal="5x / 15x")

    def missing(self, settings):
        return why_missing("blkio")

    def prepare(self, side, settings):
        side.slow_down(SLOW_BYTES_PER_SECOND)
        answer, _ = side.client("write", side.path(FIRST), bytes=settings.slow_bytes, seed=SEED)
        self._expect_slow(side, settings.slow_bytes / answer["seconds"])

    def measure(self, side, settings, round_no):
        answer, cost = side.client("write", side.path(COPY), bytes=settings.slow_bytes, seed=SEED)
        expect_shared(cost, self.name)
        if side.name == "ext4":
            self._expect_slow(side, settings.slow_bytes / answer["seconds"])
        side.remove(COPY)
        return {self.name: throughput(settings.slow_bytes, answer, cost)}

    def _expect_slow(self, side, bytes_per_second):
        """Raises BenchError where new blocks reached the disk faster than it is said to be."""
        if bytes_per_second > TOLERANCE * SLOW_BYTES_PER_SECOND:
            speed = f"{bytes_per_second / MB:.0f} MB/s"
            raise BenchError(f"{self.name}: the disk of {side.name} is not slowed, it took new blocks at {speed}")

    def finish(self, side, settings):
        side.full_speed()
        side.remove(COPY, FIRST)

"""A disk that is slow on both sides: there, what need not be written is what counts."""

from ..cgroup import why_missing
from ..system import BenchError
from .row import MB, OneLineRow, expect_shared, seed_of
from .streams import COPY, throughput

# What the disk moves in a second, each way.
SLOW_BYTES_PER_SECOND = 100 * MB
# The limit is kept over some time, not in each moment: after a rest the kernel was seen to let 32 MB pass at once.
PASSED_BYTES_MAX = 48 << 20
FIRST = "first"
SEED = seed_of(0, use=12)


class SlowDuplicateRow(OneLineRow):
    """Writing a file whose every block another file has already, where both sides' loop devices are slowed."""

    # The disk itself cannot be slowed for one side.
    sides = ("pool", "ext4")

    def __init__(self):
        disk = f"disk slowed to {SLOW_BYTES_PER_SECOND // MB} MB/s"
        title = f"sequential all-duplicate write, 1 MiB, buffered, fsync, {disk}"
        super().__init__("duplicate-write-slow", title, "MB/s", goal="5x / 15x")

    def missing(self, settings):
        return why_missing("blkio")

    def prepare(self, side, settings):
        side.slow_down(SLOW_BYTES_PER_SECOND)
        answer, _ = side.client("write", side.path(FIRST), bytes=settings.slow_bytes, seed=SEED)
        expect_slow(side.name, settings.slow_bytes, answer["seconds"])

    def measure(self, side, settings, round_no):
        answer, cost = side.client("write", side.path(COPY), bytes=settings.slow_bytes, seed=SEED)
        expect_shared(cost, self.name)
        if side.name == "ext4":
            expect_slow(side.name, settings.slow_bytes, answer["seconds"])
        side.remove(COPY)
        return {self.name: throughput(settings.slow_bytes, answer, cost)}

    def finish(self, side, settings):
        side.full_speed()
        side.remove(COPY, FIRST)


def expect_slow(side_name, written_bytes, seconds):
    """Raises BenchError where new blocks reached the disk faster than it is said to be."""
    if written_bytes > SLOW_BYTES_PER_SECOND * seconds + PASSED_BYTES_MAX:
        speed = f"{written_bytes / seconds / MB:.0f} MB/s"
        raise BenchError(f"the disk of {side_name} is not slowed, it took new blocks at {speed}")

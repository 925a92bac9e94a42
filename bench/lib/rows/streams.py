"""Large files, written and read from end to end with 1 MiB in each call."""

from ..measure import Sample, Work
from .row import MB, OneLineRow, expect_unique, seed_of

# The file whose blocks are there already when the next one is written.
ORIGINAL = "original"
COPY = "copy"
ORIGINAL_SEED = seed_of(0, use=1)


class UniqueWriteRow(OneLineRow):
    """Writing a new file of blocks that are nowhere yet, and fsync."""

    def __init__(self, name, direct):
        how, goal = ("O_DIRECT", "0.75x / 1.0x") if direct else ("buffered", "0.85x / 1.0x")
        super().__init__(name, f"sequential unique write, 1 MiB, {how}, fsync", "MB/s", goal=goal)
        self.direct = {"direct": True} if direct else {}

    def measure(self, side, settings, round_no):
        answer, cost = side.client(
            "write", side.path(self.name), bytes=settings.file_bytes, seed=seed_of(round_no), **self.direct
        )
        expect_unique(cost, self.name)
        # At once, so that reclaiming is over before the other side's turn.
        side.remove(self.name)
        return {self.name: throughput(settings.file_bytes, answer, cost)}


class DuplicateWriteRow(OneLineRow):
    """Writing a file whose every block another file has already, in the same order, and fsync."""

    def __init__(self, name, direct):
        how, goal = ("O_DIRECT", "1.2x / 1.6x") if direct else ("buffered", "1.0x / 1.15x")
        super().__init__(name, f"sequential all-duplicate write, 1 MiB, {how}, fsync", "MB/s", goal=goal)
        self.direct = {"direct": True} if direct else {}

    def prepare(self, side, settings):
        side.client("write", side.path(ORIGINAL), bytes=settings.file_bytes, seed=ORIGINAL_SEED)

    def measure(self, side, settings, round_no):
        answer, cost = side.client(
            "write", side.path(COPY), bytes=settings.file_bytes, seed=ORIGINAL_SEED, **self.direct
        )
        side.remove(COPY)
        return {self.name: throughput(settings.file_bytes, answer, cost)}

    def finish(self, side, settings):
        side.remove(ORIGINAL)


class ColdReadRow(OneLineRow):
    """Reading a file of unique blocks after every cache was emptied; the client looks at what it gets."""

    def __init__(self):
        super().__init__("cold-read", "sequential cold read, 1 MiB, buffered", "MB/s", goal="0.9x / 1.0x")

    def prepare(self, side, settings):
        side.client("write", side.path(ORIGINAL), bytes=settings.file_bytes, seed=ORIGINAL_SEED)

    def measure(self, side, settings, round_no):
        side.make_cold()
        answer, cost = side.client("read", side.path(ORIGINAL), bytes=settings.file_bytes, seed=ORIGINAL_SEED)
        return {self.name: throughput(settings.file_bytes, answer, cost)}

    def finish(self, side, settings):
        side.remove(ORIGINAL)


def throughput(moved_bytes, answer, cost):
    return Sample(moved_bytes / answer["seconds"] / MB, cost, Work.moved(moved_bytes))

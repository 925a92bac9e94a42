"""Large files, written and read from end to end with 1 MiB in each call."""

from ..measure import Line, Sample, Work
from ..side import ORIGINAL, ORIGINAL_SEED
from .row import MB, OneLineRow, Row, expect_shared, expect_unique, seed_of

COPY = "copy"


class WriteRow(Row):
    """A sequential write with a second line for what it costs in processor time of client and daemon."""

    def __init__(self, name, what, direct, goal, cpu_goal):
        how = "O_DIRECT" if direct else "buffered"
        self.name = name
        self.direct = {"direct": True} if direct else {}
        self.lines = (
            Line(name, f"sequential {what} write, 1 MiB, {how}, fsync", "MB/s", goal=goal),
            Line(
                f"{name}-cpu", f"its processor time, client and daemon: {what}, {how}", "s/GiB",
                higher_is_better=False, goal=cpu_goal,
            ),
        )  # fmt: skip

    def samples(self, moved_bytes, answer, cost):
        work = Work.moved(moved_bytes)
        cpu_seconds = (cost.client_seconds + cost.server_seconds) / work.amount
        return {self.name: throughput(moved_bytes, answer, cost), f"{self.name}-cpu": Sample(cpu_seconds)}


class UniqueWriteRow(WriteRow):
    """Writing a new file of blocks that are nowhere yet, and fsync."""

    def __init__(self, name, direct):
        goal = "0.75x / 1.0x" if direct else "0.95x / 1.0x"
        super().__init__(name, "unique", direct, goal, "0.7 s/GiB")

    def measure(self, side, settings, round_no):
        answer, cost = side.client(
            "write", side.path(self.name), bytes=settings.file_bytes, seed=seed_of(round_no), **self.direct
        )
        expect_unique(cost, self.name)
        # At once, so that reclaiming is over before the other side's turn.
        side.remove(self.name)
        return self.samples(settings.file_bytes, answer, cost)


class TwoStreamsRow(OneLineRow):
    """Writing two new files at once, each half as long as the others' and with a thread of its own in one client."""

    STREAMS = 2

    def __init__(self):
        title = "sequential unique write, 1 MiB, O_DIRECT, fsync, two streams"
        super().__init__("unique-write-two", title, "MB/s", goal="0.9x / 1.0x")

    def measure(self, side, settings, round_no):
        each_bytes = settings.file_bytes // self.STREAMS
        answer, cost = side.client(
            "write-streams", side.path(self.name), bytes=each_bytes, count=self.STREAMS,
            seed=seed_of(round_no, use=9), direct=True,
        )  # fmt: skip
        expect_unique(cost, self.name)
        side.remove(*(f"{self.name}-{number}" for number in range(self.STREAMS)))
        return {self.name: throughput(self.STREAMS * each_bytes, answer, cost)}


class DuplicateWriteRow(WriteRow):
    """Writing a file whose every block another file has already, in the same order, and fsync."""

    uses_original = True

    def __init__(self, name, direct):
        goal = "1.2x / 1.6x" if direct else "1.0x / 1.15x"
        super().__init__(name, "all-duplicate", direct, goal, "report / 0.5 s/GiB")

    def measure(self, side, settings, round_no):
        answer, cost = side.client(
            "write", side.path(COPY), bytes=settings.file_bytes, seed=ORIGINAL_SEED, **self.direct
        )
        expect_shared(cost, self.name)
        side.remove(COPY)
        return self.samples(settings.file_bytes, answer, cost)


class ColdReadRow(OneLineRow):
    """Reading a file of unique blocks after every cache was emptied; the client looks at what it gets."""

    uses_original = True

    def __init__(self):
        super().__init__("cold-read", "sequential cold read, 1 MiB, buffered", "MB/s", goal="0.9x / 1.0x")

    def measure(self, side, settings, round_no):
        side.make_cold()
        answer, cost = side.client("read", side.path(ORIGINAL), bytes=settings.file_bytes, seed=ORIGINAL_SEED)
        return {self.name: throughput(settings.file_bytes, answer, cost)}


def throughput(moved_bytes, answer, cost):
    return Sample(moved_bytes / answer["seconds"] / MB, cost, Work.moved(moved_bytes))

"""Samples of both sides and what they come to: medians, ratios, spread."""

import statistics
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import system

GIB = 1 << 30
# Rounds of a row that differ by more than this are not believed at once.
DIFFERENCE_MAX = 1.6


@dataclass
class Cost:
    """Processor time of one measurement, in seconds."""

    client_seconds: float = 0.0
    # The daemon; ext4 has none, its work is the client's and the kernel's own threads'.
    server_seconds: float = 0.0
    # All processors, kernel threads and whatever else ran included.
    machine_seconds: float = 0.0
    # Part of the blocks written meanwhile that were zero or already there; None where nothing counts them.
    shared_part: float | None = None


@dataclass(frozen=True)
class Work:
    """How much was done for a cost."""

    amount: float
    unit: str

    @classmethod
    def moved(cls, moved_bytes):
        return cls(moved_bytes / GIB, "GiB")

    @classmethod
    def operations(cls, count):
        return cls(count, "op")


@dataclass
class Sample:
    """One measured value."""

    value: float
    cost: Cost | None = None
    # What the cost is divided by: an amount of GiB or of operations.
    work: Work | None = None
    # Further figures, for the JSON file.
    more: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    key: str
    title: str
    unit: str
    # Whether a higher value is the better one; else a lower one is.
    higher_is_better: bool = True
    # What is wanted, as "at least / aim", in words of the table.
    goal: str = ""
    # Whether the value is itself a comparison, or has none: then there is no ratio.
    has_ratio: bool = True
    # Values up to this one are taken for equal where rounds are compared, and so are their ratios.
    negligible: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Median of some values, the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values):
        values = list(values)
        return cls(statistics.median(values), min(values), max(values)) if values else None

    def difference(self, negligible=0.0):
        """Returns how many times the lowest the highest is; 1 where there is nothing to divide by.

        Values up to `negligible` count as that.
        """
        high, low = max(self.high, negligible), max(self.low, negligible)
        return high / low if low > 0 else 1.0


class Measured:
    """All samples of one line: `samples[side][round]`."""

    def __init__(self, line):
        self.line = line
        self.samples = {}

    def add(self, side, sample):
        self.samples.setdefault(side, []).append(sample)

    def rounds(self):
        """Returns how often it was measured."""
        return max((len(samples) for samples in self.samples.values()), default=0)

    def spread(self, side):
        return Spread.of(sample.value for sample in self.samples.get(side, []))

    def ratio(self, one="pool", other="ext4"):
        """Returns how many times better one side is than the other, from the pairs of each round.

        Pairs, because both sides of a round saw the same disk; its speed drifts from minute to minute.
        """
        if not self.line.has_ratio:
            return None
        pairs = zip(self.samples.get(one, []), self.samples.get(other, []))
        return Spread.of(self._ratio(sample.value, others.value) for sample, others in pairs)

    def _ratio(self, one, other):
        better, worse = (one, other) if self.line.higher_is_better else (other, one)
        return better / worse if worse else float("inf")

    def cpu_seconds(self, side):
        """Returns medians of CPU seconds for each unit of work, and that unit; None where no work is told.

        The first is of client and daemon, the second of the whole machine.
        """
        samples = [sample for sample in self.samples.get(side, []) if sample.cost and sample.work]
        if not samples:
            return None
        own = ((sample.cost.client_seconds + sample.cost.server_seconds) / sample.work.amount for sample in samples)
        machine = (sample.cost.machine_seconds / sample.work.amount for sample in samples)
        return statistics.median(own), statistics.median(machine), samples[0].work.unit

    def shared_part(self):
        """Returns the lowest part of a pool's written blocks that were shared in a round, None where none is known."""
        costs = (sample.cost for sample in self.samples.get("pool", []))
        return min((cost.shared_part for cost in costs if cost and cost.shared_part is not None), default=None)


@dataclass(frozen=True)
class Turn:
    """What happened on the whole machine during one turn of a side."""

    page_faults: int
    steal_seconds: float


class Series:
    """Rounds of a row that follow each other, on all its sides."""

    def __init__(self, row):
        self.lines = [Measured(line) for line in row.lines]
        self.turns = {}
        # The series before this one, where its rounds differed too much.
        self.set_aside = None
        self._sides = row.sides
        self._by_key = {result.line.key: result for result in self.lines}

    def add(self, key, side, sample):
        self._by_key[key].add(side, sample)

    @contextmanager
    def turn(self, side=""):
        """Counts what happens inside as a turn of a side, or of all of them."""
        faults, steal = system.page_faults(), system.steal_seconds()
        yield
        turn = Turn(system.page_faults() - faults, system.steal_seconds() - steal)
        self.turns.setdefault(side, []).append(turn)

    def rounds(self):
        """Returns how often every line was measured."""
        return min(result.rounds() for result in self.lines)

    def difference(self):
        """Returns the highest figure of a side, or ratio, divided by the lowest one; the largest quotient of all lines."""
        one, *others = self._sides
        spreads = [(result.spread(side), result.line.negligible) for result in self.lines for side in self._sides]
        compared = [result for result in self.lines if not result.line.negligible]
        spreads += [(result.ratio(one, other), 0.0) for result in compared for other in others]
        return max((spread.difference(least) for spread, least in spreads if spread is not None), default=1.0)

    def is_unsteady(self):
        return self.difference() > DIFFERENCE_MAX


@dataclass(frozen=True)
class NotMeasured:
    """Stands where a row has no results."""

    # "failed" or "not measured".
    what: str
    why: str

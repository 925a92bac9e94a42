"""What every row of the benchmarks is."""

from ..measure import Line
from ..system import BenchError

MB = 1_000_000

# Part of a unique stream that may be shared all the same: our blocks all differ, so more means that something is wrong.
SHARED_PART_MAX = 0.01


class Row:
    """One comparison: prepared once on each side, measured in alternating rounds, cleaned up.

    `name` picks it on the command line; `lines` are what it adds to the table, most often one. `measure` returns a
    Sample for each of their keys. Between two measurements everything is written back, on both sides.
    """

    name = ""
    lines = ()
    # Sides on which it makes sense: a pool, ext4 on a loop device, ext4 on the disk itself.
    sides = ("pool", "ext4", "disk")
    # Whether it measures syncs or names: without a journal these promise less, and cost other things.
    needs_journal = False
    # Whether it works with the file that `Side.have_original` makes. Rows that do stand together and share it.
    uses_original = False
    # How many times as long as other rows it may take before it gets no more rounds.
    share_of_time = 1.0
    # Whether a quick run has time for it.
    in_quick = True
    # How many rounds it has at most, where more would tell nothing or take too long.
    rounds_max = None

    def rounds(self, settings):
        return settings.rounds if self.rounds_max is None else min(settings.rounds, self.rounds_max)

    def why_not(self, settings):
        """Returns why the row is left out of this run, None where it is not."""
        if settings.mode == "quick" and not self.in_quick:
            return "too long for a quick run"
        return self.missing(settings)

    def missing(self, settings):
        """Returns what the row cannot do without and has not got, None where it has all."""
        return None

    def prepare(self, side, settings):
        """Makes what is needed before the first round."""

    def measure(self, side, settings, round_no):
        """Measures once; returns samples by the keys of `lines`."""
        raise NotImplementedError

    def finish(self, side, settings):
        """Removes what `prepare` and `measure` left, so that the next row finds room."""


class OneLineRow(Row):
    """A row whose one line bears its name."""

    def __init__(self, name, title, unit, **more):
        self.name = name
        self.lines = (Line(name, title, unit, **more),)


def seed_of(round_no, use=0):
    """Returns the seed of a round's data. Rounds differ, so that nothing is a duplicate of a round before."""
    return 1 + round_no + 1000 * use


def expect_unique(cost, what):
    """Raises BenchError where a pool shared blocks of data that is meant to be unique: the figure would be a lie."""
    if (cost.shared_part or 0) > SHARED_PART_MAX:
        raise BenchError(f"{what}: {cost.shared_part:.1%} of the blocks were shared; they are meant to be unique")


def expect_shared(cost, what):
    """Raises BenchError where a pool did not share nearly all blocks of data that it has already."""
    if cost.shared_part is not None and cost.shared_part < 1 - SHARED_PART_MAX:
        raise BenchError(f"{what}: only {cost.shared_part:.1%} of the blocks were shared; the pool has all of them")

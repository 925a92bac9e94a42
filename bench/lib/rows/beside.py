"""Rows that stand beside another program: Onefold is one side, whatever it is compared with is the other one."""

import shutil
from dataclasses import dataclass

from .. import report
from ..measure import Line
from ..runner import Measuring
from .row import Row

ONEFOLD, OTHER = "onefold", "other"


@dataclass(frozen=True)
class BesideLine(Line):
    """A line with what stands beside it: another program, the same before it was shared, a paper's figure."""

    # Empty where Onefold stands alone.
    beside: str = ""
    paper: str = ""


def lower(key, title, unit, **more):
    """Returns a line whose lower values are the better ones."""
    return BesideLine(key, title, unit, higher_is_better=False, **more)


class BesideRow(Row):
    """A row whose `measure` returns triples of a line's key, a side, and a sample; a side may have several of a round.

    What it measures on is the bench's: images, a file system, a folder of disks.
    """

    sides = (ONEFOLD, OTHER)
    # Programs without which it is left out.
    needed = ()

    def __init__(self, settings):
        self.lines = tuple(self.make_lines(settings))

    def make_lines(self, settings):
        """Returns what it adds to the table."""
        raise NotImplementedError

    def missing(self, settings):
        return lacking(self.needed)

    def measure(self, ground, settings, round_no):
        raise NotImplementedError


class BesideBench(Measuring):
    """Measures rows that stand beside another program."""

    def ground_of(self, row):
        """Returns what a row measures on, from its `prepare` to its `finish`."""
        raise NotImplementedError

    def round(self, row, round_no, series):
        self.place.ballast.fill()
        with series.turn():
            for key, side, sample in row.measure(self.ground_of(row), self.settings, round_no):
                series.add(key, side, sample)


def lacking(programs):
    """Returns which of some programs are not installed, as a reason to leave something out; None where all are."""
    missing = [program for program in programs if shutil.which(program) is None]
    return f"there is no {' and no '.join(missing)}" if missing else None


def alternating(round_no, *sides):
    """Returns the sides of a round, whatever stands for one; another one begins in each round."""
    start = round_no % len(sides)
    return sides[start:] + sides[:start]


def figure_beside(result):
    """Returns the other side's figure, and whose it is."""
    figure = report.figure_of(OTHER)(result)
    return f"{figure}, {result.line.beside}" if figure else ""


# Of the tables of all such rows, the first columns.
COLUMNS = (
    ("Onefold", report.figure_of(ONEFOLD)),
    ("beside it", figure_beside),
    ("Onefold better by", report.better_than(OTHER, ONEFOLD)),
    ("at least / aim", report.goal),
)


def paper(result):
    """Returns the cell of a paper's figure."""
    return result.line.paper

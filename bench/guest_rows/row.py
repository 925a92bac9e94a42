"""What every row about guests is, and the bench that measures them."""

import shutil
from dataclasses import dataclass

from lib.measure import Line
from lib.rows.row import Row
from lib.runner import Measuring

from .images import Images

ONEFOLD, OTHER = "onefold", "other"


@dataclass(frozen=True)
class GuestLine(Line):
    """A line with the name of the program that Onefold stands beside; empty where it stands alone."""

    beside: str = ""


def lower(key, title, unit, **more):
    """Returns a line whose lower values are the better ones."""
    return GuestLine(key, title, unit, higher_is_better=False, **more)


class GuestRow(Row):
    """A row that looks into images, which it makes before its first round.

    `measure` returns triples of a line's key, a side, and a sample.
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
        lacking = [program for program in self.needed if shutil.which(program) is None]
        return f"there is no {' and no '.join(lacking)}" if lacking else None

    def prepare(self, images, settings):
        """Makes the images that it looks into."""

    def measure(self, images, settings, round_no):
        raise NotImplementedError

    def finish(self, images, settings):
        """Removes the images that no other row looks into."""


class GuestBench(Measuring):
    """A folder of images."""

    def __init__(self, place, programs, settings):
        self.place = place
        self.settings = settings
        self.images = Images(place.folder, programs, settings)

    def open(self):
        self.images.open()
        self.place.ballast.fill()

    def prepare(self, row):
        row.prepare(self.images, self.settings)

    def round(self, row, round_no, series):
        self.place.ballast.fill()
        with series.turn():
            for key, side, sample in row.measure(self.images, self.settings, round_no):
                series.add(key, side, sample)

    def finish(self, row):
        row.finish(self.images, self.settings)
        self.images.unmount_all()

    def close(self):
        self.images.unmount_all()

    start_anew = close


def alternating(round_no, *sides):
    """Returns the sides of a round, whatever stands for one; another one begins in each round."""
    start = round_no % len(sides)
    return sides[start:] + sides[:start]

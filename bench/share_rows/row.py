"""What every row about sharing is, and the bench that measures them."""

from dataclasses import dataclass

from lib import device, system
from lib.measure import Line
from lib.rows.row import Row
from lib.runner import Measuring, say

from .ground import NAMES, Ground

ONEFOLD, OTHER = "onefold", "other"


@dataclass(frozen=True)
class ShareLine(Line):
    """A line with what stands beside it: another program, the same before it was shared, a paper's figure."""

    beside: str = ""
    paper: str = ""


def lower(key, title, unit, **more):
    """Returns a line whose lower values are the better ones."""
    return ShareLine(key, title, unit, higher_is_better=False, **more)


class ShareRow(Row):
    """A row on one kind of file system, which it has made anew as often as it likes.

    `measure` returns triples of a line's key, a side, and a sample; a side may have several of a round.
    """

    # Part of its name; the file system is the other one.
    base = ""
    sides = (ONEFOLD, OTHER)

    def __init__(self, settings, kind):
        self.kind = kind
        self.name = f"{self.base}-{kind}"
        self.lines = tuple(self.make_lines(settings))

    @property
    def where(self):
        """Returns the file system, as lines name it."""
        return NAMES[self.kind]

    def make_lines(self, settings):
        """Returns what it adds to the table."""
        raise NotImplementedError

    def measure(self, ground, settings, round_no):
        raise NotImplementedError

    def missing(self, settings):
        try:
            system.run(f"mkfs.{self.kind}", "-V")
        except system.BenchError as error:
            return str(error)
        return None


class ShareBench(Measuring):
    """One disk, on which each row has a file system made."""

    def __init__(self, place, programs, settings):
        self.place = place
        self.programs = programs
        self.settings = settings
        self._ground = None

    def open(self):
        path = self.place.folder / "disk.device"
        if not path.exists():
            say(f"making a disk of {self.settings.device_bytes >> 20} MiB in {self.place.folder}")
            device.allocate(path, self.settings.device_bytes)

    def prepare(self, row):
        self._ground = Ground(self.place, self.programs, row.kind)

    def round(self, row, round_no, series):
        self.place.ballast.fill()
        with series.turn():
            for key, side, sample in row.measure(self._ground, self.settings, round_no):
                series.add(key, side, sample)

    def finish(self, row):
        self.close()

    def close(self):
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    start_anew = close

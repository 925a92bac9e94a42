"""Measures rows: all sides in alternating rounds, one thing at a time."""

import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from . import device
from .ext4_sides import DiskSide, Ext4Side
from .measure import NotMeasured, Series
from .pool_side import PoolSide
from .system import BenchError


DISK = "ext4 on the disk"


@dataclass
class Run:
    """What was measured: pairs of a row and its Series, or a NotMeasured."""

    facts: dict
    settings: object
    measured: list = field(default_factory=list)
    # How long each row took, by its name.
    seconds: dict = field(default_factory=dict)
    complete: bool = False

    def failed(self):
        missing = [(row, series) for row, series in self.measured if isinstance(series, NotMeasured)]
        return [row.name for row, reason in missing if reason.what == "failed"]


class Measuring(ABC):
    """Measures one row after the other, each in rounds."""

    settings = None

    @abstractmethod
    def open(self):
        """Makes what all rows need."""

    @abstractmethod
    def close(self):
        """Takes away whatever is mounted, in whatever state."""

    @abstractmethod
    def prepare(self, row):
        """Makes what a row needs before its first round."""

    @abstractmethod
    def round(self, row, round_no, series):
        """Measures a row once on all its sides, into a Series."""

    @abstractmethod
    def finish(self, row):
        """Removes what the row has left."""

    @abstractmethod
    def start_anew(self):
        """Is told that a row has failed: what it has left goes."""

    def measure_all(self, rows, run):
        """Measures the rows into `run`; one that fails is noted there, and the next begins on a clean ground."""
        started = time.monotonic()
        clock = RunClock(self.settings, rows)
        for row in rows:
            say(f"[{time.monotonic() - started:4.0f} s] {row.name}")
            missing = row.why_not(self.settings)
            if missing is not None:
                say(f"  left out: {missing}")
                run.measured.append((row, NotMeasured("not measured", missing)))
                continue
            row_started = time.monotonic()
            try:
                series = self.measure(row, clock.of(row))
            except (BenchError, OSError) as error:
                say(f"  failed: {error}")
                run.measured.append((row, NotMeasured("failed", one_line(error))))
                self.start_anew()
            else:
                run.measured.append((row, series))
            run.seconds[row.name] = time.monotonic() - row_started
        run.complete = True
        say(f"[{time.monotonic() - started:4.0f} s] done")

    def measure(self, row, clock):
        """Returns a row's Series: the second where the rounds of the first differ too much."""
        self.prepare(row)
        series = self._series(row, 0, clock.of_first_series())
        if series.is_unsteady():
            say(f"  its rounds differ by {series.difference():.2f}x: it is run again")
            again = self._series(row, series.rounds(), clock, rounds_min=2)
            again.set_aside, series = series, again
        self.finish(row)
        return series

    def _series(self, row, first_round, clock, rounds_min=1):
        series = Series(row)
        for round_no in range(first_round, first_round + row.rounds(self.settings)):
            clock.begin_round()
            self.round(row, round_no, series)
            if clock.is_up() and series.rounds() >= rounds_min:
                break
        return series


class Bench(Measuring):
    """A pool and ext4, twice, in one folder."""

    def __init__(self, place, onefold, settings, profiler=None, settle_seconds=0):
        self.place = place
        self.settings = settings
        # How long the disk is left alone after the disks are made.
        self.settle_seconds = settle_seconds
        self.sides = [PoolSide(place, onefold, settings.memory), Ext4Side(place)]
        if DiskSide.why_not(place) is None:
            self.sides.append(DiskSide(place))
        self.profiler = profiler

    def disk_facts(self):
        """Returns what has to be known of the file system on the disk, by name."""
        if not isinstance(self.sides[-1], DiskSide):
            return {DISK: f"not measured, as {DiskSide.why_not(self.place)}"}
        if self.sides[-1].has_journal():
            return {DISK: "with a journal"}
        return {DISK: "without a journal, so rows of syncs and names are not measured there"}

    def open(self):
        say(f"making two disks of {self.settings.device_bytes >> 20} MiB in {self.place.folder}")
        for side in self.sides:
            if not isinstance(side, DiskSide):
                device.allocate(side.device, self.settings.device_bytes)
        self._format()
        # The first time it takes longest, and is no row's work.
        self.place.ballast.fill()
        time.sleep(self.settle_seconds)

    def _format(self):
        for side in self.sides:
            side.format()
            side.mount()
            side.forget_original()

    def _sides_of(self, row):
        return [side for side in self.sides if side.suits(row)]

    def prepare(self, row):
        if self.profiler is not None:
            self.profiler.row = row.name
        if not row.uses_original:
            # On all sides: they have the room of one disk in common.
            for side in self.sides:
                side.drop_original()
        for side in self._sides_of(row):
            if row.uses_original:
                side.have_original(self.settings.file_bytes)
            row.prepare(side, self.settings)
            side.profiler = self.profiler

    def round(self, row, round_no, series):
        sides = self._sides_of(row)
        # The side that goes first changes from round to round, in case going first matters.
        start = round_no % len(sides)
        for side in sides[start:] + sides[:start]:
            for settling in self.sides:
                settling.settle()
            self.place.ballast.fill()
            with series.turn(side.name):
                samples = row.measure(side, self.settings, round_no)
            for key, sample in samples.items():
                series.add(key, side.name, sample)

    def finish(self, row):
        for side in self._sides_of(row):
            side.profiler = None
            row.finish(side, self.settings)

    def start_anew(self):
        for side in self.sides:
            side.profiler = None
        self.close()
        self._format()

    def close(self):
        for side in self.sides:
            side.close()


class RunClock:
    """Divides the time of a run among its rows, so that a slow disk or a slow row makes fewer rounds, not a longer run.

    What a row does not use is left to the rows after it.
    """

    def __init__(self, settings, rows):
        self._ends = time.monotonic() + settings.run_seconds
        self._shares_left = sum(row.share_of_time for row in rows if row.why_not(settings) is None)

    def of(self, row):
        """Returns the clock of the next row, with its share of what is left."""
        left = self._ends - time.monotonic()
        seconds = left * row.share_of_time / self._shares_left
        self._shares_left -= row.share_of_time
        return RowClock(seconds)


class RowClock:
    """Tells when a row has had its time."""

    # Of a row's time; the rest is for the series that comes where its rounds differ too much.
    FIRST_SERIES_PART = 0.6

    def __init__(self, seconds):
        self._started = time.monotonic()
        self._seconds = seconds
        self._round_started = self._started
        self._longest_round = 0.0

    def of_first_series(self):
        return RowClock(self._seconds * self.FIRST_SERIES_PART)

    def begin_round(self):
        self._round_started = time.monotonic()

    def is_up(self):
        """Tells, after a round, whether another as long as the longest so far would end too late."""
        now = time.monotonic()
        self._longest_round = max(self._longest_round, now - self._round_started)
        return now - self._started + self._longest_round > self._seconds


def one_line(error):
    return " ".join(str(error).split())


def say(text):
    print(text, file=sys.stderr, flush=True)

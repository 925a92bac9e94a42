"""Measures rows: both sides in alternating rounds, one thing at a time."""

import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from . import device
from .measure import Measured, NotMeasured
from .place import Place
from .side import Ext4Side, PoolSide
from .system import BenchError


@dataclass
class Run:
    """What was measured: pairs of a row and its list of Measured, or a NotMeasured."""

    facts: dict
    settings: object
    measured: list = field(default_factory=list)
    # How long each row took, by its name.
    seconds: dict = field(default_factory=dict)
    complete: bool = False

    def failed(self):
        missing = [(row, results) for row, results in self.measured if isinstance(results, NotMeasured)]
        return [row.name for row, reason in missing if reason.what == "failed"]


class Measuring(ABC):
    """Measures one row after the other."""

    settings = None

    @abstractmethod
    def open(self):
        """Makes what all rows need."""

    @abstractmethod
    def close(self):
        """Takes away whatever is mounted, in whatever state."""

    @abstractmethod
    def measure(self, row):
        """Returns a row's list of Measured."""

    @abstractmethod
    def start_anew(self):
        """Is told that a row has failed: what it has left goes."""

    def measure_all(self, rows, run):
        """Measures the rows into `run`; one that fails is noted there, and the next begins on a clean ground."""
        started = time.monotonic()
        for row in rows:
            say(f"[{time.monotonic() - started:4.0f} s] {row.name}")
            missing = row.why_not(self.settings)
            if missing is not None:
                say(f"  left out: {missing}")
                run.measured.append((row, NotMeasured("not measured", missing)))
                continue
            row_started = time.monotonic()
            try:
                results = self.measure(row)
            except (BenchError, OSError) as error:
                say(f"  failed: {error}")
                run.measured.append((row, NotMeasured("failed", one_line(error))))
                self.start_anew()
            else:
                run.measured.append((row, results))
            run.seconds[row.name] = time.monotonic() - row_started
        run.complete = True
        say(f"[{time.monotonic() - started:4.0f} s] done")


class Bench(Measuring):
    """Two mounted sides in one folder."""

    def __init__(self, folder, onefold, settings, profiler=None):
        self.folder = folder
        self.settings = settings
        self.place = Place(folder)
        self.sides = [PoolSide(self.place, onefold, settings.memory), Ext4Side(self.place)]
        self.profiler = profiler

    def open(self):
        say(f"making two disks of {self.settings.device_bytes >> 20} MiB in {self.folder}")
        for side in self.sides:
            device.allocate(side.device, self.settings.device_bytes)
        self._format()

    def _format(self):
        for side in self.sides:
            side.format()
            side.mount()
            side.forget_original()

    def measure(self, row):
        results = {line.key: Measured(line) for line in row.lines}
        sides = [side for side in self.sides if side.name in row.sides]
        if self.profiler is not None:
            self.profiler.row = row.name
        clock = RowClock(row, self.settings)
        for side in sides:
            if row.uses_original:
                side.have_original(self.settings.file_bytes)
            else:
                side.drop_original()
            row.prepare(side, self.settings)
            side.profiler = self.profiler
        for round_no in range(row.rounds(self.settings)):
            clock.begin_round()
            # Who goes first changes from round to round, in case going first matters.
            for side in sides if round_no % 2 == 0 else reversed(sides):
                for settling in self.sides:
                    settling.settle()
                self.place.ballast.fill()
                for key, sample in row.measure(side, self.settings, round_no).items():
                    results[key].add(side.name, sample)
            if clock.is_up():
                break
        for side in sides:
            side.profiler = None
            row.finish(side, self.settings)
        return list(results.values())

    def start_anew(self):
        for side in self.sides:
            side.profiler = None
        self.close()
        self._format()

    def close(self):
        for side in self.sides:
            side.close()


class RowClock:
    """Tells when a row has had its time, so that a slow disk or a slow row makes fewer rounds, not a longer run."""

    def __init__(self, row, settings):
        self._seconds_max = settings.row_seconds * row.share_of_time
        self._started = time.monotonic()
        self._round_started = self._started
        self._longest_round = 0.0

    def begin_round(self):
        self._round_started = time.monotonic()

    def is_up(self):
        """Tells, after a round, whether another as long as the longest so far would end too late."""
        now = time.monotonic()
        self._longest_round = max(self._longest_round, now - self._round_started)
        return now - self._started + self._longest_round > self._seconds_max


def one_line(error):
    return " ".join(str(error).split())


def say(text):
    print(text, file=sys.stderr, flush=True)

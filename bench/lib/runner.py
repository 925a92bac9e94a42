"""Measures rows: both sides in alternating rounds, one thing at a time."""

import os
import sys
import time
from dataclasses import dataclass, field

from . import device
from .measure import Measured, NotMeasured
from .settings import Settings
from .side import Ext4Side, PoolSide
from .system import BenchError


@dataclass
class Run:
    """What was measured: pairs of a row and its list of Measured, or a NotMeasured."""

    facts: dict
    settings: Settings
    measured: list = field(default_factory=list)
    complete: bool = False

    def failed(self):
        missing = [(row, results) for row, results in self.measured if isinstance(results, NotMeasured)]
        return [row.name for row, reason in missing if reason.what == "failed"]


class Bench:
    """Two mounted sides in one folder."""

    def __init__(self, folder, onefold, settings):
        self.folder = folder
        self.settings = settings
        self.sides = [PoolSide(folder, onefold, settings.memory), Ext4Side(folder)]

    def open(self):
        say(f"making two disks of {self.settings.device_bytes >> 20} MiB in {self.folder}")
        for side in self.sides:
            device.allocate(side.device, self.settings.device_bytes)
        self._format()

    def _format(self):
        for side in self.sides:
            side.format()
            side.mount()

    def measure_all(self, rows, run):
        """Measures the rows into `run`; one that fails is noted there, and the next begins on new file systems."""
        started = time.monotonic()
        for row in rows:
            say(f"[{time.monotonic() - started:4.0f} s] {row.name}")
            missing = row.missing(self.settings)
            if missing is not None:
                say(f"  left out: {missing}")
                run.measured.append((row, NotMeasured("not measured", missing)))
                continue
            try:
                results = self.measure(row)
            except (BenchError, OSError) as error:
                say(f"  failed: {error}")
                run.measured.append((row, NotMeasured("failed", one_line(error))))
                self._start_anew()
            else:
                run.measured.append((row, results))
        run.complete = True
        say(f"[{time.monotonic() - started:4.0f} s] done")

    def measure(self, row):
        results = {line.key: Measured(line) for line in row.lines}
        sides = [side for side in self.sides if side.name in row.sides]
        for side in sides:
            row.prepare(side, self.settings)
        for round_no in range(row.rounds(self.settings)):
            # Who goes first changes from round to round, in case going first matters.
            for side in sides if round_no % 2 == 0 else reversed(sides):
                for settling in self.sides:
                    settling.settle()
                for key, sample in row.measure(side, self.settings, round_no).items():
                    results[key].add(side.name, sample)
        for side in sides:
            row.finish(side, self.settings)
        return list(results.values())

    def _start_anew(self):
        self.close()
        self._format()

    def close(self):
        for side in self.sides:
            side.close()


def one_line(error):
    return " ".join(str(error).split())


def say(text):
    print(text, file=sys.stderr, flush=True)

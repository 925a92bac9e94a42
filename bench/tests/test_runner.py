"""How rounds are put together, without anything to measure."""

import time
import unittest
from dataclasses import replace
from unittest import mock

import paths  # noqa: F401
from lib import settings
from lib.measure import NotMeasured, Sample
from lib.rows.row import OneLineRow
from lib.runner import Bench, Run
from lib.system import BenchError


class FakeSide:
    def __init__(self, name):
        self.name = name
        self.original = []

    def settle(self):
        pass

    def have_original(self, length):
        self.original.append(length)

    def drop_original(self):
        self.original.append(None)


class FakeRow(OneLineRow):
    """Takes as long as it is told, by a clock of its own, and remembers who was measured when."""

    def __init__(self, clock, seconds=0.0):
        super().__init__("fake", "fake", "MB/s")
        self.clock, self.seconds, self.turns = clock, seconds, []

    def measure(self, side, settings, round_no):
        self.clock.now += self.seconds
        self.turns.append((round_no, side.name))
        return {"fake": Sample(1.0)}


class FakeClock:
    now = 0.0


class Rounds(unittest.TestCase):
    def setUp(self):
        self.clock = FakeClock()
        for patch in (mock.patch.object(time, "monotonic", lambda: self.clock.now), mock.patch("lib.runner.say")):
            patch.start()
            self.addCleanup(patch.stop)
        self.bench = Bench.__new__(Bench)
        self.bench.sides = [FakeSide("pool"), FakeSide("ext4")]
        self.bench.settings = replace(settings.RUN.tiny, rounds=5, row_seconds=60)
        self.bench.profiler = None
        self.bench.place = mock.Mock()

    def run_rows(self, *rows):
        run = Run({}, self.bench.settings)
        self.bench.measure_all(rows, run)
        return run

    def test_who_goes_first_alternates(self):
        row = FakeRow(self.clock)
        self.bench.measure(row)
        firsts = [name for (_, name), (_, _second) in zip(row.turns[::2], row.turns[1::2])]
        self.assertEqual(firsts, ["pool", "ext4", "pool", "ext4", "pool"])

    def test_memory_is_filled_before_each_turn_once_both_sides_have_settled(self):
        row, order = FakeRow(self.clock), []
        for side in self.bench.sides:
            side.settle = lambda: order.append("settled")
        self.bench.place.ballast.fill = lambda: order.append("filled")
        row.measure = lambda side, _settings, _round_no: order.append("measured") or {"fake": Sample(1.0)}
        self.bench.measure(row)
        self.assertEqual(order, ["settled", "settled", "filled", "measured"] * 10)

    def test_rows_get_the_original_that_they_work_with_and_no_others_do(self):
        rows = [FakeRow(self.clock) for _ in range(3)]
        rows[1].uses_original = True
        for row in rows:
            self.bench.measure(row)
        length = self.bench.settings.file_bytes
        self.assertEqual([side.original for side in self.bench.sides], [[None, length, None]] * 2)

    def test_a_row_gets_no_round_that_would_end_after_its_time(self):
        for seconds, share, rounds in ((1, 1, 5), (9, 1, 3), (9, 0.5, 1), (9, 2, 5), (100, 1, 1)):
            row = FakeRow(self.clock, seconds)
            row.share_of_time = share
            self.bench.measure(row)
            self.assertEqual(len(row.turns), 2 * rounds, (seconds, share))

    def test_a_row_that_is_too_long_is_left_out_of_quick_runs_only(self):
        row = FakeRow(self.clock)
        row.in_quick = False
        self.assertNotIsInstance(self.run_rows(row).measured[0][1], NotMeasured)
        self.bench.settings = replace(self.bench.settings, mode="quick")
        run = self.run_rows(row)
        self.assertEqual(run.measured[0][1], NotMeasured("not measured", "too long for a quick run"))
        self.assertEqual(run.failed(), [])

    def test_how_long_each_row_took_is_kept_for_those_that_failed_too(self):
        row = FakeRow(self.clock, 2.0)
        row.finish = mock.Mock(side_effect=BenchError("it cannot be removed"))
        self.bench.start_anew = lambda: None
        run = self.run_rows(row)
        self.assertEqual((run.failed(), run.seconds), (["fake"], {"fake": 20.0}))


if __name__ == "__main__":
    unittest.main()

"""How rounds are put together, without anything to measure."""

import time
import unittest
from dataclasses import replace
from unittest import mock

import paths  # noqa: F401
from lib import settings
from lib.measure import NotMeasured, Sample
from lib.rows.row import OneLineRow
from lib.runner import Bench, RowClock, Run, RunClock
from lib.system import BenchError


class FakeSide:
    def __init__(self, name):
        self.name = name
        self.original = []

    def suits(self, row):
        return self.name in row.sides

    def settle(self):
        pass

    def have_original(self, length):
        self.original.append(length)

    def drop_original(self):
        self.original.append(None)


class FakeRow(OneLineRow):
    """Takes as long as it is told, by a clock of its own, and remembers who was measured when.

    Its figures are those that it is given, one for each round, and then 1.
    """

    def __init__(self, clock, seconds=0.0, figures=()):
        super().__init__("fake", "fake", "MB/s")
        self.clock, self.seconds, self.turns, self.figures = clock, seconds, [], figures

    def measure(self, side, settings, round_no):
        self.clock.now += self.seconds
        self.turns.append((round_no, side.name))
        return {"fake": Sample(self.figures[round_no] if round_no < len(self.figures) else 1.0)}


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
        self.bench.settings = replace(settings.RUN.tiny, rounds=5, run_seconds=60)
        self.bench.profiler = None
        self.bench.place = mock.Mock()

    def measure(self, row, seconds=1000.0):
        """Returns the row's Series, with so much time for it."""
        return self.bench.measure(row, RowClock(seconds))

    def run_rows(self, *rows):
        run = Run({}, self.bench.settings)
        self.bench.measure_all(rows, run)
        return run

    def test_who_goes_first_alternates(self):
        row = FakeRow(self.clock)
        self.measure(row)
        firsts = [name for (_, name), (_, _second) in zip(row.turns[::2], row.turns[1::2])]
        self.assertEqual(firsts, ["pool", "ext4", "pool", "ext4", "pool"])

    def test_memory_is_filled_before_each_turn_once_both_sides_have_settled(self):
        row, order = FakeRow(self.clock), []
        for side in self.bench.sides:
            side.settle = lambda: order.append("settled")
        self.bench.place.ballast.fill = lambda: order.append("filled")
        row.measure = lambda side, _settings, _round_no: order.append("measured") or {"fake": Sample(1.0)}
        self.measure(row)
        self.assertEqual(order, ["settled", "settled", "filled", "measured"] * 10)

    def test_rows_get_the_original_that_they_work_with_and_no_others_do(self):
        rows = [FakeRow(self.clock) for _ in range(3)]
        rows[1].uses_original = True
        for row in rows:
            self.measure(row)
        length = self.bench.settings.file_bytes
        self.assertEqual([side.original for side in self.bench.sides], [[None, length, None]] * 2)

    def test_a_row_gets_no_round_that_would_end_after_its_time(self):
        for seconds, has, rounds in ((1, 60, 5), (9, 60, 2), (9, 30, 1), (9, 120, 4), (100, 60, 1)):
            row = FakeRow(self.clock, seconds)
            self.measure(row, has)
            self.assertEqual(len(row.turns), 2 * rounds, (seconds, has))

    def test_rows_have_their_shares_of_a_runs_time_and_what_rows_before_them_left(self):
        rows = [FakeRow(self.clock) for _ in range(3)]
        rows[0].share_of_time = 2.0
        rows[1].in_quick = False
        chosen = replace(self.bench.settings, mode="quick")
        clock = RunClock(chosen, rows)
        self.assertEqual(clock.of(rows[0])._seconds, 40)
        self.clock.now += 10
        self.assertEqual(clock.of(rows[2])._seconds, 50)

    def test_a_row_whose_rounds_differ_too_much_is_run_again_and_the_second_series_counts(self):
        row = FakeRow(self.clock, figures=[1.0, 1.7])
        series = self.measure(row)
        # No round comes twice: what was written in it would be there already.
        self.assertEqual([round_no for round_no, side in row.turns if side == "pool"], list(range(10)))
        self.assertFalse(series.is_unsteady())
        self.assertTrue(series.set_aside.is_unsteady())
        self.assertEqual((series.rounds(), series.set_aside.rounds()), (5, 5))

    def test_a_row_that_stays_unsteady_is_not_run_a_third_time(self):
        row = FakeRow(self.clock, figures=[1.0, 1.7] * 5)
        self.assertTrue(self.measure(row).is_unsteady())
        self.assertEqual(len(row.turns), 20)

    def test_a_steady_row_is_run_once(self):
        row = FakeRow(self.clock, figures=[1.0, 1.5])
        self.assertIsNone(self.measure(row).set_aside)
        self.assertEqual(len(row.turns), 10)

    def test_a_second_series_has_two_rounds_however_long_they_take(self):
        row = FakeRow(self.clock, 9, figures=[1.0, 1.7])
        series = self.measure(row, 60)
        self.assertEqual((series.set_aside.rounds(), series.rounds()), (2, 2))

    def test_what_happens_on_the_machine_is_counted_for_each_turn(self):
        row = FakeRow(self.clock)
        with mock.patch("lib.system.page_faults", side_effect=range(0, 1000, 7)):
            with mock.patch("lib.system.steal_seconds", side_effect=range(1000)):
                turns = self.measure(row).turns
        self.assertEqual({side: len(counted) for side, counted in turns.items()}, {"pool": 5, "ext4": 5})
        self.assertEqual({(turn.page_faults, turn.steal_seconds) for turn in turns["pool"]}, {(7, 1)})

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

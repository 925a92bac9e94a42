"""The rows for large pools, without a pool to measure."""

import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import paths  # noqa: F401  it makes the next imports possible
import common
import scale  # noqa: I001
from lib import report, settings
from lib.measure import Line, NotMeasured, Sample
from lib.place import Place
from lib.runner import Run
from lib.system import BenchError
from scale_rows import mounts, pools, reclaim, rows
from scale_rows.curve import CurveRow
from scale_rows.filter import FilterRow
from scale_rows.pools import PoolPlan, ScaleBench, ScaleRow

SIZES = settings.SCALE
GB = 10**9


class Sizes(unittest.TestCase):
    def test_numbers_of_blocks_are_said_as_people_say_them(self):
        said = {10**8: "10^8 blocks", 1 << 28: "1 TiB", 1 << 25: "128 GiB"}
        self.assertEqual({blocks: pools.amount(blocks) for blocks in said}, said)

    def test_no_run_takes_more_than_forty_gigabytes_of_disk(self):
        for chosen in SIZES:
            self.assertLess(pools.disk_bytes(rows(chosen), chosen), 40 * GB, chosen.mode)

    def test_pools_that_were_seen_take_what_is_planned_for_them(self):
        # Blocks described, and MB of disk with and without a saved filter.
        for blocks, seen_mb in ((10**6, 98), (10**7, 378), (10**8, 3600), (1 << 28, 9398)):
            planned = PoolPlan(blocks, free_bytes=0, memory_mib=64).disk_bytes()
            self.assertTrue(seen_mb << 20 < planned < 2 * (seen_mb << 20) + (192 << 20), blocks)

    def test_what_is_written_fits_the_free_room(self):
        for chosen in SIZES:
            for plan in CurveRow(chosen).plans(chosen):
                # The file and its copy, which has no blocks of its own while all are shared.
                self.assertGreater(plan.free_bytes, 2 * chosen.stream_bytes)
            (plan,) = mounts.CleanMountRow(chosen).plans(chosen)
            self.assertGreaterEqual(plan.free_bytes, 2 * chosen.scratch_bytes)

    def test_a_full_run_has_the_sizes_that_the_goals_are_for(self):
        self.assertEqual(settings.SCALE.full.curve_blocks, (10**6, 10**7, 10**8))
        self.assertEqual(settings.SCALE.full.large_blocks * 4096, 1 << 40)


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in SIZES:
            common.assert_told_apart(self, rows(chosen))

    def test_a_row_that_spends_its_pools_comes_after_all_that_use_them(self):
        plans = [(row.plans(settings.SCALE.full), row.spends_pools) for row in rows(settings.SCALE.full)]
        for index, (used, is_spent) in enumerate(plans):
            later = [plan for others, _ in plans[index + 1 :] for plan in others]
            self.assertFalse(is_spent and set(used) & set(later))

    def test_the_filter_is_measured_in_the_largest_pool_of_the_curve(self):
        curve, of_filter = CurveRow(settings.SCALE.full), FilterRow(settings.SCALE.full)
        self.assertEqual(of_filter.plans(settings.SCALE.full), curve.plans(settings.SCALE.full)[-1:])

    def test_a_machine_with_too_little_memory_leaves_the_row_out(self):
        row = mounts.CleanMountRow(settings.SCALE.full)
        with mock.patch("os.sysconf", {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}.get):
            self.assertIn("does not fit the 4096 MiB", row.why_not(settings.SCALE.full))
        with mock.patch("os.sysconf", {"SC_PHYS_PAGES": 3 << 19, "SC_PAGE_SIZE": 4096}.get):
            self.assertIsNone(row.why_not(settings.SCALE.full))


class Journal(unittest.TestCase):
    def moments(self, counters):
        watch = mounts.JournalWatch()
        return [watch.is_full({"commits": commits, "checkpoints": checkpoints}) for commits, checkpoints in counters]

    def test_it_is_full_one_transaction_before_as_many_as_between_the_last_checkpoints(self):
        seen = self.moments([(7, 1), (8, 2), (9, 2), (11, 3), (12, 3), (13, 3), (14, 3)])
        self.assertEqual(seen, [False, False, False, False, False, True, True])

    def test_a_checkpoint_that_comes_first_begins_the_count_again(self):
        seen = self.moments([(1, 1), (2, 2), (5, 3), (6, 3), (8, 4), (9, 4), (10, 4)])
        self.assertEqual(seen, [False] * 6 + [True])

    def test_it_holds_one_transaction_at_least(self):
        self.assertEqual(self.moments([(1, 1), (2, 2), (3, 3), (3, 3), (4, 3)]), [False] * 4 + [True])

    def test_it_is_not_full_before_two_checkpoints_were_seen(self):
        self.assertFalse(any(self.moments([(1, 1), (50, 1), (51, 2), (90, 2)])))

    def test_a_writer_that_has_ended_is_noticed(self):
        pool, writer = mock.Mock(), mock.Mock()
        pool.stat.return_value = {"activity": {"commits": 1, "checkpoints": 1}}
        writer.poll.return_value = 1
        with self.assertRaisesRegex(BenchError, "the writer ended"):
            mounts.wait_for_full_journal(pool, writer)


class FakePool:
    def __init__(self, _folder, _programs, plan):
        self.plan, self.dropped = plan, False

    def format(self):
        pass

    def unmount(self):
        pass

    def drop(self):
        self.dropped = True


class FakeRow(ScaleRow):
    def __init__(self, name, plans, fails=False):
        self.name, self._plans, self._fails, self.seen = name, plans, fails, []
        super().__init__(settings.SCALE.tiny)

    def make_lines(self, _settings):
        return (Line(self.name, self.name, "s", goal="2 s / 1 s"),)

    def plans(self, _settings):
        return self._plans

    def measure(self, pools, settings, round_no):
        self.seen = pools
        if self._fails:
            raise BenchError("as it was told")
        return [(self.name, Sample(1.0)), (self.name, Sample(3.0))]


class Bench(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.object(pools, "DescribedPool", FakePool), mock.patch("lib.runner.say")):
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch.object(pools, "say")
        patch.start()
        self.addCleanup(patch.stop)
        self.small, self.large = PoolPlan(1, 0, 1), PoolPlan(2, 0, 1)

    def run_rows(self, *wanted):
        run = Run({}, settings.SCALE.tiny)
        bench = ScaleBench(Place(Path("/nowhere")), None, settings.SCALE.tiny)
        with mock.patch("lib.memory.Ballast.fill"):
            bench.measure_all(wanted, run)
        return bench, run

    def test_a_pool_that_the_next_row_needs_is_kept_and_others_go(self):
        first, second = FakeRow("first", [self.small, self.large]), FakeRow("second", [self.large])
        bench, _ = self.run_rows(first, second)
        self.assertIs(first.seen[1], second.seen[0])
        self.assertEqual([pool.dropped for pool in first.seen], [True, False])
        bench.close()
        self.assertTrue(second.seen[0].dropped)

    def test_after_a_row_that_spends_its_pools_they_are_made_anew(self):
        first, second = FakeRow("first", [self.large]), FakeRow("second", [self.large])
        first.spends_pools = True
        self.run_rows(first, second)
        self.assertTrue(first.seen[0].dropped)
        self.assertIsNot(first.seen[0], second.seen[0])

    def test_a_row_that_fails_leaves_no_pool_to_the_next(self):
        first, second = FakeRow("first", [self.large], fails=True), FakeRow("second", [self.large])
        _, run = self.run_rows(first, second)
        self.assertEqual(run.failed(), ["first"])
        self.assertTrue(first.seen[0].dropped)
        self.assertFalse(second.seen[0].dropped)

    def test_a_line_may_have_several_samples_of_one_round(self):
        _, run = self.run_rows(FakeRow("first", [self.small]))
        self.assertRegex(
            table(run), r"\| first \(unsteady\) \| 2.00 s \(1.00-3.00\) \| 2 s / 1 s \|  \| \d+, \S+ s \| `bench/scale.py"
        )

    def test_every_line_of_the_table_has_all_columns(self):
        run = Run({}, settings.SCALE.tiny, [(FakeRow("first", []), NotMeasured("failed", "why it did"))])
        common.assert_has_all_columns(self, table(run), 7)
        self.assertIn("| first | failed | 2 s / 1 s |", table(run))


class Reclaim(unittest.TestCase):
    def test_what_is_reclaimed_is_told_by_what_is_left(self):
        pool = mock.Mock()
        pool.stat.side_effect = [{"freeing_bytes": 9 << 30}, {"freeing_bytes": 3 << 30}]
        with mock.patch("time.perf_counter", side_effect=[1.0, 3.0]), reclaim.Reclaimed(pool) as reclaimed:
            pass
        self.assertEqual(reclaimed.gib_per_second, 3.0)

    def test_what_is_not_let_go_of_yet_is_waited_for(self):
        # On a quick machine nothing was freeing yet when it was asked first.
        pool = mock.Mock()
        pool.stat.side_effect = [{"freeing_bytes": left << 30} for left in (0, 9, 3)]
        with mock.patch("time.perf_counter", side_effect=[1.0, 3.0]), reclaim.Reclaimed(pool) as reclaimed:
            pass
        self.assertEqual(reclaimed.gib_per_second, 3.0)

    def test_a_reclaim_that_does_not_get_on_is_a_failure(self):
        pool = mock.Mock()
        pool.stat.return_value = {"freeing_bytes": 9 << 30}
        with self.assertRaisesRegex(BenchError, "nothing was reclaimed"), reclaim.Reclaimed(pool):
            pass


class Waiting(unittest.TestCase):
    def test_a_pool_is_asked_less_often_the_longer_it_takes(self):
        # Asked twenty times a second, a pool took a third longer to load its filter.
        pool = pools.DescribedPool.__new__(pools.DescribedPool)
        now, slept = [0.0], []

        def sleep(seconds):
            slept.append(seconds)
            now[0] += seconds

        with mock.patch("time.monotonic", lambda: now[0]), mock.patch("time.sleep", sleep):
            pool._wait_until(lambda: now[0] > 60)
        self.assertLess(len(slept), 160)
        self.assertLess(max(slept), 2)


class Document(unittest.TestCase):
    def test_the_committed_document_takes_the_table_between_its_markers(self):
        common.assert_takes_tables(self, scale.PAGE, scale.FORM.begin)

    def test_a_table_whose_end_is_another_ones_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "document.md"
            document.write_text(f"{report.BEGIN}\n{scale.FORM.begin}\n{report.END}\n", encoding="utf-8")
            with self.assertRaises(BenchError):
                report.update(document, "new", report.BEGIN)

    def test_the_facts_name_all_sizes(self):
        facts = scale.sizes(replace(settings.SCALE.full, rounds=7))["sizes"]
        for part in ("10^6 blocks, 10^7 blocks, 10^8 blocks", "of 1 TiB", "--memory 4096M", "up to 7 rounds"):
            self.assertIn(part, facts)


def table(run):
    return report.markdown(run, scale.FORM)


if __name__ == "__main__":
    unittest.main()

"""What samples come to, and how they are shown."""

import json
import unittest
from dataclasses import replace

import paths
import common
import run
from lib import report, settings
from lib.data import BLOCK_BYTES, ImageData
from lib.measure import Cost, Line, Measured, NotMeasured, Sample, Series, Turn, Work
from lib.rows import ROWS
from lib.rows.import_memory import saved_percent
from lib.rows.row import OneLineRow
from lib.rows.slow_disk import SLOW_BYTES_PER_SECOND, expect_slow
from lib.runner import Run
from lib.system import BenchError


ROW = OneLineRow("row", "title", "MB/s", goal="1x / 2x")


def measured(pool, ext4, **more):
    result = Measured(Line("key", "title", "MB/s", **more))
    for side, values in (("pool", pool), ("ext4", ext4)):
        for value in values:
            result.add(side, Sample(value))
    return result


def series(pool, ext4, disk=(), set_aside=None):
    made = Series(ROW)
    for side, values in (("pool", pool), ("ext4", ext4), ("disk", disk)):
        for value in values:
            made.add(ROW.name, side, Sample(value))
    made.set_aside = set_aside
    return made


class Figures(unittest.TestCase):
    def test_a_ratio_is_the_median_of_each_rounds_own(self):
        ratio = measured([100, 300, 50], [100, 200, 100]).ratio()
        self.assertEqual((ratio.median, ratio.low, ratio.high), (1.0, 0.5, 1.5))

    def test_where_lower_is_better_half_the_time_is_twice_as_good(self):
        self.assertEqual(measured([2], [4], higher_is_better=False).ratio().median, 2.0)

    def test_one_side_alone_has_no_ratio(self):
        self.assertIsNone(measured([2], []).ratio())
        self.assertIsNone(measured([2], [2], has_ratio=False).ratio())

    def test_cpu_time_is_told_per_unit_of_work(self):
        result = Measured(Line("key", "title", "MB/s"))
        cost = Cost(client_seconds=0.5, server_seconds=1.5, machine_seconds=3.0)
        result.add("pool", Sample(1.0, cost, Work.moved(4 << 30)))
        self.assertEqual(result.cpu_seconds("pool"), (0.5, 0.75, "GiB"))
        self.assertIsNone(result.cpu_seconds("ext4"))

    def test_numbers_show_three_digits_that_count(self):
        shown = {1234.5: "1,234", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.1234: "0.123", 0.01234: "0.0123"}
        self.assertEqual({value: report.number(value) for value in shown}, shown)


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)
        self.run_of = lambda measured: Run({"when": "then"}, settings.RUN.tiny, [(ROW, measured)])

    def test_a_line_has_median_spread_ratio_and_command(self):
        text = report.markdown(self.run_of(series([100, 300, 200], [100, 100, 100], [50, 50, 50])))
        self.assertIn(
            "| title (unsteady) | 200 MB/s (100-300) | 100 MB/s (100-100) | 50.0 MB/s (50.0-50.0) | 2.00x (1.00-3.00) | "
            "4.00x (2.00-6.00) | 1x / 2x |",
            text,
        )
        self.assertIn("| what | pool | ext4 on a loop device | ext4 on the disk |", text)
        self.assertIn("`bench/run.py --only row`", text)
        self.assertIn("- when: then", text)

    def test_every_line_of_the_table_has_all_columns(self):
        for found in (series([1], [1]), NotMeasured("failed", "why it did")):
            common.assert_has_all_columns(self, report.markdown(self.run_of(found)), 13)

    def test_a_row_tells_the_page_faults_and_the_steal_time_of_its_turns(self):
        found = series([1], [1])
        found.turns = {"pool": [Turn(1000, 0.5), Turn(3000, 0.25), Turn(2000, 0.0)], "ext4": [Turn(7, 0.0)]}
        text = report.markdown(self.run_of(found))
        self.assertIn("| pool 2,000, 0.25 s; ext4 7, 0.00 s | `bench/run.py --only row` |", text)

    def test_a_row_is_marked_only_while_its_rounds_differ_too_much(self):
        self.assertIn("| title | 150 MB/s", report.markdown(self.run_of(series([100, 150, 160], [100, 100, 100]))))
        self.assertIn("| title (unsteady) |", report.markdown(self.run_of(series([100, 161], [100, 100]))))
        # Each side by itself is steady; their ratio is what the table is for.
        self.assertIn("| title (unsteady) |", report.markdown(self.run_of(series([100, 130], [130, 100]))))
        self.assertIn("| title (unsteady) |", report.markdown(self.run_of(series([100, 130], [], [130, 100]))))

    def test_negligible_values_do_not_mark_a_row(self):
        for least, is_marked in [(0.0, True), (0.5, False)]:
            found = series([0.0001, 0.5], [0.2, 0.5])
            found.lines[0].line = replace(found.lines[0].line, negligible=least)
            self.assertEqual(found.is_unsteady(), is_marked)
        found.lines[0].samples["pool"].append(Sample(0.9))
        self.assertTrue(found.is_unsteady())

    def test_a_row_that_was_run_again_says_so(self):
        text = report.markdown(self.run_of(series([100, 150], [100, 100], set_aside=series([1, 4], [1, 1]))))
        self.assertIn("- row: run again, as its rounds had differed by 4.00x; steady now, at 1.50x.", text)
        self.assertIn("| title | 125 MB/s", text)
        text = report.markdown(self.run_of(series([100, 200], [100, 100], set_aside=series([1, 4], [1, 1]))))
        self.assertIn("- row: run again, as its rounds had differed by 4.00x; still unsteady, at 2.00x.", text)
        self.assertIn("| title (unsteady) | 150 MB/s", text)

    def test_a_failed_row_stays_in_the_table_with_its_reason(self):
        run = self.run_of(NotMeasured("failed", "the pool was full"))
        self.assertIn("| title | failed |", report.markdown(run))
        self.assertIn("the pool was full", report.markdown(run))
        self.assertEqual(run.failed(), ["row"])

    def test_a_row_that_ran_out_of_time_says_so(self):
        run = self.run_of(series([1], [1]))
        run.settings = replace(settings.RUN.tiny, rounds=3)
        self.assertIn("- row: 1 of 3 rounds", report.markdown(run))
        run.settings = settings.RUN.tiny
        self.assertNotIn("rounds", report.markdown(run))

    def test_the_timetable_tells_each_rows_seconds_and_their_sum(self):
        run = Run({}, settings.RUN.tiny)
        run.seconds = {"one": 2.0, "other": 40.4}
        self.assertIn("     2 s  one\n    40 s  other\n    42 s  together", report.timetable(run))

    def test_an_update_replaces_only_what_is_between_the_markers(self):
        document = self.folder / "document.md"
        document.write_text(f"head\n{report.BEGIN}\nold\n{report.END}\ntail\n")
        for text in ("first", "second"):
            report.update(document, text)
        self.assertEqual(document.read_text(), f"head\n{report.BEGIN}\nsecond\n{report.END}\ntail\n")

    def test_a_document_without_one_pair_of_markers_is_left_alone(self):
        document = self.folder / "document.md"
        for text in ("", f"{report.END}\n{report.BEGIN}\n", f"{report.BEGIN}{report.END}" * 2):
            document.write_text(text)
            with self.assertRaises(BenchError):
                report.update(document, "new")
            self.assertEqual(document.read_text(), text)

    def test_the_json_file_holds_every_sample(self):
        report.write_json(self.run_of(series([1, 2], [3, 4], set_aside=series([1, 4], [1, 1]))), self.folder / "new" / "run.json")
        document = json.loads((self.folder / "new" / "run.json").read_text())
        row = document["rows"]["row"]
        for found, values in ((row, [1, 2, 3, 4]), (row["set_aside"], [1, 4, 1, 1])):
            samples = found["lines"]["row"]["samples"]
            self.assertEqual([sample["value"] for sample in samples["pool"] + samples["ext4"]], values)

    def test_the_committed_document_can_be_updated(self):
        common.assert_takes_tables(self, run.PAGE, report.BEGIN)


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        common.assert_told_apart(self, ROWS)

    def test_rows_that_share_an_original_stand_together(self):
        # Each time that it is made anew, a run gets longer.
        uses = [row.uses_original for row in ROWS]
        self.assertEqual(sum(now and not before for before, now in zip([False, *uses], uses)), 1)

    def test_two_large_files_fit_on_a_disk_of_every_size_with_the_pools_own_structures(self):
        for chosen in settings.RUN:
            self.assertLess(2 * chosen.file_bytes, chosen.device_bytes * 0.85, chosen.mode)

    def test_a_large_import_fits_on_a_disk_of_every_size(self):
        for chosen in settings.RUN:
            blocks = ImageData.distinct_blocks(chosen.import_images, chosen.import_image_bytes >> 20)
            self.assertLess(blocks * BLOCK_BYTES, chosen.device_bytes * 0.9, chosen.mode)

    def test_a_full_import_is_of_twenty_gigabytes(self):
        self.assertGreaterEqual(settings.RUN.full.import_images * settings.RUN.full.import_image_bytes, 20 * 10**9)

    def test_savings_are_held_against_a_naive_count(self):
        chosen = replace(settings.RUN.tiny, import_images=2, import_image_bytes=1 << 20)
        distinct, written = 18 * 16 * BLOCK_BYTES, 24 * 16 * BLOCK_BYTES
        self.assertEqual(saved_percent(chosen, distinct), 100)
        self.assertEqual(saved_percent(chosen, written), 0)
        with self.assertRaises(BenchError):
            saved_percent(chosen, distinct - BLOCK_BYTES)

    def test_a_disk_that_is_not_slowed_is_noticed_by_a_file_of_every_size(self):
        for chosen in settings.RUN:
            at_the_limit = chosen.slow_bytes / SLOW_BYTES_PER_SECOND
            expect_slow("ext4", chosen.slow_bytes, at_the_limit)
            # As it was seen where the limit held, and at twice the limit.
            expect_slow("ext4", chosen.slow_bytes, at_the_limit - 0.35)
            with self.assertRaises(BenchError):
                expect_slow("ext4", chosen.slow_bytes, at_the_limit / 2.1)

    def test_a_run_takes_at_most_twenty_five_gigabytes_of_disk(self):
        self.assertLessEqual(run.needed_bytes(settings.RUN.full), 25 * 10**9)

    def test_a_full_run_takes_less_than_twenty_five_minutes_and_a_quick_one_less_than_three(self):
        # Without compiling, and with what making the disks takes.
        for chosen, minutes in ((settings.RUN.full, 24), (settings.RUN.quick, 2.8)):
            self.assertLessEqual(chosen.run_seconds, minutes * 60, chosen.mode)


if __name__ == "__main__":
    unittest.main()

"""The FBS paper's formulas and figures, what debugfs prints, sections, and the set of machines."""

import contextlib
import io
import math
import re
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace

import paths  # it makes the next imports possible
import fbs  # noqa: I001
from fbs_rows import EXPERIMENTS, ext, extents, formulas, list1, machines, metadata, ntfs, published, welch
from fbs_rows.section import Section
from lib import report, settings
from lib.system import BenchError
from paper_figures import svg

MIB = 1 << 20


class Published(unittest.TestCase):
    def test_the_printed_quotients_do_not_follow_from_the_printed_total(self):
        self.assertAlmostEqual(published.seconds_each(), 16.12, delta=0.005)
        self.assertAlmostEqual(published.mb_per_second(), 27.17, delta=0.005)
        self.assertAlmostEqual(published.INSTALLED_MB / published.PRINTED_SECONDS_EACH, 27.74, delta=0.005)


class Formulas(unittest.TestCase):
    def test_table_3_is_right_up_to_the_last_double_indirect_block(self):
        for blocks in (1, 12, 13, 1036, 1037, 2060, 2061, formulas.DOUBLE_MAX):
            self.assertEqual(formulas.table_3_blocks(blocks), formulas.indirect_blocks(blocks), blocks)
        self.assertEqual(formulas.indirect_blocks(formulas.DOUBLE_MAX), 1026)
        after = formulas.DOUBLE_MAX + 1
        self.assertEqual(formulas.indirect_blocks(after) - formulas.table_3_blocks(after), 1)
        self.assertEqual((after, formulas.TRIPLE_MAX), (1_049_613, 1_074_791_436))

    def test_extents_fill_leaves_and_the_inode_is_the_index_of_four(self):
        wanted = {1: 0, 4: 0, 5: 1, 340: 1, 341: 2, 1360: 4, 1361: 6}
        self.assertEqual({runs: formulas.extent_blocks(runs) for runs in wanted}, wanted)
        self.assertEqual([formulas.table_4_blocks(runs) for runs in (4, 5, 344, 345)], [0, 2, 2, 3])

    def test_table_5_has_a_record_for_each_thirty_runs(self):
        self.assertEqual([formulas.table_5_records(runs) for runs in (1, 30, 31, 61)], [1, 1, 2, 3])


class Welch(unittest.TestCase):
    def test_probabilities_are_those_of_closed_forms(self):
        for t in (0.1, 1.0, 3.5, 20.0):
            self.assertAlmostEqual(welch.two_sided(t, 1), 1 - 2 / math.pi * math.atan(t), places=9)
            self.assertAlmostEqual(welch.two_sided(t, 2), 1 - t / math.sqrt(2 + t * t), places=9)

    def test_samples_of_one_variance_are_compared_as_student_did(self):
        # t = 1.2247 with 4 degrees of freedom.
        found = welch.welch([1, 2, 3], [2, 3, 4])
        self.assertAlmostEqual(found.p, 0.28786, delta=0.00001)
        reach = 2.776445 * math.sqrt(2 / 3)
        self.assertAlmostEqual(found.low, 1 - reach, delta=0.00001)
        self.assertAlmostEqual(found.high, 1 + reach, delta=0.00001)

    def test_quantiles_are_those_of_printed_tables(self):
        for freedom, value in ((1, 12.706), (4, 2.776), (10, 2.228), (30, 2.042)):
            self.assertAlmostEqual(welch.student_quantile(0.95, freedom), value, delta=0.001)

    def test_equal_samples_do_not_differ_and_single_ones_are_not_compared(self):
        self.assertEqual(welch.welch([1, 2, 3], [1, 2, 3]).p, 1.0)
        self.assertEqual(welch.welch([2, 2], [2, 2]), welch.Compared(1.0, 0, 0))
        self.assertIsNone(welch.welch([1], [1, 2]))

    def test_mean_and_deviation_are_those_of_a_sample(self):
        self.assertEqual(welch.Sampled.of([1.0, 2.0, 3.0]), welch.Sampled(2.0, 1.0, 3))
        self.assertEqual(welch.Sampled.of([4.0]), welch.Sampled(4.0, 0.0, 1))


class Debugfs(unittest.TestCase):
    LIST_1 = """Inode: 210540 Type: regular Mode: 0755 Flags: 0x0 Generation: 3290196032
User: 0 Group: 0 Size: 53488
BLOCKS:
(0-11):854508-854519, (IND):854520, (12-13):854521-854522
TOTAL: 15
"""

    def test_list_1_has_fourteen_data_blocks_and_one_indirect_block(self):
        listed = ext.parse_stat(self.LIST_1)
        self.assertEqual(listed.runs, ((0, 854508, 12), (12, 854521, 2)))
        self.assertEqual((listed.size_bytes, listed.data_blocks), (published.LISTED_BYTES, 14))
        self.assertEqual(listed.map_blocks, (854520,))

    def test_extents_and_nodes_above_them_are_told_apart(self):
        listed = ext.parse_stat("Size: 36864\nEXTENTS:\n(ETB0):7415, (0):6908, (2-4[u]):6910-6912\n")
        self.assertEqual(listed.runs, ((0, 6908, 1), (2, 6910, 3)))
        self.assertEqual(listed.map_blocks, (7415,))

    def test_a_listing_without_blocks_is_refused(self):
        for text in ("", "Size: 1\n", "BLOCKS:\n(0):1\n"):
            with self.assertRaises(BenchError):
                ext.parse_stat(text)

    def test_a_map_that_differs_is_refused(self):
        listed = ext.parse_stat(self.LIST_1)
        runs = [(first * 4096, place * 4096, count * 4096) for first, place, count in listed.runs]
        extents_told = [dict(zip(("offset", "place", "length_bytes"), run, strict=True)) for run in runs]
        told = {"size_bytes": 53_488, "allocated_bytes": 15 * 4096, "extents": extents_told}
        list1.compare(listed, told)
        for wrong in (
            {"size_bytes": 53_489},
            {"allocated_bytes": 14 * 4096},
            {"extents": extents_told[:1]},
        ):
            with self.assertRaises(BenchError):
                list1.compare(listed, told | wrong)


class Tables(unittest.TestCase):
    LENGTHS = (12, 13, 1_049_613)

    def table_3(self):
        count = {length: formulas.indirect_blocks(length) for length in self.LENGTHS}
        return {("ext2", 128): count, ("ext3", 256): dict(count)}

    def test_the_table_says_where_a_formula_is_wrong(self):
        rows = metadata.table_3(self.LENGTHS, self.table_3()).rows
        self.assertEqual([row[-1] for row in rows[:2]], ["right", "right"])
        self.assertIn("1 block short", rows[2][-1])
        rows = metadata.table_4((4, 5, 1361), {("ext4", 128): {4: 0, 5: 1, 1361: 6}}).rows
        self.assertEqual(rows[0][-1], "right")
        self.assertIn("1 block over", rows[1][-1])
        self.assertIn("1 block short", rows[2][-1])

    def test_counts_that_differ_between_file_systems_are_refused(self):
        counts = self.table_3()
        counts["ext3", 256][13] = 2
        with self.assertRaises(BenchError):
            metadata.table_3(self.LENGTHS, counts)

    def test_figure_6_is_well_formed_and_has_each_line(self):
        counts = self.table_3()
        few = {inode: {12: 0, 13: 0} for inode in metadata.INODES}
        root = xml.fromstring(svg.document(metadata.figure_6(self.LENGTHS, counts, few)))
        lines = [element for element in root.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 5)

    def test_every_line_of_a_table_has_its_columns(self):
        told = {"files": 10, "extents": 12, "apart": 11, "joined": 2}
        for section in (
            metadata.table_3(self.LENGTHS, self.table_3()),
            metadata.table_4((4,), {("ext4", 128): {4: 0}}),
            extents.section({"ext3": told, "ext4": told}, 0.001),
            ntfs.table_5(700, {2: 200}, 0.125, {"inline_files": 1, "inline_bytes": 2, "all_files": 3}),
        ):
            counts = {line.count("|") for line in section.markdown() if line.startswith("|")}
            self.assertEqual(len(counts), 1, section.title)
            self.assertTrue(section.rows)


class Documents(unittest.TestCase):
    def run_of(self):
        charts = {"chart.svg": [svg.BarPanel("title", "s", ["here"], [])]}
        section = Section("A section", ("what", "is"), [("one", 1)], ["A note."], charts, {"value": 1})
        return fbs.Run({"when": "then"}, settings.FBS.tiny, {"list-1": section}, ["table-2: lost"], ["figure-5: none"])

    def test_the_committed_document_can_be_updated(self):
        committed = paths.BENCH.parent / "docs" / "paper-figures.md"
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "paper-figures.md"
            copy.write_text(committed.read_text(encoding="utf-8"), encoding="utf-8")
            report.update(copy, "the tables", fbs.BEGIN)
            self.assertIn("the tables", copy.read_text(encoding="utf-8"))

    def test_an_update_writes_the_charts_that_the_document_links(self):
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "document.md"
            document.write_text(f"head\n{fbs.BEGIN}\nprevious\n{report.END}\ntail\n", encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                fbs.show(SimpleNamespace(update=document, charts=None), self.run_of())
            text = document.read_text(encoding="utf-8")
            self.assertIn(printed.getvalue().strip(), text)
            self.assertTrue(text.startswith("head\n") and text.endswith("tail\n") and "previous" not in text)
            self.assertEqual(re.findall(r"\((figures/[^)]*)\)", text), ["figures/chart.svg"])
            self.assertTrue((Path(folder) / "figures/chart.svg").is_file())

    def test_failures_and_what_was_left_out_are_named(self):
        text = self.run_of().markdown()
        self.assertIn("- failed: table-2: lost\n- left out: figure-5: none\n", text)
        self.assertNotIn("chart.svg", text)

    def test_an_experiment_that_fails_does_not_end_the_run(self):
        good = SimpleNamespace(name="good", why_not=lambda _: None, measure=lambda _: Section("good", ()))

        def fail(_):
            raise BenchError("no room")

        bad = SimpleNamespace(name="bad", why_not=lambda _: None, measure=fail)
        missing = SimpleNamespace(name="missing", why_not=lambda _: "there is no tool")
        run = fbs.Run({}, settings.FBS.tiny)
        bench = SimpleNamespace(settings=settings.FBS.tiny, close=lambda: None)
        with contextlib.redirect_stderr(io.StringIO()):
            fbs.measure_all(bench, [bad, missing, good], run)
        self.assertEqual(list(run.sections), ["good"])
        self.assertEqual((run.failures, run.left_out), (["bad: no room"], ["missing: there is no tool"]))

    def test_names_of_experiments_are_their_own(self):
        names = [experiment.name for experiment in EXPERIMENTS]
        self.assertEqual(len(set(names)), len(names))
        self.assertTrue(all(experiment.title for experiment in EXPERIMENTS))


class Sets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = Path(folder.name)

    def test_the_set_of_the_corpus_is_taken_where_it_is_built(self):
        self.assertIsNone(machines.chosen_set(None, self.cache, settings.FBS.quick).path)
        path = self.cache / "fbs6.xfs"
        path.write_bytes(b"x" * MIB)
        found = machines.chosen_set(None, self.cache, settings.FBS.quick)
        self.assertEqual((found.path, found.count), (path.absolute(), 6))
        self.assertIsNone(machines.chosen_set(None, self.cache, settings.FBS.full).path)
        self.assertIsNone(machines.chosen_set(None, self.cache, settings.FBS.tiny).path)

    def test_a_named_set_must_be_there(self):
        with self.assertRaises(BenchError):
            machines.chosen_set(self.cache / "none", self.cache, settings.FBS.full)

    def test_runs_have_as_many_machines_as_the_paper_or_its_figure_4(self):
        self.assertEqual(settings.FBS.full.machines, published.MACHINES)
        self.assertEqual(settings.FBS.quick.machines, 6)
        self.assertEqual((settings.FBS.full.rounds, settings.FBS.full.bonnie_rounds), (published.RUNS, 10))


if __name__ == "__main__":
    unittest.main()

"""The FBS paper's formulas and figures, what debugfs prints, sections, and the set of machines."""

import contextlib
import io
import math
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import paths  # it makes the next imports possible
import common
import fbs  # noqa: I001
from fbs_rows import (
    EXPERIMENTS, bonnie, cas, ext, extents, formulas, hashing, list1, machines, metadata, ntfs, offline, packages,
    prototype, published, welch,
)  # fmt: skip
from fbs_rows.section import Section
from lib import settings
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
    PASS = {
        "seconds": 1.0, "cpu_seconds": 1.0, "read_bytes": 1, "freed_bytes": 1, "shared_bytes": 1,
        "unshared": {"different": 2_000_000}, "unique_bytes": None,
    }  # fmt: skip

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
        root = common.root_of(metadata.figure_6(self.LENGTHS, counts, few))
        lines = [element for element in root.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), 5)

    def test_every_line_of_a_table_has_its_columns(self):
        told = {"files": 10, "runs": 1.2, "apart": 11, "joined": 2}
        done = offline.Done(*range(1, 8))
        turns = {(side.key, state): [done, done] for side in offline.SIDES for state in ("cold", "warm")}
        online = {"seconds": 1.0, "machine_seconds": 2.0, "server_seconds": 0.5}
        hashed = {"files": 1, "bytes": 4096, "seconds": dict.fromkeys(hashing.WAYS, 0.5)}
        for section in (
            offline.section(turns, 6, 438_000_000),
            cas.table_1(self.PASS, self.PASS, self.PASS, 6),
            cas.online({"pool": [online], "ext4": [online]}, 1000),
            hashing.section([hashed]),
            metadata.table_3(self.LENGTHS, self.table_3()),
            metadata.table_4((4,), {("ext4", 128): {4: 0}}),
            extents.section({"ext3": told, "ext4": told}, 0.001),
            ntfs.table_5(700, {2: 200}, 0.125, {"inline_files": 1, "inline_bytes": 2, "all_files": 3}),
        ):
            common.assert_has_all_columns(self, "\n".join(section.markdown()))
            self.assertTrue(section.rows)


class Turns(unittest.TestCase):
    def test_mean_and_deviation_are_of_all_rounds(self):
        turns = [offline.Done(seconds, 1.0, 2.0, 3.0, 4, 5, 6) for seconds in (10.0, 12.0, 14.0)]
        rows = offline.section({("kernel", "cold"): turns}, 2, 24_000_000).rows
        self.assertEqual(rows[1][:4], ("`share files`, cold", "12.00 s (2.00)", "6.00 s", "4.0"))
        self.assertIn("16.12 s", rows[0][2])
        self.assertIn("27.17", rows[0][3])

    def test_what_a_pass_leaves_is_told_with_its_reason_once(self):
        told = {
            "shared": {"now_bytes": 9, "differed_bytes": 5, "too_short_bytes": 0},
            "examined": {"resident_bytes": 3},
            "tiers": [{"differed_bytes": 5, "empty_bytes": 0}],
        }
        self.assertEqual(cas.unshared(told), {"different": 5, "resident": 3})
        self.assertIsNone(cas.unique_bytes(told))
        self.assertEqual(cas.unique_bytes({"index": {"unique": 2}}), 8192)
        self.assertEqual(cas.reasons(self.of(None)), "different: 2.00 MB")
        self.assertEqual(cas.reasons(self.of(1_000_000)), "different: 2.00 MB; nowhere else: 1.00 MB")

    def of(self, unique):
        return Tables.PASS | {"unique_bytes": unique}


class Bonnie(unittest.TestCase):
    LINE = "1.98,2.00a,guest,1,1795697776,1G,,8192,5,,,1048576,90,524288,50,,,2097152,80,200,9\n"

    def test_rates_are_those_of_blocks(self):
        found = bonnie.rates_of(self.LINE)
        self.assertEqual(found, {"write": 1048576 * 1024 / 1e6, "read": 2097152 * 1024 / 1e6})

    def test_what_was_too_quick_to_measure_is_refused_where_figures_count(self):
        text = self.LINE.replace("2097152", "+++++")
        self.assertEqual(bonnie.rates_of(text, 10**9)["read"], 2000.0)
        for wrong in (text, "", "1.98,2.00a\n"):
            with self.assertRaises(BenchError):
                bonnie.rates_of(wrong)

    def test_no_cost_is_claimed_only_within_five_percent(self):
        before = [100.0, 101.0, 99.0, 100.5, 99.5]
        for shift, claimed in ((1.0, "no cost"), (-10.0, "a cost"), (10.0, "a gain")):
            self.assertEqual(bonnie.claim(before, [value + shift for value in before]), claimed)
        self.assertEqual(bonnie.claim([50.0, 150.0, 100.0], [60.0, 140.0, 100.0]), "not decided")
        self.assertEqual(bonnie.claim([1.0], [1.0]), "")

    def test_the_chart_has_a_bar_for_each_state(self):
        rates = {state: {"read": [100.0, 110.0], "write": [90.0, 95.0]} for state in ("before", "after")}
        section = bonnie.section({"xfs": rates, "pool": rates})
        self.assertEqual(len(section.rows), 4)
        text = svg.document(section.charts["fbs-figure-5.svg"])
        self.assertEqual(text.count('class="whisker"'), 8)


class Prototype(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)

    def root(self, name, *logged, content=b"same"):
        root = self.folder / name
        (root / prototype.INFO).mkdir(parents=True)
        (root / "var/log").mkdir()
        (root / "usr").mkdir()
        (root / "usr/file").write_bytes(content)
        (root / prototype.INFO / "new:amd64.list").write_text("/.\n/usr\n/usr/file\n", encoding="utf-8")
        (root / prototype.LOG).write_text("".join(f"{line}\n" for line in logged), encoding="utf-8")
        return root

    def test_only_packages_that_the_templates_log_has_not_are_new(self):
        old = "2026-01-01 10:00:00 install new:amd64 <none> 1"
        new = "2026-02-01 10:00:00 install new:amd64 <none> 2"
        root = self.root("machine", old, "2026-02-01 10:00:01 status installed new:amd64 2", new)
        self.assertEqual(prototype.FileSystemAgent(old).new_files(root), ["/usr/file"])
        self.assertEqual(prototype.FileSystemAgent(f"{old}\n{new}").new_files(root), [])

    def test_a_file_of_two_machines_comes_into_the_common_volume_once(self):
        common = self.folder / "common"
        common.mkdir()
        agent, clock = prototype.StorageAgent(common), prototype.Clock()
        found = []
        for number in range(3):
            root = self.root(f"machine-{number}", content=b"same")
            found.append(agent.compare(Path(f"{number}.raw"), root, ["/usr/file"], clock))
        digest = prototype.md5(root / "usr/file")
        self.assertEqual(found[0], [])
        self.assertEqual(found[1], [(Path(f"{number}.raw"), "/usr/file", digest) for number in (0, 1)])
        self.assertEqual(found[2], [(Path("2.raw"), "/usr/file", digest)])
        self.assertEqual((common / prototype.name_of(digest)).read_bytes(), b"same")

    def test_files_are_remapped_where_both_have_a_part(self):
        own, common = [(0, 100, 10), (12, 200, 4)], [(0, 50, 5), (5, 90, 9)]
        pairs = [(100, 50, 5), (105, 90, 5), (200, 97, 2)]
        self.assertEqual(list(prototype.overlaps(own, common)), pairs)


class Packages(unittest.TestCase):
    def test_made_packages_and_their_database_lie_apart(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            made = folder / "packages" / "files"
            (made / "var/lib/dpkg").mkdir(parents=True)
            (made / "var/lib/dpkg/status").write_text("Package: one\n", encoding="utf-8")
            (made / "usr").mkdir()
            (made / "usr/one").write_bytes(b"x")
            (made / "usr/empty").write_bytes(b"")
            packages.unpack(folder / "packages", folder / "tree", folder / "database")
            self.assertEqual(packages.regular_files(folder / "tree"), [folder / "tree/usr/one"])
            self.assertTrue((folder / "database/var/lib/dpkg/status").is_file())
            self.assertTrue((folder / "database/etc/os-release").is_file())


class Charts(unittest.TestCase):
    def test_no_text_lies_on_another_or_leaves_the_chart(self):
        lengths = settings.FBS.full.file_blocks
        counts = {("ext2", 128): {length: formulas.indirect_blocks(length) for length in lengths}}
        few = {inode: {length: 0 for length in lengths if length < 1038} for inode in metadata.INODES}
        rates = {state: {"read": [100.0, 110.0], "write": [90.0, 95.0]} for state in ("before", "after")}
        figure_5 = bonnie.section(dict.fromkeys(bonnie.KINDS, rates)).charts["fbs-figure-5.svg"]
        done = offline.Done(*range(1, 8))
        turns = {(side.key, state): [done] for side in offline.SIDES for state in ("cold", "warm")}
        for panels in (metadata.figure_6(lengths, counts, few), figure_5, offline.chart(turns, 6)):
            common.assert_texts_lie_apart(self, common.root_of(panels), panels[0].title)


class Documents(unittest.TestCase):
    def run_of(self):
        charts = {"chart.svg": [svg.BarPanel("title", "s", ["here"], [])]}
        section = Section("A section", ("what", "is"), [("one", 1)], ["A note."], charts, {"value": 1})
        return fbs.Run({"when": "then"}, settings.FBS.tiny, {"list-1": section}, ["table-2: lost"], ["figure-5: none"])

    def test_the_committed_document_can_be_updated(self):
        common.assert_takes_tables(self, fbs.PAGE, fbs.BEGIN)

    def test_an_update_writes_the_charts_that_the_document_links(self):
        links = common.assert_update_writes_linked_charts(self, lambda given: fbs.show(given, self.run_of()), fbs.BEGIN)
        self.assertEqual(links, ["figures/chart.svg"])

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
        self.cache = paths.folder(self)

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

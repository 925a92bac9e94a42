"""The rows about guest files, without a file system to measure."""

import json
import unittest
from pathlib import Path
from unittest import mock

import paths  # noqa: F401  it makes the next imports possible
import common
import files
from files_rows import calls, machines, rows, sets
from files_rows.calls import SharedRun, shared_runs
from files_rows.row import Pass, share
from guest_rows import made
from lib import settings
from lib.system import BenchError
from share_rows.maps import Extent

PAGE = calls.BLOCK_BYTES


def extent(offset, place, length):
    """Returns an extent, all in blocks."""
    return Extent(offset * PAGE, place * PAGE, length * PAGE)


def run(source, source_block, target, target_block, count):
    """Returns a run, all in blocks."""
    return SharedRun(source, source_block * PAGE, target, target_block * PAGE, count * PAGE)


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in settings.FILES:
            common.assert_told_apart(self, rows(chosen))

    def test_every_line_has_a_goal_and_those_beside_something_name_it(self):
        for row in rows(settings.FILES.full):
            for line in row.lines:
                self.assertTrue(line.goal, line.key)
                if line.goal.split(" ")[0].endswith("x"):
                    self.assertTrue(line.beside, line.key)

    def test_a_set_that_is_not_built_is_left_out_and_says_how_to_build_it(self):
        row = sets.SetRow(settings.FILES.full, "fbs", "report")
        with mock.patch.object(sets, "images_of", return_value=[Path("/nowhere/services-1.raw")]):
            why = row.why_not(settings.FILES.full)
        self.assertEqual(why, "services-1 of the set are not built: run `make corpus SETS=fbs`")

    def test_the_many_images_have_room_for_their_files(self):
        for chosen in settings.FILES:
            files = chosen.many_packages * made.FILES_OF_PACKAGE
            # Files of made-up packages are shorter than six blocks each.
            self.assertGreater(chosen.many_image_bytes, files * 6 * PAGE, chosen.mode)
            self.assertGreater(chosen.many_device_bytes, chosen.many_image_bytes)


class Document(unittest.TestCase):
    def test_the_committed_document_takes_the_table(self):
        common.assert_takes_tables(self, files.PAGE, files.FORM.begin)


class Share(unittest.TestCase):
    def told(self, **more):
        trouble = {"failed": [], "refused": [], "busy": []}
        return {"trouble": trouble, "shared": {"now_bytes": 1}} | more

    def share(self, told):
        finished = mock.Mock(text=json.dumps(told), seconds=1.0, cpu_seconds=1.0)
        with mock.patch("files_rows.row.system.run", return_value=finished):
            return share(mock.Mock(onefold="onefold"), "files", "/srv/vm")

    def test_a_pass_that_left_an_image_out_is_no_measurement(self):
        self.assertEqual(self.share(self.told(failed=[])).shared_bytes, 1)
        for kind in ("failed", "refused", "busy"):
            trouble = self.told()["trouble"] | {kind: ["a.raw"]}
            for told in (self.told(trouble=trouble), self.told(files=self.told(trouble=trouble))):
                with self.assertRaisesRegex(BenchError, "a.raw", msg=kind):
                    self.share(told)
        for told in (self.told(failed=["a.raw"]), self.told(files=self.told(failed=["a.raw"]))):
            with self.assertRaisesRegex(BenchError, "a.raw"):
                self.share(told)


class Machines(unittest.TestCase):
    def test_what_several_tiers_name_counts_once(self):
        tiers = [{"tier": number, "believed_bytes": 700} for number in (1, 2, 3)]
        packages = [{"package": name, "believed_bytes": 350} for name in ("tool 1 amd64", "files of no package")]
        self.assertEqual(machines.named_bytes({"tiers": tiers, "packages": packages}), 700)

    def test_a_pass_that_repeats_is_told_from_one_that_looks(self):
        def looks(unchanged, is_repeated, *expected):
            examined = {"images": 3, "unchanged_images": unchanged}
            machines.expect_looks(Pass({"examined": examined, "unchanged": is_repeated}, 1.0, 1.0), *expected)

        looks(3, True, 0, True)
        looks(3, False, 0, False)
        looks(2, False, 1, False)
        for wrong in ((2, True, 0, True), (3, False, 0, True), (3, True, 0, False), (3, False, 1, False)):
            with self.assertRaises(BenchError, msg=wrong):
                looks(*wrong)

    def test_another_side_begins_in_each_round(self):
        row = machines.MachinesRow(settings.FILES.full)
        firsts = []
        for round_no in range(3):
            begun = []
            sides = {name: (lambda *_, name=name: begun.append(name) or []) for name in ("_run", "_files", "_both")}
            with mock.patch.multiple(row, create=True, **sides):
                self.assertEqual(list(row.measure(mock.MagicMock(), settings.FILES.full, round_no)), [])
            firsts.append(begun[0])
            self.assertEqual(sorted(begun), sorted(sides))
        self.assertEqual(len(set(firsts)), 3)


class Runs(unittest.TestCase):
    def test_what_lies_where_it_lay_is_no_run(self):
        maps = {"a": [extent(0, 100, 8)], "b": [extent(2, 300, 4)]}
        self.assertEqual(shared_runs(maps, maps), [])

    def test_a_run_leads_from_who_lay_there_before_the_pass(self):
        before = {"a": [extent(0, 100, 8)], "b": [extent(0, 300, 8)]}
        after = {"a": before["a"], "b": [extent(0, 300, 2), extent(2, 102, 4), extent(6, 306, 2)]}
        self.assertEqual(shared_runs(before, after), [run("a", 2, "b", 2, 4)])

    def test_a_run_is_cut_where_its_source_ends_and_joined_where_both_go_on(self):
        before = {"a": [extent(0, 100, 2), extent(2, 200, 2)], "b": [extent(0, 102, 2)], "c": [extent(0, 300, 6)]}
        after = {**before, "c": [extent(0, 100, 4), extent(4, 200, 2)]}
        self.assertEqual(shared_runs(before, after), [run("a", 0, "c", 0, 2), run("b", 0, "c", 2, 2), run("a", 2, "c", 4, 2)])
        after = {**before, "c": [extent(0, 100, 2), extent(2, 200, 2), extent(4, 304, 2)]}
        self.assertEqual(shared_runs(before, after), [run("a", 0, "c", 0, 4)])

    def test_a_copy_to_a_place_of_its_own_and_a_hole_are_no_runs(self):
        before = {"a": [extent(0, 100, 4)], "b": [extent(0, 300, 4), extent(8, 400, 2)]}
        after = {"a": [extent(0, 100, 4)], "b": [extent(0, 500, 2), extent(3, 303, 1), extent(8, 101, 2)]}
        self.assertEqual(shared_runs(before, after), [run("a", 1, "b", 8, 2)])

    def test_what_was_a_hole_may_share_now(self):
        before = {"a": [extent(0, 100, 4)], "b": [extent(4, 300, 1)]}
        after = {"a": [extent(0, 100, 4)], "b": [extent(0, 100, 4), extent(4, 300, 1)]}
        self.assertEqual(shared_runs(before, after), [run("a", 0, "b", 0, 4)])


if __name__ == "__main__":
    unittest.main()

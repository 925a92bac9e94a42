"""The rows about guest files, without a file system to measure."""

import unittest
from pathlib import Path
from unittest import mock

import paths  # noqa: F401  it makes the next imports possible
from files_rows import calls, rows, sets
from files_rows.calls import SharedRun, shared_runs
from files_rows.row import share
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
            known = rows(chosen)
            keys = [line.key for row in known for line in row.lines]
            self.assertEqual((len({row.name for row in known}), len(set(keys))), (len(known), len(keys)))

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


class Share(unittest.TestCase):
    def test_a_pass_that_failed_on_an_image_is_no_measurement(self):
        programs = mock.Mock(onefold="onefold")
        text = '{"failed": ["a.raw"], "trouble": {"failed": []}, "shared": {"now_bytes": 1}}'
        finished = mock.Mock(text=text, seconds=1.0, cpu_seconds=1.0)
        with mock.patch("files_rows.row.system.run", return_value=finished):
            with self.assertRaisesRegex(BenchError, "a.raw"):
                share(programs, "files", "/srv/vm")


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

"""The rows about guests, without a program to measure."""

import os
import subprocess
import sys
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import paths  # it makes the next imports possible
import common
import guest  # noqa: I001
from guest_rows import allocation, analysis, images, looks, made, packages, programs, rows
from guest_rows.images import Images
from guest_rows.row import GuestRow
from lib import device, report, settings
from lib.measure import Measured, NotMeasured, Sample
from lib.rows import beside
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, alternating
from lib.runner import Run
from lib.system import BenchError

MIB = 1 << 20
TINY, FULL = (replace(chosen, onefold=Path("/bin/true")) for chosen in (settings.GUEST.tiny, settings.GUEST.full))


class Rows(unittest.TestCase):
    def test_names_of_rows_and_keys_of_lines_are_told_apart(self):
        for chosen in settings.GUEST:
            common.assert_told_apart(self, rows(chosen))

    def test_every_line_has_a_goal_and_those_beside_a_program_name_it(self):
        for row in rows(settings.GUEST.full):
            for line in row.lines:
                self.assertTrue(line.goal, line.key)
                self.assertEqual("x" in line.goal.split(" ")[0], bool(line.beside), line.key)

    def test_a_row_without_its_program_is_left_out_and_says_which(self):
        with mock.patch("lib.rows.beside.shutil.which", lambda _: None):
            self.assertEqual(looks.VirtLsRow(FULL).why_not(FULL), "there is no virt-ls")
            why = allocation.AllocationRow(TINY, "ntfs").why_not(TINY)
            self.assertEqual(why, "there is no ntfscluster and no mkntfs and no ntfs-3g")
        with mock.patch("lib.rows.beside.shutil.which", lambda program: program):
            self.assertIsNone(looks.VirtLsRow(FULL).why_not(FULL))
            self.assertEqual(looks.VirtLsRow(TINY).why_not(TINY), "a virtual machine starts for it")

    def test_a_scan_that_sleeps_is_compared_by_its_processor_time(self):
        scans = {row.name: row for row in rows(FULL) if isinstance(row, allocation.ScanRow)}
        names = ["scan-ext4-processor", "scan-ntfs", "scan-ntfs-processor", "scan-xfs-processor"]
        self.assertEqual(sorted(scans), names)
        known = programs.Timed(seconds=2.5, cpu_seconds=0.25, memory_bytes=1, read_bytes=2)
        for name, expected in (("scan-ntfs", 2500), ("scan-ntfs-processor", 250)):
            row = scans[name]
            with mock.patch.object(allocation, "from_memory", return_value=[(OTHER, known)]) as measured:
                made = mock.Mock(folder=Path("/work"))
                ((key, side, sample),) = row.measure(made, FULL, 0)
            self.assertEqual((key, side, sample.value), (name, OTHER, expected))
            self.assertEqual(measured.call_args.args[3][:3], (made.programs.synthetic, "guest", "bitmaps"))
            self.assertEqual(measured.call_args.args[4][0], row.scan.program)
            self.assertEqual("processor" in row.lines[0].unit, name.endswith("processor"))

    def test_the_desktop_is_left_out_where_it_is_not_built(self):
        row = packages.DesktopPackagesRow(TINY)
        self.assertIn("make corpus SETS=vdi", row.why_not(TINY))
        self.assertIsNone(row.why_not(replace(TINY, desktop=Path("desktop.raw"))))

    def test_an_analysis_without_files_is_left_out(self):
        row = analysis.FilesOfAnalysisRow(TINY)
        for text, is_left_out in (("  --groups\n", True), ("  --files  the files of shared bytes\n", False)):
            with mock.patch.object(analysis.system, "run", return_value=mock.Mock(text=text)):
                self.assertEqual(row.why_not(TINY) is not None, is_left_out)

    def test_another_side_begins_in_each_round(self):
        self.assertEqual([alternating(number, 1, 2) for number in range(3)], [(1, 2), (2, 1), (1, 2)])

    def test_what_images_take_fits_what_is_asked_for(self):
        for chosen in settings.GUEST:
            self.assertGreater(guest.needed_bytes(chosen), 6 * chosen.made_bytes)
            self.assertGreater(guest.needed_bytes(chosen), 2 * chosen.large_bytes)

    def test_lengths_are_told_in_their_largest_unit(self):
        found = [allocation.amount(length) for length in (2 << 40, 4 << 30, 1536 << 20, 4096, 1)]
        self.assertEqual(found, ["2 TiB", "4 GiB", "1536 MiB", "4 KiB", "1 bytes"])


class Timed(unittest.TestCase):
    def test_what_a_program_takes_is_its_own(self):
        known = programs.timed("sh", "-c", "head -c 1000000 /dev/zero; sleep 0.05")
        self.assertGreater(known.seconds, 0.05)
        self.assertLess(known.cpu_seconds, known.seconds)
        sample = known.sample(1000)
        self.assertAlmostEqual(sample.value, 1000 * known.seconds)

    def test_what_its_calls_read_and_its_memory_are_counted(self):
        known = programs.timed(sys.executable, "-c", "held = b'x' * (80 << 20); open('/dev/zero', 'rb').read(5 << 20)")
        self.assertGreater(known.read_bytes, 5 * MIB)
        self.assertGreater(known.memory_bytes, 80 * MIB)

    def test_a_program_that_fails_or_is_missing_says_so(self):
        with self.assertRaisesRegex(BenchError, "failed with 3: no such guest"):
            programs.timed("sh", "-c", "echo no such guest >&2; exit 3")
        with self.assertRaisesRegex(BenchError, "cannot run .*onefolt"):
            programs.timed("/nowhere/onefolt")

    def test_a_program_that_does_not_end_is_killed(self):
        with mock.patch.object(programs.system, "COMMAND_SECONDS_MAX", 0.1):
            with self.assertRaisesRegex(BenchError, "did not end"):
                programs.timed("sleep", "60")

    def test_the_median_of_several_runs_counts(self):
        runs = iter(programs.Timed(seconds, 0, 0, 0) for seconds in (3.0, 1.0, 2.0))
        self.assertEqual(programs.median(3, lambda: next(runs)).seconds, 2.0)


class Files(unittest.TestCase):
    def test_a_part_of_an_image_keeps_its_holes(self):
        folder = paths.disk_folder(self)
        with open(folder / "whole", "wb") as file:
            file.write(b"a" * MIB)
            file.seek(8 * MIB)
            file.write(b"b" * MIB)
            file.truncate(16 * MIB)
        images.cut_out(folder / "whole", folder / "part", MIB // 2, 8 * MIB)
        content = (folder / "part").read_bytes()
        self.assertEqual(len(content), 8 * MIB)
        self.assertEqual((content[: MIB // 2], content[-MIB // 2 :]), (b"a" * (MIB // 2), b"b" * (MIB // 2)))
        self.assertFalse(any(content[MIB // 2 : -MIB // 2]))
        self.assertLess(os.stat(folder / "part").st_blocks * 512, 2 * MIB)

    def test_a_file_without_data_has_no_ranges(self):
        folder = paths.disk_folder(self)
        with open(folder / "hole", "w+b") as file:
            file.truncate(MIB)
            self.assertEqual(list(programs.data_ranges(file)), [])

    def test_a_root_in_several_pieces_or_nowhere_is_refused(self):
        def told(*ranges):
            volume = {"volume": "partition 1", "ranges": list(ranges)}
            systems = [{"mounts": [{"path": "/", "volume": "partition 1"}]}]
            return {"images": [{"systems": systems if ranges else [], "volumes": [volume]}]}

        looked = Images(Path("/nowhere"), mock.Mock(), TINY)
        looked.programs.guest.return_value = told([512, 1024])
        self.assertEqual(looked._root_range(), [512, 1024])
        for ranges in ([], [[0, 512], [1024, 512]]):
            looked.programs.guest.return_value = told(*ranges)
            with self.assertRaisesRegex(BenchError, "no root file system in one piece"):
                looked._root_range()

    def test_the_records_of_a_made_up_package_are_of_its_files(self):
        folder = paths.disk_folder(self)
        for name in ("usr/share", "var/lib/dpkg/info"):
            (folder / name).mkdir(parents=True)
        made.package(folder, "thing")
        sums = (folder / "var/lib/dpkg/info/thing.md5sums").read_text(encoding="ascii").splitlines()
        listed = (folder / "var/lib/dpkg/info/thing.list").read_text(encoding="ascii").splitlines()
        self.assertEqual(len(sums), made.FILES_OF_PACKAGE)
        checked = subprocess.run(["md5sum", "--check", "--quiet"], cwd=folder, input="\n".join(sums) + "\n", text=True)
        self.assertEqual(checked.returncode, 0)
        self.assertTrue(all((folder / path.lstrip("/")).exists() for path in listed))

    def test_a_loop_device_that_goes_by_itself_is_no_failure(self):
        found = iter((["/dev/loop9"], []))
        gone = BenchError("detach failed: No such device or address")
        with mock.patch.multiple(
            device, loops_of=lambda _: next(found), wait_until_unused=mock.Mock(),
            cgroup=mock.Mock(), system=mock.Mock(BenchError=BenchError, run=mock.Mock(side_effect=gone)),
        ):  # fmt: skip
            device.detach_loops(Path("image.device"))
        with mock.patch.multiple(
            device, loops_of=lambda _: ["/dev/loop9"], wait_until_unused=mock.Mock(),
            cgroup=mock.Mock(), system=mock.Mock(BenchError=BenchError, run=mock.Mock(side_effect=gone)),
        ):  # fmt: skip
            with self.assertRaisesRegex(BenchError, "detach failed"):
                device.detach_loops(Path("image.device"))

    def test_the_web_server_comes_first(self):
        found = guest.first_of([Path("debian-12-base.raw"), Path("debian-12-web.raw"), Path("debian-13-base.raw")])
        self.assertEqual([image.stem for image in found], ["debian-12-web", "debian-12-base", "debian-13-base"])


class Packages(unittest.TestCase):
    def test_an_image_without_digests_is_a_failure(self):
        row, looked = packages.PackagesRow(TINY), mock.Mock()
        looked.programs.guest.return_value = {"packages": [{"files": [{"digest": None}]}]}
        with mock.patch.object(packages, "warm"), self.assertRaisesRegex(BenchError, "no packages with digests"):
            list(row.measure(looked, TINY, 0))

    def test_paths_are_counted_for_each_second(self):
        row, looked = packages.PackagesRow(TINY), mock.Mock()
        looked.programs.guest.return_value = {"packages": [{"files": [{"digest": "aa"}, {"digest": None}]}] * 5}
        known = programs.Timed(0.5, 0, 0, 0)
        with mock.patch.object(packages, "warm"), mock.patch.object(packages, "timed", return_value=known):
            [(key, side, sample)] = row.measure(looked, TINY, 0)
        self.assertEqual((key, side, sample.value), ("packages", ONEFOLD, 20.0))


class OneRow(GuestRow):
    name = "one"

    def make_lines(self, settings):
        yield BesideLine("one", "a thing", "ms", False, "1x / 3x", beside="another program")


class Table(unittest.TestCase):
    def test_the_other_program_stands_beside_its_figure(self):
        result = Measured(OneRow(TINY).lines[0])
        result.add(ONEFOLD, Sample(2.0))
        self.assertEqual(self.cells(result), ["2.00 ms (2.00-2.00)", "", "", "1x / 3x"])
        result.add(OTHER, Sample(6.0))
        self.assertEqual(self.cells(result)[1:3], ["6.00 ms (6.00-6.00), another program", "3.00x (3.00-3.00)"])

    def cells(self, result):
        return [text(result) for _, text in beside.COLUMNS]

    def test_a_row_that_is_left_out_stands_in_the_table_with_the_reason_below(self):
        run = Run({"images": "none"}, TINY)
        run.measured.append((OneRow(TINY), NotMeasured("not measured", "there is no virt-ls")))
        text = report.markdown(run, guest.FORM)
        self.assertIn("| a thing | not measured |", text)
        self.assertIn("- one: not measured: there is no virt-ls.", text)

    def test_the_documents_markers_are_those_of_the_program(self):
        common.assert_takes_tables(self, guest.PAGE, guest.FORM.begin)


if __name__ == "__main__":
    unittest.main()

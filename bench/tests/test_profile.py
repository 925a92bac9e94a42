"""Profiles of what is measured."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import paths  # noqa: F401: it makes the next import possible
from lib.profile import Profiler, share_of_lines, time_between
from lib.system import BenchError


class Times(unittest.TestCase):
    def test_shares_of_the_time_are_told_by_the_second(self):
        text = time_between((10.0, 1.0, 2.0, 3.0), (14.0, 7.0, 2.0, 4.0))
        self.assertIn("4.00 s", text)
        self.assertIn("1.50 were busy, 0.25 idle with a request at the disk, 0.00 idle", text)

    def test_functions_count_with_all_that_they_call(self):
        report = """# Children  Symbol
            7.10%  [.] main
            0.12%  [.] onefold_block::polling::Polling::slept
            0.30%  [.] onefold_block::polling::Polling::look
            0.04%  [k] __x64_sys_sched_yield
        """
        self.assertAlmostEqual(share_of_lines(report, ("Polling::look", "Polling::slept")), 0.0042)
        self.assertEqual(share_of_lines(report, ("Polling::begin",)), 0)

    def test_a_program_without_symbols_is_an_error_and_not_nothing(self):
        with self.assertRaisesRegex(BenchError, "stripped"):
            share_of_lines("    7.10%  [.] 0x0000000000001234\n", ("Polling::look",))


@unittest.skipUnless(shutil.which("perf") and os.geteuid() == 0, "needs root and perf")
class Profiles(unittest.TestCase):
    def test_a_profile_names_the_program_that_was_busy(self):
        with tempfile.TemporaryDirectory() as folder:
            profiler = Profiler(Path(folder) / "profiles")
            profiler.row = "busy"
            with profiler.around("side"):
                subprocess.run([sys.executable, "-c", "sum(range(30_000_000))"], check=True)
            text = (Path(folder) / "profiles" / "busy-side-01.txt").read_text(encoding="utf-8")
        self.assertIn("python", text)
        self.assertRegex(text, r"^\d+\.\d\d s; of \d+ processors")


if __name__ == "__main__":
    unittest.main()

"""What the tests of whole runs share: a program of the benchmarks runs at the tiniest size and leaves nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import paths

ONEFOLD = os.environ.get("ONEFOLD")
SYNTHETIC = os.environ.get("ONEFOLD_SYNTHETIC") or (ONEFOLD and Path(ONEFOLD).with_name("onefold-synthetic"))
PATIENCE_S = 60


def needs_root_and_onefold(test_case):
    """Skips the tests of a class where they cannot mount, or have no program to measure."""
    told = "needs root, and ONEFOLD to name the program to measure"
    return unittest.skipUnless(ONEFOLD and os.geteuid() == 0, told)(test_case)


def needs_synthetic(test_case):
    """Skips the tests of a class where the maker of large pools was not built."""
    is_there = SYNTHETIC and os.access(SYNTHETIC, os.X_OK)
    return unittest.skipUnless(is_there, "needs onefold-synthetic beside it")(test_case)


def needs_programs(*names):
    """Skips the tests of a class where one of the programs is missing."""
    return unittest.skipUnless(all(map(shutil.which, names)), f"needs {', '.join(names)}")


class WholeRunCase(unittest.TestCase):
    """A test case with a folder on a disk, in which it starts `program` of the benchmarks."""

    program = None

    def setUp(self):
        self.folder = paths.disk_folder(self)

    def start(self, *words):
        command = [sys.executable, paths.BENCH / self.program, "--tiny", "--dir", self.folder, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_to_its_end(self, *words, code=0):
        """Returns what a run wrote to standard output, and to standard error."""
        process = self.start(*words)
        out, err = process.communicate()
        self.assertEqual(process.returncode, code, err)
        return out, err

    def document(self, name):
        """Returns what a run wrote down."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def assert_measured(self, name, side="onefold"):
        """Claims that a run is complete and has samples of a side for each line; returns the rows that it left out."""
        document = self.document(name)
        self.assertTrue(document["complete"])
        measured = [row for row in document["rows"].values() if "lines" in row]
        lines = [line for row in measured for line in row["lines"].values()]
        self.assertTrue(lines and all(line["samples"][side] for line in lines))
        return {name for name, row in document["rows"].items() if "lines" not in row}

    def interrupt_once(self, is_under_way, *words):
        """Starts a run, interrupts it once that is so, and looks that it leaves nothing behind."""
        process = self.start(*words)
        wait_until(is_under_way)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assert_nothing_is_left()

    def is_mounted(self):
        return str(self.folder) in mounts()

    def assert_nothing_is_left(self):
        self.assertFalse((self.folder / "work").exists())
        self.assertNotIn(str(self.folder), mounts())
        # The client of an interrupted run may be in the middle of a request; its loop device goes when that ends.
        wait_until(lambda: str(self.folder) not in loop_devices())


def mounts():
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")


def loop_devices():
    """Returns the files behind loop devices."""
    words = ("losetup", "--list", "--noheadings", "--output", "BACK-FILE")
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError("the run does not get that far")
        time.sleep(0.05)

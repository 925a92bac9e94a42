"""A whole run of the tiniest size, as root where there is a program to measure; no figure is looked at."""

import os
import signal
import time
import unittest
from pathlib import Path

import whole  # it makes the next import possible
from lib import cgroup  # noqa: I001
from lib.profile import why_no_samples
from whole import wait_until


@whole.needs_root_and_onefold
class WholeRun(whole.WholeRunCase):
    program = "run.py"

    def test_every_row_can_be_measured(self):
        image = self.folder / "image.raw"
        image.write_bytes(os.urandom(4 << 20))
        out, err = self.run_to_its_end("--image", image)
        self.assertNotIn("| failed |", out)
        document = self.document("last.json")
        self.assertTrue(document["complete"])
        # The image is none that boots.
        expected = {"boot", "boots", "boots-direct"} | ({"polling"} if why_no_samples() else set())
        left_out = {name for name, row in document["rows"].items() if "why" in row}
        self.assertEqual(left_out, expected, err)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        for signal_no in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--only", "random-write", "--rounds", "100")
            wait_until_mounted(self.folder)
            time.sleep(1)
            process.send_signal(signal_no)
            _, err = process.communicate()
            self.assertEqual(process.returncode, 130, err)
            self.assert_nothing_is_left()

    def test_a_daemon_that_dies_fails_its_row_and_the_next_is_measured(self):
        process = self.start("--only", "fsync-write-1", "--only", "clone", "--rounds", "1")
        wait_until_mounted(self.folder)
        os.kill(daemon_of(self.folder), signal.SIGKILL)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("fsync-write-1: failed", out)
        self.assertNotIn("clone: failed", out)
        self.assert_nothing_is_left()

    def test_what_a_killed_run_left_is_cleared_by_the_next(self):
        process = self.start("--only", "random-write", "--rounds", "100")
        wait_until_mounted(self.folder)
        process.kill()
        process.communicate()
        self.assert_the_next_run_clears_up()

    @unittest.skipUnless(cgroup.why_missing("memory") is None, "needs control groups")
    def test_control_groups_of_a_killed_run_are_cleared_by_the_next(self):
        process = self.start("--only", "beyond-memory", "--rounds", "100")
        group = cgroup.find("memory").root / cgroup.name_for(self.folder / "work" / "ext4.device")
        wait_until(group.exists)
        process.kill()
        process.communicate()
        self.assertTrue(group.exists())
        self.assert_the_next_run_clears_up()
        self.assertFalse(group.exists())

    def assert_the_next_run_clears_up(self):
        self.run_to_its_end("--only", "clone")
        self.assert_nothing_is_left()


def wait_until_mounted(folder):
    wait_until(lambda: f"{folder}/work/ext4.mount" in Path("/proc/self/mountinfo").read_text("utf-8", "replace"))


def daemon_of(folder):
    """Returns the process whose command line names the pool's device in this folder."""
    wanted = f"{folder}/work/pool.device".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and b"mount" in words:
            return int(path.parent.name)
    raise AssertionError("there is no daemon")


if __name__ == "__main__":
    unittest.main()

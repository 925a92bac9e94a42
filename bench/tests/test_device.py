"""The loop devices of a run."""

import os
import shutil
import subprocess
import time
import unittest
from unittest import mock

import paths  # it makes the next imports possible
from lib import device, system  # noqa: I001
from lib.ext4_sides import Ext4Side
from lib.place import Place

DISK_BYTES = 16 << 20
# How long the namespace keeps what it has.
HELD_SECONDS = 0.7


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "needs root and unshare")
class MountedElsewhere(unittest.TestCase):
    def setUp(self):
        self.side = Ext4Side(Place(paths.disk_folder(self)))
        self.addCleanup(self.side.close)
        self.side.device.touch()
        os.truncate(self.side.device, DISK_BYTES)
        try:
            self.side.mountpoint.mkdir(exist_ok=True)
            self.side.format()
            self.side.mount()
        except system.BenchError as error:
            self.skipTest(f"no ext4 can be mounted here: {error}")

    def hold(self, seconds):
        """Has another mount namespace keep the file system mounted for so long."""
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"echo; exec sleep {seconds}"]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.addCleanup(holder.communicate)
        self.addCleanup(holder.kill)
        holder.stdout.readline()

    def test_a_disk_is_given_up_only_when_no_namespace_has_it_mounted(self):
        # A benchmark made a new file system on a file to which an older one was still writing.
        self.hold(HELD_SECONDS)
        started = time.monotonic()
        self.side.close()
        self.assertGreater(time.monotonic() - started, HELD_SECONDS / 2)
        found = system.run("losetup", "--noheadings", "--associated", self.side.device).text
        self.assertEqual(found.strip(), "")

    def test_an_unmount_ends_when_the_file_system_is_gone(self):
        self.hold(HELD_SECONDS)
        started = time.monotonic()
        self.side.unmount()
        self.assertGreater(time.monotonic() - started, HELD_SECONDS / 2)

    def test_one_that_stays_mounted_elsewhere_is_an_error(self):
        self.hold(60)
        with mock.patch.object(device, "ELSEWHERE_SECONDS_MAX", 0.2):
            with self.assertRaisesRegex(system.BenchError, "still mounted elsewhere"):
                self.side.unmount()


if __name__ == "__main__":
    unittest.main()

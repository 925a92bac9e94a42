"""Control groups of both versions, in folders that stand for the kernel's, and where there is a kernel that lets us."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import paths  # noqa: F401
from lib import cgroup
from lib.system import BenchError

MEMORY = 32 << 20


class Finding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "root"
        self.root.mkdir()
        self.mounts = Path(folder.name) / "mounts"

    def mount(self, kind, options):
        lines = ("1 1 8:1 / / rw - ext4 /dev/vda rw", f"2 1 0:9 / {self.root} rw - {kind} cgroup {options}")
        self.mounts.write_text("\n".join(lines) + "\n")

    def test_version_1_is_found_by_the_mounts_options(self):
        self.mount("cgroup", "rw,blkio")
        self.assertEqual(cgroup.find("blkio", self.mounts), cgroup.Hierarchy(self.root, unified=False))
        self.assertIsNone(cgroup.find("memory", self.mounts))

    def test_version_2_is_found_by_its_list_where_blkio_is_called_io(self):
        self.mount("cgroup2", "rw")
        self.assertIsNone(cgroup.find("memory", self.mounts))
        (self.root / "cgroup.controllers").write_text("cpu io memory\n")
        for controller in ("memory", "blkio"):
            self.assertEqual(cgroup.find(controller, self.mounts), cgroup.Hierarchy(self.root, unified=True))

    def test_a_group_of_version_2_enables_only_what_is_not_enabled_yet(self):
        (self.root / "cgroup.subtree_control").write_text("cpu memory\n")
        group = cgroup.Group(cgroup.Hierarchy(self.root, unified=True), "group", ["memory", "io"])
        self.assertEqual((self.root / "cgroup.subtree_control").read_text(), "+io\n")
        group.limit("io.max", "7:0 wbps=1")
        self.assertEqual((self.root / "group" / "io.max").read_text(), "7:0 wbps=1\n")

    def test_a_limit_that_the_kernel_refuses_is_an_error_that_names_the_file(self):
        group = cgroup.Group(cgroup.Hierarchy(self.root, unified=False), "group", [])
        with self.assertRaisesRegex(BenchError, "no-folder/limit"):
            group.limit("no-folder/limit", 1)


@unittest.skipUnless(os.geteuid() == 0 and cgroup.why_missing("memory") is None, "needs root and control groups")
class Memory(unittest.TestCase):
    def test_who_joins_has_no_more_than_the_limit(self):
        group = cgroup.LimitedMemory(f"onefold-bench-test-{os.getpid()}", MEMORY)
        self.addCleanup(group.close)
        self.assertFalse(group.was_short())
        # A file larger than the limit goes through the page cache; memory of its own that is larger does not fit. Written
        # through: a group of version 1 does not wait for a busy disk to take dirty pages, and is killed for having them.
        with tempfile.NamedTemporaryFile(dir=paths.BENCH) as file:
            command = ["dd", "if=/dev/zero", f"of={file.name}", "bs=1M", f"count={2 * MEMORY >> 20}", "oflag=dsync"]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL, preexec_fn=group.join)
        self.assertTrue(group.was_short())
        command = [sys.executable, "-c", f"bytearray({2 * MEMORY}).count(1)"]
        self.assertNotEqual(subprocess.run(command, check=False, preexec_fn=group.join).returncode, 0)

    def test_a_group_goes_while_somebody_is_in_it_and_somebody_else_is_just_ending(self):
        """A daemon of a gigabyte was still giving its memory back when its group was to go: it was busy."""
        group = cgroup.LimitedMemory(f"onefold-bench-test-{os.getpid()}", 1 << 30)
        fill = "x = bytearray(300 << 20); x[::4096] = bytes(len(x) // 4096); print(flush=True); input()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "preexec_fn": group.join}
        command = [sys.executable, "-c", fill]
        with subprocess.Popen(command, **pipes) as ends, subprocess.Popen(["cat"], **pipes) as stays:
            ends.stdout.readline()
            ends.kill()
            group.close()
            self.assertFalse(group.path.exists())
            self.assertIsNone(stays.poll())
            stays.stdin.close()


if __name__ == "__main__":
    unittest.main()

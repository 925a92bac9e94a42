"""The trial can say no: a file that came back as another one, a disk that is unsound, an image that is lost."""

import collections
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import kills
import trial
import volumes
from disks import Disks, can_boot, expect_sums
from kills import Kills
from lib import Failed, run
from volumes import Look, Volume, compare, files_below, put_together

# Stands for the program: its exports and lists are files beside it.
PROGRAM = """#!/bin/bash
here=$(dirname "$0")
case "$1 $2" in
    'archive check') [[ -e $here/sound ]] ;;
    'image list') cat "$here/list" ;;
    'image export') cat "$here/export" ;;
    'image slow') sleep 60 ;;
    'image panics') echo "thread 'main' panicked at here" >&2; exit 101 ;;
esac
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Comparing(Folder):
    def look(self, verdict=0, **files):
        return {"partition 1": Look("ext4", verdict, "said", files)}

    def test_what_came_back_whole_is_counted(self):
        self.assertEqual(compare("web", self.look(a="1", b="2"), self.look(a="1", b="2")), (1, 2))

    def test_every_difference_is_a_failure(self):
        before = self.look(a="1", b="2")
        others = {
            "another file": self.look(a="1", b="3"),
            "a missing file": self.look(a="1"),
            "a file more": self.look(a="1", b="2", c="3"),
            "an unsound file system": self.look(verdict=4, a="1", b="2"),
            "another kind": {"partition 1": Look("xfs", 0, "", {"a": "1", "b": "2"})},
            "no volume": {},
        }
        for what, after in others.items():
            with self.assertRaises(Failed, msg=what):
                compare("web", before, after)

    def test_a_disk_of_which_nothing_can_be_checked_proves_nothing(self):
        with self.assertRaisesRegex(Failed, "no file system"):
            compare("web", {}, {})
        with self.assertRaisesRegex(Failed, "no files"):
            compare("web", self.look(), self.look())

    def test_content_rights_and_times_of_files_count(self):
        path = self.folder / "tree" / "file"
        path.parent.mkdir()
        path.write_bytes(b"content")
        (self.folder / "tree" / "link").symlink_to("file")
        before = files_below(path.parent)
        self.assertEqual(set(before), {"file", "link"})
        times = path.stat()
        path.write_bytes(b"contenT")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertNotEqual(files_below(path.parent)["file"], before["file"])
        path.write_bytes(b"content")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.assertEqual(files_below(path.parent), before)
        path.chmod(0o600 if times.st_mode & 0o777 != 0o600 else 0o644)
        self.assertNotEqual(files_below(path.parent)["file"], before["file"])

    def test_a_volume_in_pieces_is_put_together_in_its_order(self):
        disk, target = self.folder / "disk", self.folder / "volume"
        disk.write_bytes(b"0123456789")
        put_together(disk, ((6, 3), (1, 2)), target)
        self.assertEqual(target.read_bytes(), b"67812")
        with self.assertRaises(Failed):
            put_together(disk, ((8, 3),), target)

    def test_volumes_without_a_checker_are_left_out(self):
        told = '{"images": [{"volumes": [{"volume": "p1", "holds": "ext4", "ranges": [[512, 1024]]}, ' \
               '{"volume": "p2", "holds": "something unknown", "ranges": [[0, 512]]}]}]}'
        with mock.patch.object(volumes, "call", return_value=told):
            self.assertEqual(volumes.volumes_of("onefold", "disk"), [Volume("p1", "ext4", ((512, 1024),))])

    def test_a_file_system_that_onefold_does_not_read_is_checked_all_the_same(self):
        told = '{"images": [{"volumes": [{"volume": "p1", "holds": "Btrfs, UUID 1a1f", "ranges": [[512, 1024]]}]}]}'
        with mock.patch.object(volumes, "call", return_value=told):
            self.assertEqual(volumes.volumes_of("onefold", "disk"), [Volume("p1", "btrfs", ((512, 1024),))])


class Trips(Folder):
    def test_bytes_have_to_add_up(self):
        captured = {"image": "web@1", "size_bytes": 10, "free_bytes": 3, "zero_bytes": 3, "data_bytes": 4}
        expect_sums(captured, 10)
        for wrong in ({"data_bytes": 5}, {"size_bytes": 11}):
            with self.assertRaises(Failed):
                expect_sums(captured | wrong, 10)

    def test_targets_are_noise_to_the_last_byte(self):
        with mock.patch("disks.call"):
            disks = Disks("onefold", self.folder, random.Random(1), collections.Counter())
        disks.fill_with_noise((16 << 20) + 1000)
        noise = disks.target.read_bytes()
        self.assertEqual(len(noise), (16 << 20) + 1000)
        self.assertTrue(all(any(noise[at : at + 512]) for at in range(0, len(noise), 512)))

    def test_a_disk_that_does_not_boot_twice_is_a_failure(self):
        with mock.patch("disks.call"):
            disks = Disks("onefold", self.folder, random.Random(1), collections.Counter())
        for fails, expected in ((0, (1, 0)), (1, (1, 1))):
            disks.counts.clear()
            with mock.patch("disks.BOOT", self.booting(fails)):
                disks.boot()
            self.assertEqual((disks.counts["boots"], disks.counts["second tries"]), expected)
        with mock.patch("disks.BOOT", self.booting(2)), self.assertRaises(Failed):
            disks.boot()

    def booting(self, fails):
        """Returns a program that fails so often, then succeeds."""
        program = self.folder / f"boot-{fails}"
        left = self.folder / f"left-{fails}"
        left.write_text("x" * fails, encoding="utf-8")
        program.write_text(f"#!/bin/sh\n[ -s {left} ] || exit 0\ntruncate -s -1 {left}\nexit 1\n", encoding="utf-8")
        program.chmod(0o755)
        return program

    def test_only_debian_12_with_a_boot_loader_boots(self):
        sector = b"code" + bytes(506) + b"\x55\xaa"
        for name, content, boots in (
            ("debian-12-base.raw", sector, True),
            ("debian-13-base.raw", sector, False),
            ("debian-12-lvm.raw", bytes(510) + b"\x55\xaa", False),
            ("debian-12-web.raw", bytes(512), False),
        ):
            image = self.folder / name
            image.write_bytes(content)
            self.assertEqual(can_boot(image), boots, name)


class Killing(Folder):
    def setUp(self):
        super().setUp()
        self.onefold = self.folder / "onefold"
        self.onefold.write_text(PROGRAM, encoding="utf-8")
        self.onefold.chmod(0o755)
        self.write("sound", "")
        self.write("list", "IMAGE SIZE\nweb@1 5 GiB\n")
        self.write("export", "the disk")
        with mock.patch.object(kills, "make_guests", return_value=[]):
            self.kills = Kills(self.onefold, self.folder, random.Random(1), collections.Counter())
        self.kills.acknowledged = {"web@1": self.kills.exported("web@1")}

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def test_a_whole_archive_passes(self):
        self.kills.expect_whole("nothing")
        self.assertEqual(self.kills.counts["looks"], 1)

    def test_a_lost_a_new_and_a_changed_image_and_damage_are_failures(self):
        for name, text in (("list", "IMAGE\n"), ("list", "web@1\nweb@2\n"), ("export", "another disk")):
            before = (self.folder / name).read_text(encoding="utf-8")
            self.write(name, text)
            with self.assertRaisesRegex(Failed, "killed"):
                self.kills.expect_whole("it was killed")
            self.write(name, before)
        (self.folder / "sound").unlink()
        with self.assertRaises(Failed):
            self.kills.expect_whole("it was killed")

    def test_a_removal_that_was_acknowledged_holds(self):
        self.kills.acknowledged |= {"b@1": "", "c@1": ""}
        self.write("list", "web@1\nb@1\nc@1\n")
        with mock.patch.object(self.kills, "killed", return_value=(True, "`rm`")):
            with self.assertRaisesRegex(Failed, "removed, and is listed"):
                self.kills.rm()
        with mock.patch.object(self.kills, "killed", return_value=(False, "`rm`")):
            self.kills.rm()
        self.assertEqual(len(self.kills.acknowledged), 3)

    def test_killed_ones_are_told_from_those_that_ended_and_panics_are_failures(self):
        self.kills.seconds = {"slow": 0.05, "list": 0.01, "panics": 5}
        self.assertFalse(self.kills.killed("slow", (self.onefold, "image", "slow"))[0])
        self.kills.seconds["list"] = 50
        with mock.patch.object(self.kills.dice, "uniform", return_value=20):
            self.assertTrue(self.kills.killed("list", (self.onefold, "image", "list"))[0])
            with self.assertRaisesRegex(Failed, "panicked"):
                self.kills.killed("panics", (self.onefold, "image", "panics"))
        self.assertEqual((self.kills.counts["kills"], self.kills.counts["ends"]), (1, 1))
        self.assertLess(self.kills.seconds["list"], 20)

    def test_verbs_that_a_build_lacks_are_left_out(self):
        self.assertNotIn("gc", self.kills.verbs)
        help_text = subprocess.CompletedProcess([], 0, "Commands:\n  gc      Collect\n", "")
        with mock.patch.object(kills, "make_guests", return_value=[]), \
                mock.patch.object(kills, "call", return_value=help_text.stdout):
            self.assertIn("gc", Kills("onefold", self.folder, random.Random(1), collections.Counter()).verbs)


class Arguments(unittest.TestCase):
    def test_parts_and_images_are_looked_at_first(self):
        for words in (["--parts", "nothing"], ["--parts", "disks"], ["--images", "/nowhere/a.raw"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr"):
                trial.parse(["--onefold", "o", *words])
        self.assertEqual(trial.parse(["--onefold", "o", "--parts", "kills"]).kills, 300)

    def test_what_a_tool_says_in_bytes_is_kept(self):
        self.assertEqual(run(["printf", r"\377"], is_text=False).stdout, b"\xff")


if __name__ == "__main__":
    unittest.main()

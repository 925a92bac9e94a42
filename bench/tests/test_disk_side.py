"""ext4 on the disk itself: a folder that is treated as a file system."""

import os
import unittest
from pathlib import Path
from unittest import mock

import paths  # it makes the next imports possible
from lib import caches, system  # noqa: I001
from lib.ext4_sides import DiskSide
from lib.place import Place
from lib.rows.random_io import FsyncRow
from lib.rows.slow_disk import SlowDuplicateRow
from lib.rows.streams import ColdReadRow

MIB = 1 << 20


def is_cached(path):
    """Tells whether the begin of a file can be read without waiting for the disk."""
    with open(path, "rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            return False


class Disk(unittest.TestCase):
    def setUp(self):
        self.place = Place(paths.disk_folder(self))
        reason = DiskSide.why_not(self.place)
        if reason is not None:
            self.skipTest(reason)
        self.side = DiskSide(self.place)
        self.side.format()
        self.side.attach()

    def test_only_what_the_side_has_is_cold(self):
        other = self.place.folder / "other"
        for path in (other, self.side.path("file")):
            path.write_bytes(os.urandom(MIB))
        with mock.patch("lib.memory.Ballast.fill") as filled, mock.patch.object(caches, "drop_names") as dropped:
            self.side.make_cold()
        self.assertEqual([is_cached(other), is_cached(self.side.path("file"))], [True, False])
        self.assertEqual((filled.call_count, dropped.call_count), (1, 1))

    def test_it_is_empty_when_it_is_made_anew_and_when_it_is_closed(self):
        for empty in (self.side.format, self.side.close):
            (self.side.mountpoint / "folder").mkdir()
            self.side.path("folder/file").touch()
            self.side.path("file").touch()
            empty()
            self.assertEqual(os.listdir(self.side.mountpoint), [])

    def test_what_is_read_from_the_disk_is_counted(self):
        self.side.path("file").write_bytes(os.urandom(4 * MIB))
        caches.forget(self.side.path("file"))
        before = self.side.disk_read_bytes()
        self.side.path("file").read_bytes()
        self.assertGreaterEqual(self.side.disk_read_bytes() - before, 4 * MIB)

    def test_rows_of_syncs_and_names_need_a_journal(self):
        synced, stream = FsyncRow("name", "what", "goal"), ColdReadRow()
        for has_journal, suited in ((True, [True, True]), (False, [False, True])):
            with mock.patch.object(self.side, "has_journal", return_value=has_journal):
                self.assertEqual([self.side.suits(synced), self.side.suits(stream)], suited)
        self.assertFalse(self.side.suits(SlowDuplicateRow()))

    def test_what_would_hit_the_machine_is_refused(self):
        for refused in (self.side.crash, self.side.recovered, lambda: self.side.slow_down(1)):
            with self.assertRaises(system.BenchError):
                refused()


class Elsewhere(unittest.TestCase):
    def test_another_file_system_is_not_called_ext4(self):
        with mock.patch.object(system, "file_system_type", return_value="xfs"):
            self.assertIn("lies on xfs", DiskSide.why_not(Place(Path("/nowhere"))))


if __name__ == "__main__":
    unittest.main()

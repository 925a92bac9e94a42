"""What a recorded boot is, and what is kept of an image for it."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import paths  # it makes the next imports possible
from lib import boot  # noqa: I001
from lib.system import BenchError

MIB = 1 << 20


def line(op, blk, offset, length):
    return f"blk_co_p{op}v blk {blk} bs 0x2 offset {offset} bytes {length} flags 0x0\n"


class Records(unittest.TestCase):
    def test_requests_are_rounded_out_to_blocks_and_keep_their_order(self):
        text = line("read", "0x1", 512, 512) + line("write", "0x1", 4096, 8192) + line("read", "0x1", 4000, 200)
        self.assertEqual(boot.parse(text), boot.Record([(0, 4096), (0, 8192)], [(4096, 8192)]))

    def test_only_the_guests_own_disk_counts(self):
        text = line("write", "0x9", 0, 65536) + line("read", "0x1", 0, 4096) * 2 + "something else\n"
        self.assertEqual(boot.parse(text), boot.Record([(0, 4096)] * 2, []))

    def test_an_account_without_requests_is_an_error(self):
        with self.assertRaises(BenchError):
            boot.parse("nothing of that kind\n")

    def test_what_is_read_twice_is_counted_once(self):
        record = boot.Record([(0, 8192), (4096, 8192)], [(5 * MIB, 4096)])
        self.assertEqual((record.read_bytes(), record.chunks()), (12288, {0, 5}))
        self.assertEqual(boot.Record([(MIB - 4096, 8192)], []).chunks(), {0, 1})


class Images(unittest.TestCase):
    def setUp(self):
        self.folder = paths.folder(self)
        self.image = self.folder / "image.raw"
        self.content = b"".join(bytes([number + 1]) * MIB for number in range(4))
        self.image.write_bytes(self.content)

    def test_a_copy_holds_what_is_touched_and_holes_elsewhere(self):
        copy = self.folder / "copy"
        boot.copy_touched(self.image, boot.Record([(MIB, 4096)], [(3 * MIB + 8192, 4096)]), copy)
        expected = bytes(MIB) + self.content[MIB : 2 * MIB] + bytes(MIB) + self.content[3 * MIB :]
        self.assertEqual(copy.read_bytes(), expected)
        self.assertLessEqual(os.stat(copy).st_blocks * 512, 2 * MIB + 65536)

    def test_an_image_without_a_boot_loader_is_told(self):
        self.assertIn("no boot loader", boot.why_not(self.image))
        self.assertIn("no image", boot.why_not(None))
        self.image.write_bytes(b"\xeb" + bytes(509) + b"\x55\xaa")
        with mock.patch("shutil.which", lambda _: "/usr/bin/qemu"):
            self.assertIsNone(boot.why_not(self.image))

    def test_a_boot_is_recorded_once_for_an_image(self):
        def script(_image, *options):
            Path(options[-1]).write_text(line("read", "0x1", 4096, 4096), encoding="ascii")
            return 1.0

        with mock.patch.object(boot, "boot", side_effect=script) as booted:
            first, kept = boot.record_of(self.image, self.folder)
            again, _ = boot.record_of(self.image, self.folder)
            self.assertEqual((first, booted.call_count), (boot.Record([(4096, 4096)], []), 1))
            self.assertEqual(again, first)
            os.utime(self.image, (1, 1))
            _, other = boot.record_of(self.image, self.folder)
        self.assertEqual(booted.call_count, 2)
        self.assertNotEqual(kept, other)


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "guest")
        for number in (1, 2):
            Path(f"{self.path}-{number}").write_bytes(bytes(4 * MIB))
        self.record = os.path.join(folder.name, "record")
        self.keep(reads=[(0, 8192), (MIB, 2 * MIB)], writes=[(4096, 4096), (MIB, MIB + 8192)])

    def keep(self, **requests):
        Path(self.record).write_text(json.dumps(requests), encoding="ascii")

    def client(self, job):
        command = [sys.executable, "-B", paths.CLIENT, job, self.path, "--count=2", "--record", self.record, "--seed=3"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_reads_of_all_guests_are_counted(self):
        finished = self.client("replay-reads")
        self.assertEqual(json.loads(finished.stdout)["bytes"], 2 * (8192 + 2 * MIB), finished.stderr)

    def test_a_file_that_is_too_short_fails(self):
        os.truncate(f"{self.path}-2", 2 * MIB)
        self.assertIn("too short", self.client("replay-reads").stderr)

    def test_writes_go_where_the_record_says_and_no_block_is_written_twice(self):
        self.assertEqual(self.client("replay-writes").returncode, 0)
        seen = []
        for number in (1, 2):
            data = Path(f"{self.path}-{number}").read_bytes()
            blocks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
            written = {at for at, block in enumerate(blocks) if any(block)}
            self.assertEqual(written, {1, *range(256, 514)})
            seen += [blocks[at] for at in written]
        self.assertEqual(len(set(seen)), len(seen))


if __name__ == "__main__":
    unittest.main()

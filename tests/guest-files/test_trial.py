"""The trial can say no: a byte that changed, a promise that was broken, a packaged file that is another one."""

import collections
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from busy import expect_packages, expect_promises
from cuts import CALL, FAULTS, INJECTED, VERBS, Cuts, Learnt, placed
from host import CLIENTS, Failed, Host, call, expect_no_panic, sum_of
from trial import parse

UNIT = 1 << 16


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


class Sums(Folder):
    def test_holes_are_as_zeros_and_each_byte_counts(self):
        content = bytearray(5 * UNIT + 100)
        content[2 * UNIT + 7] = content[5 * UNIT + 99] = 1
        image = self.write("image", content)
        noted = sum_of(image)
        sparse = self.folder / "sparse"
        with open(sparse, "wb") as file:
            for at in (2 * UNIT + 7, 5 * UNIT + 99):
                file.seek(at)
                file.write(b"\1")
        self.assertEqual(sum_of(sparse), noted)
        for at in (0, 2 * UNIT + 7, 2 * UNIT + 8, 3 * UNIT, 5 * UNIT + 98):
            changed = bytearray(content)
            changed[at] ^= 2
            self.assertNotEqual(sum_of(self.write("changed", changed)), noted, at)
        self.assertNotEqual(sum_of(self.write("longer", content + b"\0")), noted)
        # Equal parts at another place.
        self.assertNotEqual(sum_of(self.write("moved", content[UNIT:] + bytes(UNIT))), noted)

    def test_the_tool_names_what_has_changed(self):
        one, two = self.write("one", b"1" * 100), self.write("two", b"2" * 100)
        sums = self.folder / "sums"
        tool = [sys.executable, CLIENTS / "image_sums.py"]
        call(*tool, "note", sums, one, two)
        call(*tool, "check", sums)
        two.write_bytes(b"2" * 99 + b"3")
        done = subprocess.run([*tool, "check", sums], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, f"{two} has changed\n"))
        sums.write_text("", encoding="ascii")
        self.assertNotEqual(subprocess.run([*tool, "check", sums], capture_output=True, check=False).returncode, 0)


class Guests(Folder):
    def test_a_broken_promise_is_seen(self):
        self.write("srv/kept", b"kept")
        promised = {"kept": hashlib.sha256(b"kept").hexdigest()}
        expect_promises(self.folder, promised, "now")
        for broken in ({"kept": hashlib.sha256(b"lost").hexdigest()}, {"gone": promised["kept"]}):
            with self.assertRaisesRegex(Failed, "was synced"):
                expect_promises(self.folder, broken, "now")

    def test_a_packaged_file_that_is_another_one_is_seen(self):
        with self.assertRaisesRegex(Failed, "no package"):
            expect_packages(self.folder, "now")
        info = "var/lib/dpkg/info"
        path = self.write("usr/bin/tool", b"tool")
        self.write(f"{info}/tool.md5sums", f"{hashlib.md5(b'tool').hexdigest()}  usr/bin/tool\n".encode())
        self.assertEqual(expect_packages(self.folder, "now"), 1)
        path.write_bytes(b"tooL")
        with self.assertRaises(Failed):
            expect_packages(self.folder, "now")

    def test_a_panic_is_no_answer(self):
        expect_no_panic("error: no room", "now")
        with self.assertRaises(Failed):
            expect_no_panic("thread 'main' panicked at src/lib.rs:1", "now")


class StandIn:
    """A host without a file system, whose program does nothing; its images hold what they held, or not."""

    def __init__(self, is_whole=True, blocks=(10, 10)):
        self.volume = self.images = Path("/none")
        self.is_whole, self.left = is_whole, list(blocks)

    def words(self, *_):
        return ["true"]

    def fill(self, _):
        pass

    def blocks(self):
        return self.left.pop(0)

    expect_whole = Host.expect_whole

    @property
    def sums(self):
        return {} if self.is_whole else {Path(os.devnull): "another sum"}


class Verdicts(Folder):
    def cut(self, host):
        cuts = Cuts(host, [], random.Random(1), collections.Counter(), self.folder)
        cuts.learnt[VERBS[0]] = Learnt((10, None), 0.1, collections.Counter())
        cuts.round(VERBS[0], lambda *_: "cut")
        return cuts.counts

    def test_a_round_is_passed_only_with_whole_images_and_the_same_result(self):
        self.assertEqual(self.cut(StandIn())["whole runs"], 1)
        with self.assertRaisesRegex(Failed, "changed"):
            self.cut(StandIn(is_whole=False))
        with self.assertRaisesRegex(Failed, "without the first"):
            self.cut(StandIn(blocks=[11]))

    def test_calls_are_told_from_other_lines(self):
        lines = ["12 pread64(3, \"\", 4, 0) = 4", "12 <... ioctl resumed>) = 0"]
        lines.append("12 ioctl(3, X) = -1 EIO (E) (INJECTED)")
        self.assertEqual([found[1] for found in map(CALL.match, lines) if found], ["pread64", "ioctl"])
        self.assertEqual(sum(len(INJECTED.findall(line)) for line in lines), 1)
        self.assertTrue(all(answers.split() for answers in FAULTS.values()))

    def test_paths_are_put_into_arguments(self):
        host = StandIn()
        host.images = Path("/a")
        self.assertEqual(placed(host, ("--from", "IMAGES/1.raw")), ["--from", "/a/1.raw"])


class Usage(unittest.TestCase):
    def test_a_trial_has_an_end_and_known_parts(self):
        words = ["--onefold", "onefold", "--rounds", "1"]
        self.assertEqual(parse(words).parts, ["cuts", "others", "busy", "pool"])
        for wrong in (words[:2], [*words, "--parts", "cuts,none"]):
            with self.assertRaises(SystemExit), open(os.devnull, "w", encoding="ascii") as nowhere:
                stderr, sys.stderr = sys.stderr, nowhere
                try:
                    parse(wrong)
                finally:
                    sys.stderr = stderr


if __name__ == "__main__":
    unittest.main()

"""The trial can say no: a byte that changed, a promise that was broken, a packaged file that is another one."""

import collections
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from busy import DONE, FIO_FILE, Updates, expect_done, expect_packages, expect_promises, expect_verified, fio_words
from busy import shared_bytes
from cuts import CALL, FAULTS, INJECTED, ROOM_MISSED_MAX, VERBS, Cuts, Learnt, placed
from host import CLIENTS, Failed, Host, call, expect_no_panic, run, started, sum_of
from others import expect_apart, two_hosts
from trial import Trial, parse

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

    @unittest.skipUnless(shutil.which("fio"), "needs fio")
    def test_a_block_that_fio_did_not_write_is_seen(self):
        with self.assertRaisesRegex(Failed, "is gone"):
            expect_verified(self.folder, "now")
        path = self.write(FIO_FILE, b"")
        call(*fio_words(path, "--rw=write", "--do_verify=0"))
        expect_verified(self.folder, "now")
        with open(path, "r+b") as file:
            file.seek(70_000)
            byte = file.read(1)
            file.seek(70_000)
            file.write(bytes([byte[0] ^ 1]))
        with self.assertRaisesRegex(Failed, "other bytes"):
            expect_verified(self.folder, "now")

    def test_whatever_ends_the_updates_is_a_failure(self):
        for reason in (KeyError("name"), Failed("dpkg"), SystemExit(1)):
            updates = Updates(self.folder, {}, random.Random(1))
            with mock.patch.object(updates, "dpkg", side_effect=reason), updates:
                updates.join(10)
                self.assertFalse(updates.is_alive())
                with self.assertRaisesRegex(Failed, "cannot work"):
                    updates.end()

    def test_a_round_that_did_nothing_is_no_success(self):
        before = dict.fromkeys(DONE, 5)
        expect_done(before, collections.Counter(dict.fromkeys(DONE, 6)))
        expect_done({}, collections.Counter(dict.fromkeys(DONE, 1)))
        for name in DONE:
            with self.assertRaisesRegex(Failed, name):
                expect_done(before, collections.Counter(dict.fromkeys(DONE, 6) | {name: 5}))

    def test_shared_bytes_are_those_of_files_and_of_the_rest(self):
        self.assertEqual(shared_bytes('{"shared": {"now_bytes": 3}}'), 3)
        self.assertEqual(shared_bytes('{"shared": {"now_bytes": 3}, "files": {"now_bytes": 4}}'), 7)
        self.assertEqual(shared_bytes('{"shared": {"now_bytes": 3}, "files": null}'), 3)
        self.assertEqual(shared_bytes("\n"), 0)

    def test_a_panic_is_no_answer(self):
        expect_no_panic("error: no room", "now")
        with self.assertRaises(Failed):
            expect_no_panic("thread 'main' panicked at src/lib.rs:1", "now")


class Programs(Folder):
    def test_a_program_goes_with_what_it_has_started(self):
        child = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with started([sys.executable, "-c", child], **pipes) as process:
            grandchild = Path("/proc") / process.stdout.readline().strip()
            self.assertTrue(grandchild.exists())
        self.assertIsNotNone(process.returncode)
        ends = time.monotonic() + 10
        while grandchild.exists() and "Z" not in state_of(grandchild) and time.monotonic() < ends:
            time.sleep(0.01)
        self.assertIn(state_of(grandchild), ("Z", ""))

    def test_a_program_that_does_not_end_is_a_failure(self):
        with self.assertRaisesRegex(Failed, "did not end"):
            run(["sleep", "60"], timeout=0.1)


def state_of(process):
    """Returns the state of a process by the kernel's letter; nothing where it is gone."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return ""


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

    def test_a_full_file_system_counts_with_about_the_room_that_was_drawn(self):
        host = StandIn()
        host.mount, host.sync = self.folder, lambda: None
        for missed, expected in ((0, 1), (ROOM_MISSED_MAX, 1), (ROOM_MISSED_MAX + 1, 0), (100 * ROOM_MISSED_MAX, 0)):
            cuts = Cuts(host, [], random.Random(1), collections.Counter(), self.folder)
            with mock.patch("cuts.fill_up", side_effect=lambda _, room, missed=missed: room + missed):
                cuts.full(VERBS[0], None)
            self.assertEqual(cuts.counts["full"], expected, missed)

    def test_two_hosts_have_to_come_to_the_result_of_one(self):
        # What the images take with one host, and with two; each before and after a run with --full.
        equal, others = [[40, 40, 40, 40], [40, 40, 45, 40]], [[40, 40, 40, 41], [40, 40, 41, 41], [40, 40, 39, 39]]
        for blocks, is_equal in [(blocks, True) for blocks in equal] + [(blocks, False) for blocks in others]:
            host = StandIn(blocks=blocks)
            host.share = lambda *_: {}
            with mock.patch("others.at_once", return_value=[(0, ""), (1, "")]):
                attempt = (host, [], random.Random(1), collections.Counter(), self.folder)
                if is_equal:
                    two_hosts(*attempt)
                    self.assertEqual(attempt[3]["blocks left to --full"], blocks[2] - blocks[3])
                    continue
                with self.assertRaisesRegex(Failed, "with one host"):
                    two_hosts(*attempt)

    def test_two_users_are_apart_only_if_both_have_blocks(self):
        host = SimpleNamespace(sync=lambda: None, images=self.folder)
        cases = (([{1}, {2}], None), ([{1}, set()], "no blocks"), ([set(), {1}], "no blocks"), ([{1}, {1}], "belong"))
        for places, why in cases:
            with mock.patch("others.blocks_of", side_effect=places):
                if why is None:
                    expect_apart(host, self.folder)
                    continue
                with self.assertRaisesRegex(Failed, why):
                    expect_apart(host, self.folder)

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


class Draws(Folder):
    def trial(self, seed, first_round):
        words = ["--onefold", "onefold", "--rounds", "1", "--seed", str(seed), "--first-round", str(first_round)]
        with mock.patch("trial.make_guests"), mock.patch("trial.make_packages"), mock.patch("trial.Pools"):
            return Trial(parse(words), self.folder)

    def test_a_part_draws_by_seed_round_and_part_only(self):
        one, same = self.trial(1, 3), self.trial(1, 3)
        one.dice("cuts").random()
        self.assertEqual(one.dice("busy").random(), same.dice("busy").random())
        drawn = [one.dice(*parts) for parts in (["busy"], ["cuts"], ["busy", "updates"])]
        drawn += [self.trial(*others).dice("busy") for others in ((2, 3), (1, 4))]
        self.assertEqual(len({dice.random() for dice in drawn}), 5)

    def test_a_round_that_is_repeated_has_the_same_file_system(self):
        trial = self.trial(1, 3)
        trial.options.parts = []
        with mock.patch("trial.Host") as host:
            trial.round()
            trial.round()
        self.assertEqual([call.args[2] for call in host.call_args_list], ["btrfs", "xfs"])


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

"""What seeds decide about the corpus's images: lives of clones, files on NTFS disks, and the table of them."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import guest_life  # noqa: E402
import machine_identity  # noqa: E402
import ntfs_files  # noqa: E402

SEEDS = [f"seed-{number}" for number in range(40)]


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, *names):
        folder = self.folder.joinpath(*names)
        folder.mkdir(parents=True)
        return folder


class Plans(unittest.TestCase):
    def test_a_plan_follows_from_its_seed(self):
        for recipe in ["desktop", "server"]:
            plans = [tuple(guest_life.plan(recipe, seed)) for seed in SEEDS]
            self.assertEqual(plans, [tuple(guest_life.plan(recipe, seed)) for seed in SEEDS])
            self.assertEqual(len(set(plans)), len(SEEDS))

    def test_a_desktop_loses_only_what_it_got(self):
        for seed in SEEDS:
            there = set()
            for step, *packages in map(str.split, guest_life.plan("desktop", seed)):
                if step == "install":
                    there.update(packages)
                elif step == "remove":
                    self.assertLessEqual(set(packages), there, seed)
                    there.difference_update(packages)
            self.assertGreaterEqual(len(there), 2)

    def test_all_servers_get_the_same_in_the_same_order(self):
        wanted = guest_life.packages_of("services")
        for seed in SEEDS:
            steps = map(str.split, guest_life.plan("server", seed))
            self.assertEqual([name for step, *names in steps if step == "install" for name in names], wanted)


class Days(InFolder):
    def root(self, name):
        root = self.make(name)
        for folder in ["var/lib", "var/log"]:
            (root / folder).mkdir(parents=True)
        return root

    def test_days_follow_from_the_seed_however_they_are_parted(self):
        for recipe in ["desktop", "server"]:
            at_once, parted, other = (self.root(f"{recipe}-{name}") for name in ["one", "two", "three"])
            guest_life.Life(at_once, recipe, "a").pass_days(9)
            guest_life.Life(parted, recipe, "a").pass_days(4)
            guest_life.Life(parted, recipe, "a").pass_days(5)
            guest_life.Life(other, recipe, "b").pass_days(9)
            self.assertEqual(contents(at_once), contents(parted))
            self.assertNotEqual(contents(at_once), contents(other))

    def test_clones_are_sent_the_same_circulars(self):
        roots = [self.root(seed) for seed in ["a", "b"]]
        for root in roots:
            guest_life.Life(root, "desktop", root.name).pass_days(60)
        common = set(contents(roots[0]).values()) & set(contents(roots[1]).values())
        self.assertGreater(len(common), 0)

    def test_logs_are_rotated_and_the_oldest_go(self):
        root = self.root("guest")
        guest_life.Life(root, "server", "a").pass_days(60)
        logs = sorted(path.name for path in (root / "var/log").glob("syslog*"))
        self.assertEqual(logs, ["syslog", "syslog.1", "syslog.2.gz", "syslog.3.gz", "syslog.4.gz"])


class NtfsDisks(InFolder):
    def test_disks_of_two_seeds_hold_mostly_the_same(self):
        files = self.make("files")
        for number in range(600):
            path = files / f"{number % 7}" / f"name:{number}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(100 + number))
        (files / "link").symlink_to("nowhere")
        disks = [self.make("a"), self.make("b"), self.make("again")]
        for disk, seed in zip(disks, ["a", "b", "a"]):
            ntfs_files.main(files, disk, seed)
        first, second, again = map(contents, disks)
        self.assertEqual(first, again)
        common = set(first.values()) & set(second.values())
        self.assertGreater(len(common), 450)
        self.assertLess(len(common), 600)
        self.assertFalse([name for name in first if ":" in name or "link" in name])


@unittest.skipUnless(shutil.which("ssh-keygen"), "needs ssh-keygen")
class Identities(InFolder):
    def test_no_two_machines_have_a_file_in_common(self):
        roots = [self.make(f"root-{number}") for number in (1, 2)]
        for number, root in enumerate(roots, start=1):
            machine_identity.main(root, number)
        first, second = map(contents, roots)
        self.assertEqual(set(first), set(second))
        self.assertFalse(set(first.values()) & set(second.values()))
        for name in ("etc/hostname", "etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "var/log/syslog"):
            self.assertIn(name, first)
        self.assertEqual((roots[1] / "etc/hostname").read_text(), "machine-02\n")

    def test_an_identity_but_for_its_keys_follows_from_the_number(self):
        roots = [self.make(name) for name in ("one", "again")]
        for root in roots:
            machine_identity.main(root, 7)
        one, again = map(contents, roots)
        self.assertEqual({name for name in one if one[name] != again[name]}, {name for name in one if "ssh" in name})


class Table(unittest.TestCase):
    def corpus(self, *words):
        return subprocess.run([HERE / "corpus.sh", *words], capture_output=True, text=True, check=False)

    def test_every_set_lists_its_images_once(self):
        for name, count in {"demo": 4, "distros": 8, "vdi": 6, "fbs": 6, "ntfs": 2, "emulated": 1, "fbs42": 1}.items():
            paths = self.corpus("path", name).stdout.splitlines()
            self.assertEqual((len(paths), len(set(paths))), (count, count), name)
        paths = self.corpus("path", "demo", "debian-12-web", "ntfs").stdout.splitlines()
        self.assertEqual(len(paths), 6)

    def test_a_set_of_machines_is_no_raw_image(self):
        self.assertTrue(self.corpus("path", "fbs42").stdout.endswith("/fbs42.xfs\n"))

    def test_what_an_image_is_made_from_is_built_before_it(self):
        count, seconds, size = map(int, self.corpus("forecast", "desktop-3").stdout.split())
        self.assertLessEqual(count, 2)
        self.assertEqual(seconds > 0, count > 0)
        self.assertEqual(size > 0, count > 0)

    def test_an_unknown_name_is_refused(self):
        refused = self.corpus("path", "no-such-set")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("no-such-set", refused.stderr)


class Installing(unittest.TestCase):
    def test_every_target_names_groups_that_there_are(self):
        """`make corpus` ended with "there is no group `corpus`": the table had it, the list of names did not."""
        repository = HERE.parent.parent
        calls = re.findall(r"install-deps\.sh ([a-z0-9 -]+)", (repository / "Makefile").read_text())
        self.assertGreater(len(calls), 5)
        for name in {group for call in calls for group in call.split()}:
            listing = [repository / "scripts" / "install-deps.sh", "--list", name]
            listed = subprocess.run(listing, capture_output=True, text=True, check=False)
            self.assertEqual(listed.returncode, 0, listed.stderr)


def contents(folder):
    """Returns a digest of each file's content, by its path."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


if __name__ == "__main__":
    unittest.main()

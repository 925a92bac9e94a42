"""Guests work while their files are shared: dpkg installs and removes, fio verifies, and what was promised is there.

Two guests are mounted on the host from their images. One has dpkg at work and files that are synced one by one; the
other has fio write and verify. A copy of an image in the midst of it is as a power cut leaves it: its journal is
replayed, the checker is content, and each file that had been synced before the copy has the bytes that it was given.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time

from host import Failed, call, expect_no_panic

PACKAGES = 4
VERSIONS = 3
# How many files of a guest are synced one by one, in turn.
SYNCED_FILES = 40
FIO_BYTES = 4 << 20


def make_packages(folder, dice):
    """Makes archives of packages in several versions, and returns them by name."""
    folder.mkdir()
    shared = [dice.randbytes(dice.choice([700, 5000, 60_000, 300_000])) for _ in range(8)]
    archives = {}
    for package in range(PACKAGES):
        for version in range(1, VERSIONS + 1):
            name, tree = f"extra-{package}", folder / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            (tree / "DEBIAN").mkdir(parents=True)
            (tree / "usr/lib" / name).mkdir(parents=True)
            sums = []
            for at, content in enumerate(shared):
                if at % VERSIONS == version % VERSIONS:
                    content = dice.randbytes(len(content))
                path = tree / "usr/lib" / name / f"part-{at}"
                path.write_bytes(content)
                sums.append(f"{hashlib.md5(content).hexdigest()}  usr/lib/{name}/part-{at}\n")
            (tree / "DEBIAN/md5sums").write_text("".join(sums), encoding="ascii")
            (tree / "DEBIAN/control").write_text(
                f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n",
                encoding="ascii",
            )
            archive = folder / f"{name}_{version}.deb"
            call("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, archive)
            archives[name, version] = archive
    shutil.rmtree(tree)
    return archives


class Mounted:
    """A guest that is mounted from its image."""

    def __init__(self, image, mountpoint):
        self.image, self.root = image, mountpoint
        mountpoint.mkdir()
        call("mount", "-o", "loop", image, mountpoint)

    def close(self):
        call("umount", self.root)
        self.root.rmdir()


class Updates(threading.Thread):
    """Has dpkg install other versions and remove packages, and syncs files of its own, until it is told to end."""

    def __init__(self, guest, archives, dice):
        super().__init__()
        self.guest, self.archives, self.dice = guest, archives, dice
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.failure = None
        # Digests of files that are on the disk, by name. While a file changes it is not here.
        self.promised = {}
        self.operations = 0

    def run(self):
        try:
            while not self.is_over.is_set():
                self.dpkg()
                for _ in range(4):
                    self.synced_file()
        except (Failed, OSError, subprocess.SubprocessError) as failure:
            self.failure = failure

    def dpkg(self):
        name = f"extra-{self.dice.randrange(PACKAGES)}"
        command = ["--install", self.archives[name, self.dice.randint(1, VERSIONS)]]
        if self.dice.randrange(4) == 0:
            command = ["--purge", name]
        root = ["--root", self.guest.root, "--force-all", "--force-not-root", "--no-debsig", "--log=/dev/null"]
        call("dpkg", *root, *command)
        self.operations += 1

    def synced_file(self):
        name = f"synced-{self.dice.randrange(SYNCED_FILES)}"
        content = self.dice.randbytes(self.dice.choice([100, 4096, 20_000, 200_000]))
        path = self.guest.root / "srv" / name
        with self.lock:
            self.promised.pop(name, None)
        # In place mostly, as a guest's database does; what shares is copied then.
        with open(path, "r+b" if path.exists() and self.dice.randrange(3) else "wb") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        call("sync", self.guest.root / "srv")
        with self.lock:
            self.promised[name] = hashlib.sha256(content).hexdigest()

    def promises(self):
        with self.lock:
            return dict(self.promised)

    def end(self):
        self.is_over.set()
        self.join()
        if self.failure:
            raise Failed(f"a guest cannot work: {self.failure}")


def expect_promises(root, promised, when):
    for name, digest in promised.items():
        path = root / "srv" / name
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "nothing"
        if found != digest:
            raise Failed(f"{when}: {name} was synced, and has changed")


def expect_packages(root, when):
    """All packaged files have the digests of the guest's database. Returns how many there are."""
    count = 0
    for sums in sorted((root / "var/lib/dpkg/info").glob("*.md5sums")):
        # One system has changed this file itself.
        if sums.name == "big.md5sums":
            continue
        with open(sums, "rb") as lines:
            call("md5sum", "--quiet", "--check", "-", cwd=root, stdin=lines)
        with open(sums, "rb") as lines:
            count += len(lines.readlines())
    if count == 0:
        raise Failed(f"{when}: no package is there")
    return count


class Busy:
    def __init__(self, host, made, archives, dice, counts, folder):
        self.host, self.made, self.archives = host, made, archives
        self.dice, self.counts, self.folder = dice, counts, folder

    def round(self, seconds):
        """Shares again and again while guests work, and looks at all of them."""
        host = self.host
        host.fill(self.made)
        host.share("common", "create", host.volume, "--size", "256M")
        images = sorted(host.sums)
        working, verifying = images[:2]
        for image in (working, verifying):
            del host.sums[image]
        guests = [Mounted(image, self.folder / f"guest-{at}") for at, image in enumerate((working, verifying))]
        fio = None
        try:
            updates = Updates(guests[0], self.archives, self.dice)
            updates.start()
            fio = self.start_fio(guests[1], seconds)
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and updates.is_alive():
                self.share()
                self.expect_after_cut(working, updates)
            updates.end()
            said, _ = fio.communicate(timeout=60)
            if fio.returncode != 0:
                raise Failed(f"fio found other bytes than it wrote: {said}")
            self.counts["operations of dpkg"] += updates.operations
            expect_promises(guests[0].root, updates.promises(), "a busy guest")
        finally:
            updates.is_over.set()
            updates.join()
            if fio and fio.poll() is None:
                fio.send_signal(signal.SIGKILL)
                fio.wait()
            for guest in guests:
                guest.close()
        self.expect_guests((working, verifying), updates.promised)
        host.share("files", "--common", host.images)
        self.expect_guests((working, verifying), updates.promised)
        host.expect_whole("guests that do nothing, beside busy ones")
        host.expect_sound_volume("busy guests")

    def share(self):
        """Shares once. Images that guests write to may be busy, which is no failure of a guest."""
        verb = self.dice.choice([["files"], ["files", "--common"], ["run", "--files"]])
        words = self.host.words(*verb, "--quiet", self.host.images)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        expect_no_panic(done.stdout + done.stderr, "beside busy guests")
        if done.returncode not in (0, 1):
            raise Failed(f"beside busy guests, {verb} ended with {done.returncode}: {done.stderr}")
        self.counts["passes beside guests"] += 1

    def start_fio(self, guest, seconds):
        words = ["fio", "--name=verify", f"--directory={guest.root / 'srv'}", f"--size={FIO_BYTES}", "--rw=randwrite"]
        words += ["--bs=4k", "--fsync=16", "--ioengine=psync", "--time_based", f"--runtime={seconds}"]
        words += ["--verify=crc32c", "--verify_backlog=64", "--verify_state_save=0", "--output-format=terse"]
        words += [f"--randseed={self.dice.randrange(1 << 31)}"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def expect_after_cut(self, image, updates):
        """A copy of the image, as a power cut leaves it, has all that was promised before."""
        copy = self.host.mount / "cut.img"
        before = updates.promises()
        call("cp", "--reflink=always", image, copy)
        after = updates.promises()
        # What has begun to change in between is promised by neither content.
        promised = {name: digest for name, digest in before.items() if after.get(name) == digest}
        root = self.folder / "cut"
        try:
            # Replays the journal.
            mounted = Mounted(copy, root)
            try:
                expect_promises(root, promised, "after a power cut")
                self.counts["promises"] += len(promised)
            finally:
                mounted.close()
            call("e2fsck", "-fn", copy)
            self.counts["power cuts"] += 1
        finally:
            copy.unlink()

    def expect_guests(self, images, promised):
        """Guests that have ended are sound, have their packages' files, and keep their promises."""
        for image in images:
            call("e2fsck", "-fn", image)
            guest = Mounted(image, self.folder / "ended")
            try:
                self.counts["packaged files"] += expect_packages(guest.root, image.name)
                if image is images[0]:
                    expect_promises(guest.root, promised, "a guest that has ended")
            finally:
                guest.close()

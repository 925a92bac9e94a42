"""Guests work while their files are shared: dpkg installs and removes, fio verifies, and what was promised is there.

Two guests are mounted on the host from their images. One has dpkg at work and files that are synced one by one; the
other has fio write and verify. A clone of an image in the midst of it stands for a power cut of the guest: its
journal is replayed, the checker is content, and each file that had been synced before the clone has the bytes that it
was given.
"""

import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

from host import Failed, call, expect_no_panic, ignored, run, started

PACKAGES = 4
VERSIONS = 3
# How many files of a guest are synced one by one, in turn.
SYNCED_FILES = 40
# The file that fio writes to, its length, and how long fio may take to end.
FIO_FILE = "srv/verified"
FIO_BYTES = 4 << 20
FIO_END_S = 60
# How long a guest's mount may be busy when the trial needs it no more.
UNMOUNT_S = 10
# What each round has to do, or it has tried nothing.
DONE = ["shared bytes", "operations of dpkg", "promises", "power cuts"]


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


@contextmanager
def mounted(image, mountpoint):
    """Has a guest mounted from its image meanwhile."""
    mountpoint.mkdir()
    try:
        call("mount", "-o", "loop", image, mountpoint)
        try:
            yield mountpoint
            unmount(mountpoint)
        except BaseException:
            # What still works there holds it no longer than it lives.
            ignored("umount", "--lazy", mountpoint)
            raise
    finally:
        mountpoint.rmdir()


class Updates(threading.Thread):
    """Has dpkg install other versions and remove packages, and syncs files of its own, until it is told to end."""

    def __init__(self, root, archives, dice):
        super().__init__()
        self.root, self.archives, self.dice = root, archives, dice
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.failure = None
        # Digests of files that are on the disk, by name. While a file changes it is not here.
        self.promised = {}
        self.operations = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()

    def run(self):
        try:
            while not self.is_over.is_set():
                self.dpkg()
                for _ in range(4):
                    self.synced_file()
        # Whatever it is: a thread that ends early would leave the rest of the round without work.
        except BaseException as failure:  # pylint: disable=broad-exception-caught
            self.failure = failure

    def dpkg(self):
        name = f"extra-{self.dice.randrange(PACKAGES)}"
        command = ["--install", self.archives[name, self.dice.randint(1, VERSIONS)]]
        if self.dice.randrange(4) == 0:
            command = ["--purge", name]
        root = ["--root", self.root, "--force-all", "--force-not-root", "--no-debsig", "--log=/dev/null"]
        call("dpkg", *root, *command)
        self.operations += 1

    def synced_file(self):
        name = f"synced-{self.dice.randrange(SYNCED_FILES)}"
        content = self.dice.randbytes(self.dice.choice([100, 4096, 20_000, 200_000]))
        path = self.root / "srv" / name
        with self.lock:
            self.promised.pop(name, None)
        # In place mostly, as a guest's database does; what shares is copied then.
        with open(path, "r+b" if path.exists() and self.dice.randrange(3) else "wb") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        call("sync", self.root / "srv")
        with self.lock:
            self.promised[name] = hashlib.sha256(content).hexdigest()

    def promises(self):
        with self.lock:
            return dict(self.promised)

    def end(self):
        self.is_over.set()
        self.join()
        if self.failure:
            raise Failed(f"a guest cannot work: {self.failure!r}") from self.failure


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


def unmount(mountpoint):
    """Unmounts a guest. A program that another thread starts has open what was open here, until it is executed."""
    ends = time.monotonic() + UNMOUNT_S
    while True:
        try:
            call("umount", mountpoint)
            return
        except Failed as failure:
            if "is busy" not in str(failure) or time.monotonic() > ends:
                raise
        time.sleep(0.1)


def fio_words(path, *options):
    """The command line of fio, which writes blocks that tell whether they are whole, without the guest's cache."""
    words = ["fio", "--name=verify", f"--filename={path}", f"--size={FIO_BYTES}", "--bs=4k", "--ioengine=psync"]
    words += ["--direct=1", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--output-format=terse"]
    # A job that is a process of its own may hold the mount for a while after fio was killed.
    return [*words, "--thread", *options]


def expect_verified(root, when):
    """Each block that fio has written is whole."""
    # Without a file fio would lay one out, and find what it wrote itself.
    if not (root / FIO_FILE).is_file():
        raise Failed(f"{when}: the file of fio is gone")
    done = run(fio_words(root / FIO_FILE, "--rw=read", "--readonly"))
    if done.returncode != 0:
        raise Failed(f"{when}: fio found other bytes than it wrote: {done.stdout}{done.stderr}")


def shared_bytes(text):
    """Returns how many bytes a pass has shared, by what it says in JSON; one that has ended early says nothing."""
    if not text.strip():
        return 0
    told = json.loads(text)
    # `share run --files` tells of its files apart.
    return told["shared"]["now_bytes"] + (told.get("files") or {}).get("now_bytes", 0)


class Busy:
    """Rounds of passes beside two guests. `dice` returns what a part draws from, by its name."""

    def __init__(self, host, made, archives, dice, counts, folder):
        self.host, self.made, self.archives = host, made, archives
        self.dice, self.updates_dice = dice("busy"), dice("busy", "updates")
        self.counts, self.folder = counts, folder

    def round(self, seconds):
        """Shares again and again while guests work, and looks at all of them."""
        host = self.host
        host.fill(self.made)
        host.share("common", "create", host.volume, "--size", "256M")
        guests = sorted(host.sums)[:2]
        for image in guests:
            del host.sums[image]
        before = dict(self.counts)
        promised = self.work(*guests, seconds)
        expect_done(before, self.counts)
        self.expect_guests(guests, promised)
        host.share("files", "--common", host.images)
        self.expect_guests(guests, promised)
        host.expect_whole("guests that do nothing, beside busy ones")
        host.expect_sound_volume("busy guests")

    def work(self, working, verifying, seconds):
        """Has the guests work beside passes; returns what was promised in the first one."""
        with ExitStack() as stack:
            root = stack.enter_context(mounted(working, self.folder / "working"))
            verified = stack.enter_context(mounted(verifying, self.folder / "verifying"))
            # Each block is there before the first pass, so that all of them can be verified.
            call(*fio_words(verified / FIO_FILE, "--rw=write", "--do_verify=0"))
            updates = stack.enter_context(Updates(root, self.archives, self.updates_dice))
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            fio = stack.enter_context(started(self.random_writes(verified, seconds), **pipes))
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and updates.is_alive():
                self.share()
                self.expect_after_cut(working, updates)
            updates.end()
            said, _ = fio.communicate(timeout=seconds + FIO_END_S)
            if fio.returncode != 0:
                raise Failed(f"fio found other bytes than it wrote: {said}")
            self.counts["operations of dpkg"] += updates.operations
            expect_promises(root, updates.promises(), "a busy guest")
        return updates.promised

    def random_writes(self, root, seconds):
        words = ["--rw=randwrite", "--fsync=16", "--time_based", f"--runtime={seconds}", "--verify_backlog=64"]
        return fio_words(root / FIO_FILE, *words, f"--randseed={self.dice.randrange(1 << 31)}")

    def share(self):
        """Shares once. Images that guests write to may be busy, which is no failure of a guest."""
        verb = self.dice.choice([["files"], ["files", "--common"], ["run", "--files"]])
        done = run(self.host.words(*verb, "--quiet", "--json", self.host.images))
        expect_no_panic(done.stdout + done.stderr, "beside busy guests")
        if done.returncode not in (0, 1):
            raise Failed(f"beside busy guests, {verb} ended with {done.returncode}: {done.stderr}")
        self.counts["passes beside guests"] += 1
        self.counts["shared bytes"] += shared_bytes(done.stdout)

    def expect_after_cut(self, image, updates):
        """A clone of the image has all that was promised before. The host flushes its cache of the image for it."""
        copy = self.host.mount / "cut.img"
        before = updates.promises()
        try:
            call("cp", "--reflink=always", image, copy)
            after = updates.promises()
            # What has begun to change in between is promised by neither content.
            promised = {name: digest for name, digest in before.items() if after.get(name) == digest}
            # Replays the journal.
            with mounted(copy, self.folder / "cut") as root:
                expect_promises(root, promised, "after a power cut")
            call("e2fsck", "-fn", copy)
        finally:
            copy.unlink(missing_ok=True)
        self.counts["promises"] += len(promised)
        self.counts["power cuts"] += 1

    def expect_guests(self, guests, promised):
        """Guests that have ended are sound, have their packages' files, and keep their promises."""
        working, verifying = guests
        for image in guests:
            call("e2fsck", "-fn", image)
            with mounted(image, self.folder / "ended") as root:
                self.counts["packaged files"] += expect_packages(root, image.name)
                if image == working:
                    expect_promises(root, promised, "a guest that has ended")
                if image == verifying:
                    expect_verified(root, "a guest that has ended")


def expect_done(before, counts):
    """A round has done something of each kind: otherwise nothing was tried beside anything."""
    nothing = [name for name in DONE if counts[name] <= before.get(name, 0)]
    if nothing:
        raise Failed(f"a round beside busy guests has no {', no '.join(nothing)}")

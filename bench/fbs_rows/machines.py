"""The set of machines: clones of one template, each with an identity of its own and then with the same packages.

The real ones are built by `bench/corpus/build-machines.sh`; where there are none, small ones are made up in the same
manner. Either is an XFS in a file, and each round starts from a copy of it.
"""

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from guest_rows import made
from guest_rows.programs import warm
from lib import caches, device, system
from lib.launch import REPOSITORY
from lib.runner import say
from lib.system import BenchError

from .packages import unpack

TEMPLATE = "template.raw"
MACHINES = "machine-*.raw"
PACKAGES = "packages"
IDENTITY = REPOSITORY / "bench" / "corpus" / "machine_identity.py"
# XFS takes no smaller one than 300 MiB.
MADE_BYTES = 1 << 30
# A copy grows where machines are written to.
GROWTH = 1.3


@dataclass(frozen=True)
class Source:
    """Where the set comes from: a file that was built, or None where it is made up."""

    path: Path | None
    count: int
    what: str
    needed_bytes: int


def chosen_set(named, cache, settings):
    """Returns the Source of a run. Raises BenchError where the named one is not there."""
    count = settings.machines
    path = named or cache / f"fbs{count}.xfs"
    if named and not named.is_file():
        raise BenchError(f"there is no set {named}")
    if named or settings.mode != "tiny" and path.is_file():
        # Two copies lie beside each other at most.
        needed = int(2 * GROWTH * system.stored_bytes(path)) + settings.own_bytes
        return Source(path.absolute(), count, f"`{path.name}`: a template and {count} clones", needed)
    what = f"made up: a template and {count} clones with {settings.new_packages} packages each"
    return Source(None, count, what, 3 * MADE_BYTES + settings.own_bytes)


class Machines:
    """The set in the folder of a run."""

    def __init__(self, bench, source):
        self._bench = bench
        self.source = source
        self.count = source.count

    def original(self):
        """Returns the file of the set that copies are made of."""
        if self.source.path is not None:
            return self.source.path
        path = self._bench.path("machines-made")
        if not path.exists():
            say(f"  making up a template and {self.count} clones")
            MadeUp(self._bench, path).make(self.count)
        return path

    @contextmanager
    def copied(self):
        """Has a copy of the set mounted meanwhile; gives a Copy."""
        path = self._bench.path("machines-copy")
        system.run("cp", "--sparse=always", "--reflink=never", self.original(), path)
        copy = Copy(self._bench, path)
        try:
            copy.mount()
            yield copy
        finally:
            copy.close()
            path.unlink()

    def root_offset(self):
        """Returns where the root of each machine begins in its image."""
        with self._bench.mounted(self.original(), "ro", "norecovery", name="set") as folder:
            return root_offset(self._bench.programs, folder / TEMPLATE)

    def packages(self):
        """Returns two folders: one with the files of the packages, one with a package database of them."""
        tree, database = (self._bench.folder / name for name in ("package-files", "package-database"))
        if not tree.exists():
            with self._bench.mounted(self.original(), "ro", "norecovery", name="packages") as folder:
                unpack(folder / PACKAGES, tree, database)
        return tree, database


def root_offset(programs, image):
    """Returns where the root of the only system in an image begins."""
    told = programs.guest("info", image)["images"][0]
    roots = [mount["volume"] for one in told["systems"] for mount in one["mounts"] if mount["path"] == "/"]
    starts = [volume["ranges"][0][0] for volume in told["volumes"] if volume["volume"] in roots]
    if len(starts) != 1:
        raise BenchError(f"{image} has no root file system")
    return starts[0]


class Copy:
    """A copy of the set, as an XFS on a loop device."""

    def __init__(self, bench, path):
        self._bench = bench
        self._path = path
        self.folder = bench.folder / "machines.mount"
        self.loop = None

    def mount(self):
        self.folder.mkdir(exist_ok=True)
        self.loop = device.attach_loop(self._path)
        self._mount()

    def _mount(self):
        system.run("mount", "-t", "xfs", self.loop, self.folder)

    def close(self):
        system.unmount(self.folder)
        device.detach_loops(self._path)
        self.loop = None

    @property
    def template(self):
        return self.folder / TEMPLATE

    @property
    def machines(self):
        return sorted(self.folder.glob(MACHINES))

    def make_cold(self):
        """Empties every cache of the file system, above and below its loop device."""
        system.run("umount", self.folder)
        device.wait_until_unused(self.loop)
        for path in (self.loop, self._path):
            caches.forget(path)
        self._mount()
        self._bench.place.ballast.fill()

    def warm(self):
        """Has the machines in the page cache, as far as the memory goes."""
        for machine in self.machines:
            warm(machine)

    def free_bytes(self):
        """Returns what is free by the file system's own books, once they are up to date."""
        system.run("sync", "--file-system", self.folder)
        room = os.statvfs(self.folder)
        return room.f_bfree * room.f_frsize

    def read_bytes(self):
        """Returns how much was ever read from the loop device."""
        return system.disk_read_bytes(self.loop)


class MadeUp:
    """Makes a set of small machines, whose template is one of `guest_rows/made.py`."""

    def __init__(self, bench, path, settings=None):
        self._bench = bench
        self._path = path
        self._settings = settings or bench.settings
        self._status = ""

    def make(self, count, length=MADE_BYTES):
        """Makes the file system, with so many machines."""
        new = self._path.with_suffix(".new.device")
        with open(new, "wb") as file:
            file.truncate(length)
        system.run("mkfs.xfs", "-q", "-m", "reflink=1", new)
        with self._bench.mounted(new, name="made") as folder:
            made.image(folder / TEMPLATE, self._bench.folder / "tree", self._settings)
            self._status = self._make_packages(folder / PACKAGES / "files")
            for number in range(1, count + 1):
                self.add_machine(folder, number)
        new.rename(self._path)

    def _make_packages(self, tree):
        """Makes the packages that all machines get; returns their part of the list of packages."""
        for name in ("usr/share", "var/lib/dpkg/info"):
            (tree / name).mkdir(parents=True)
        names = [f"office-{number}" for number in range(self._settings.new_packages)]
        status = "".join(f"\n{made.package(tree, name)}" for name in names)
        (tree / "var/lib/dpkg/status").write_text(status, encoding="utf-8")
        return status

    def add_machine(self, folder, number):
        """Makes one more machine in the file system, which is mounted."""
        image = folder / f"machine-{number:02}.raw"
        system.run("cp", "--reflink=always", folder / TEMPLATE, image)
        with self._bench.mounted(image) as root:
            system.run(sys.executable, "-B", IDENTITY, root, str(number))
            # In an order of the machine's own, so that files lie elsewhere on each.
            source = folder / PACKAGES / "files"
            files = sorted(source.rglob("*"), key=lambda path: (path.is_file(), path.name))
            files = [path for path in files if path != source / "var/lib/dpkg/status"]
            start = number * 7 % max(1, len(files))
            for path in [path for path in files if path.is_dir()] + files[start:] + files[:start]:
                target = root / path.relative_to(source)
                if path.is_dir():
                    target.mkdir(exist_ok=True)
                else:
                    shutil.copy2(path, target)
            with open(root / "var/lib/dpkg/status", "a", encoding="utf-8") as file:
                file.write(self._status)
            self._write_log(root / "var/log/dpkg.log")

    def _write_log(self, path):
        now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S}"
        names = (f"office-{number}" for number in range(self._settings.new_packages))
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{now} install {name}:amd64 <none> 1.0-1\n" for name in names)

"""The images that rows look into, each made when it is first needed."""

import os
from contextlib import contextmanager

from lib import device, system
from lib.system import BenchError

from . import made
from .programs import data_ranges

MIB = 1 << 20
# `cp`'s way to keep holes holes.
SPARSE = ("--sparse=always", "--reflink=never")
# The dirty image has so many files that only its journal knows.
JOURNALED_FILES = 200
JOURNALED = "/only-in-the-journal"


class Images:
    """A folder of images. Their names end in `.device`, so that whatever way a run ends their loop devices go."""

    def __init__(self, folder, programs, settings):
        self.folder = folder
        self.programs = programs
        self.settings = settings
        # Where a file system is mounted.
        self.mountpoint = folder / "guest.mount"

    def open(self):
        """Copies the first image, or makes one up; it has a system with packages."""
        self.mountpoint.mkdir(exist_ok=True)
        if self.settings.images:
            system.run("cp", *SPARSE, self.settings.images[0], self.path("image"))
        else:
            made.image(self.path("image"), self.folder / "tree", self.settings)

    def path(self, name):
        return self.folder / f"{name}.device"

    def drop(self, *names):
        """Removes images."""
        for name in names:
            self.path(name).unlink(missing_ok=True)

    # Whole disks.

    @property
    def image(self):
        return self.path("image")

    def root(self):
        """Returns an image of nothing but the root file system, which other programs need."""
        path = self.path("root")
        if not path.exists():
            start, length = self._root_range()
            cut_out(self.image, path, start, length)
        return path

    def _root_range(self):
        told = self.programs.guest("info", self.image)["images"][0]
        roots = [mount["volume"] for one in told["systems"] for mount in one["mounts"] if mount["path"] == "/"]
        ranges = [volume["ranges"] for volume in told["volumes"] if volume["volume"] in roots]
        if len(ranges) != 1 or len(ranges[0]) != 1:
            raise BenchError("the image has no root file system in one piece")
        return ranges[0][0]

    def dirty(self):
        """Returns an image of the root file system as it is while it is mounted and in use.

        Raises BenchError where nothing is left to be recovered.
        """
        path = self.path("dirty")
        if path.exists():
            return path
        live = self.path("live")
        system.run("cp", *SPARSE, self.root(), live)
        with self.mounted(live):
            folder = self.mountpoint / JOURNALED.lstrip("/")
            folder.mkdir()
            for number in range(JOURNALED_FILES):
                (folder / f"file-{number}").write_bytes(b"x")
            # It commits the journal, and nothing else: what `sync` does would put all in its place.
            commit(folder)
            system.run("cp", *SPARSE, live, path)
        live.unlink()
        found = len(self.programs.guest("ls", path, JOURNALED)["files"])
        if found != JOURNALED_FILES or self._has_on_disk(path):
            raise BenchError(f"{found} of {JOURNALED_FILES} files are seen, and the journal has nothing to apply")
        return path

    def _has_on_disk(self, path):
        """Tells whether the directory is there without the journal, as debugfs sees it."""
        words = ("debugfs", "-R", f"ls -l {JOURNALED}", path)
        return "file-0" in system.run(*words).text

    def clones(self):
        """Makes clones of the image that share its blocks, on XFS; returns their folder, which is mounted."""
        path = self.path("clones")
        if not path.exists():
            with open(path, "wb") as file:
                file.truncate(max(320 * MIB, 2 * system.stored_bytes(self.image) + 512 * MIB))
            system.run("mkfs.xfs", "-q", "-f", "-m", "reflink=1", path)
        if not system.is_mounted(self.mountpoint):
            self._mount(path)
        folder = self.mountpoint / "clones"
        if not folder.exists():
            folder.mkdir()
            first = folder / "clone-0.raw"
            system.run("cp", *SPARSE, self.image, first)
            for number in range(1, self.settings.clones):
                system.run("cp", "--reflink=always", first, folder / f"clone-{number}.raw")
        return folder

    def one_file(self):
        """Returns an image of ext4 with one large file, `/large`."""
        path = self.path("large")
        if not path.exists():
            made.large(path, self.folder / "tree", self.settings.large_bytes)
        return path

    def with_the_tree(self, kind):
        """Returns an image of XFS or NTFS with the files of the root file system."""
        path = self.path(f"tree-{kind}")
        if path.exists():
            return path
        root = self.root()
        made.empty(path, kind, max(320 * MIB, root.stat().st_size))
        target = self.folder / "target.mount"
        target.mkdir(exist_ok=True)
        words = ("ntfs-3g",) if kind == "ntfs" else ("mount", "-t", kind, "-o", "loop")
        with self.mounted(root, "ro"):
            system.run(*words, path, target)
            try:
                made.copy_tree(self.mountpoint, target, kind)
            finally:
                system.run("umount", target)
                device.detach_loops(path)
        return path

    def sparse(self, kind):
        """Returns an image of a large ext4 or XFS with very many small files."""
        path = self.path(f"sparse-{kind}")
        if path.exists():
            return path
        tree = self.folder / "many"
        if not tree.exists():
            made.many_files(tree, self.settings.sparse_files)
        if kind == "ext4":
            made.ext4(path, tree, self.settings.sparse_bytes)
        else:
            made.empty(path, kind, self.settings.sparse_bytes)
            with self.mounted(path):
                system.run("cp", "--recursive", tree, self.mountpoint)
        return path

    # Mounts.

    @contextmanager
    def mounted(self, path, *options):
        """Has an image mounted meanwhile. Afterwards all is in the image, and no mount namespace has it mounted."""
        self._mount(path, *options)
        try:
            yield self.mountpoint
        finally:
            system.run("umount", self.mountpoint)
            device.detach_loops(path)

    def _mount(self, path, *options):
        system.run("mount", "-o", ",".join(("loop", *options)), path, self.mountpoint)

    def unmount_all(self):
        """Unmounts what is mounted, in whatever state it is."""
        for mountpoint in self.folder.glob("*.mount"):
            system.unmount(mountpoint)
        for path in self.folder.glob("*.device"):
            device.detach_loops(path)


def commit(folder):
    """Has all that was done in a folder durable."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def cut_out(source, target, start, length):
    """Makes a file of a part of another one; holes stay holes."""
    with open(source, "rb") as one, open(target, "wb") as other:
        other.truncate(length)
        for first, end in data_ranges(one):
            at, end = max(first, start), min(end, start + length)
            while at < end:
                at += os.copy_file_range(one.fileno(), other.fileno(), end - at, at, at - start)

"""The images that rows serve: a system of this machine's own files, a later version of it, and noise."""

import json
import os
import shutil
import stat
from pathlib import Path

from image_rows.packs import units_bytes
from lib import device, system
from lib.data import CHUNK_BYTES, UniqueData
from lib.runner import say
from lib.system import BenchError

# Where the files of the made-up system come from: they compress as those of any system do.
SOURCES = (Path("/usr/bin"), Path("/usr/lib"), Path("/usr/share"))
# Of the files of the later version, one in so many bytes is another one.
CHANGED_PART = 20
# What an ext4 needs beside its files.
ROOM_BYTES = 32 << 20
# The same in both versions, so that equal files lie in equal places.
FIXED = ("-U", "6f2a5b1e-0f0e-4f6e-9d6b-6d5b1f4c9a11", "-E", "hash_seed=6f2a5b1e-0f0e-4f6e-9d6b-6d5b1f4c9a12")
WEB, NEXT = "web", "next"
# Two of what does not compress: a long one, and a short one for many machines.
NOISE, SHORT = "noise", "short"
SEEDS = {NOISE: 77, SHORT: 78}


class Images:
    """The folder of a run: images, the archive that has them, and the targets of installations."""

    def __init__(self, place, programs, settings):
        self.place, self.programs, self.settings = place, programs, settings
        # What the second version added to the archive: stored bytes of its new units.
        self.changed_bytes = 0
        self._lists = {}

    @property
    def folder(self):
        return self.place.folder

    @property
    def targets(self):
        """Returns the folder of targets."""
        folder = self.folder / "targets"
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def archive(self):
        """Returns the archive."""
        self.ensure_archive()
        return self._archive

    def ensure_archive(self):
        """Makes the images and their archive, unless they are there."""
        if not self._archive.exists():
            self._make(self._archive)

    @property
    def _archive(self):
        return self.folder / "archive"

    def path(self, name):
        """Returns the image itself, as it was captured."""
        return self.folder / f"{name}.raw"

    def list_of(self, name):
        """Returns number and length of the chunks of an image, and the name of the last one."""
        if name not in self._lists:
            self._lists[name] = self.chunk_speed(name, "list")
        return self._lists[name]

    def chunk_speed(self, name, what):
        """Returns what the example `chunk_speed` measures of an image."""
        return json.loads(system.run(self.example("chunk_speed"), self.archive, name, what).text)

    def example(self, name):
        """Returns an example of the crate onefold-image that lies beside the program."""
        program = self.programs.onefold.parent / "examples" / name
        if not program.exists():
            raise BenchError(f"there is no program {program}: build the example `{name}`")
        return program

    def expect_installed(self, target, name):
        """Raises BenchError where a target does not have what the archive exports of an image."""
        export = self.folder / f"{name}.export"
        if not export.exists():
            system.run(self.programs.onefold, "image", "export", "--quiet", "--unsigned", self.archive, name, export)
        self.expect_same(target, export)

    @staticmethod
    def expect_same(one, other):
        """Raises BenchError where the first bytes of a file, or a disk, are not those of another file."""
        system.run("cmp", "-n", str(other.stat().st_size), one, other)

    def drop_targets(self):
        shutil.rmtree(self.folder / "targets", ignore_errors=True)

    def close(self):
        for path in self.folder.glob("*.device"):
            device.detach_loops(path)

    def _make(self, archive):
        say("  making the images and their archive")
        tree = self.folder / "tree"
        files = copy_files(tree, self.settings.image_bytes)
        length = self.settings.image_bytes + self.settings.image_bytes // 4 + ROOM_BYTES
        make_ext4(self.path(WEB), tree, length)
        change(files, self.settings.image_bytes // CHANGED_PART)
        make_ext4(self.path(NEXT), tree, length)
        shutil.rmtree(tree)
        make_noise(self.path(NOISE), SEEDS[NOISE], self.settings.noise_bytes)
        make_noise(self.path(SHORT), SEEDS[SHORT], self.settings.short_bytes)
        new = archive.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        system.run(self.programs.onefold, "archive", "create", "--quiet", new)
        before = 0
        for name in (WEB, NEXT, NOISE, SHORT):
            system.run(self.programs.onefold, "image", "capture", "--quiet", new, self.path(name), name)
            now = units_bytes(new)
            if name == NEXT:
                self.changed_bytes = now - before
            before = now
        new.rename(archive)


def copy_files(tree, length):
    """Copies files of this machine to a folder until they have so many bytes; returns their paths."""
    copied, left = [], length
    for number, path in enumerate(source_files()):
        size = path.stat().st_size
        if not 0 < size <= left:
            continue
        folder = tree / "usr" / "share" / f"{number // 1000:03}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{number % 1000:03}"
        shutil.copyfile(path, target)
        copied.append(target)
        left -= size
        if left < length // 100:
            break
    return copied


def source_files():
    """Yields the regular files of this machine's system, in order of their names."""
    for source in SOURCES:
        for folder, folders, names in os.walk(source):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path


def change(files, length):
    """Changes files, spread over all of them, until those that have changed have so many bytes."""
    step = max(1, len(files) // 200)
    # Zeros stay, since blocks of zeros become holes, and all files behind them would move.
    other = bytes(-byte % 256 for byte in range(256))
    for path in [*files[step // 2 :: step], *files]:
        if length <= 0:
            return
        content = path.read_bytes()
        path.write_bytes(content.translate(other))
        length -= len(content)


def make_noise(path, seed, length):
    """Makes a file of bytes that do not compress."""
    data = UniqueData(seed)
    with open(path, "wb") as file:
        for index in range(length // CHUNK_BYTES):
            file.write(data.chunk(index))


def make_ext4(path, tree, length):
    """Makes an ext4 with the files of a folder, at the same places for files of the same lengths."""
    system.run("mke2fs", "-q", "-F", "-t", "ext4", *FIXED, "-d", tree, path, f"{length >> 10}k")

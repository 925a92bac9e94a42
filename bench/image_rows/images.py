"""The sets of images that rows store: as they are, and with equal content for every side."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from guest_rows import made
from guest_rows.programs import warm
from lib import corpus, device, system
from lib.runner import say
from lib.system import BenchError

from .packs import units_bytes
from .plain import root_of
from .sides import sides

MIB = 1 << 20
# Images of a corpus's set that rows leave out: captured raw for now, which would measure nothing but Zstandard.
LEFT_OUT = {"distros": ("debian-13-btrfs",)}
# A server and clones of it.
DERIVED = "fbs"
# Sets that are no set of the corpus: names of images. The last has its row because `distros` leaves it out.
OTHERS = {"aligned": ("debian-12-base", "debian-12-misaligned"), "btrfs": LEFT_OUT["distros"]}
# What a made-up derived image has more than the one before.
MADE_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Added:
    """What one capture said in JSON, and what it added to the archive."""

    told: dict
    total_bytes: int
    # Compressed units without the headers of chunks.
    units_bytes: int


@dataclass(frozen=True)
class Captured:
    """A set in an archive with the defaults, image by image."""

    archive: Path
    added: list

    def sum(self, key):
        return sum(one.told[key] for one in self.added)

    @property
    def total_bytes(self):
        return sum(one.total_bytes for one in self.added)

    @property
    def metadata_bytes(self):
        """Returns all that is no unit of data: headers of chunks and units, tables, index, manifests, ledger."""
        return self.total_bytes - sum(one.units_bytes for one in self.added)


class Images:
    """The folder of a run: made-up images, an archive for each set, exports and targets."""

    def __init__(self, place, programs, settings):
        self.place, self.programs, self.settings = place, programs, settings
        self._captured, self._stores = {}, {}

    @property
    def folder(self):
        return self.place.folder

    def sides(self, is_wanted=lambda side: True):
        return sides(self.programs, self.settings, is_wanted)

    # Sets.

    def of(self, name):
        """Returns the images of a set that this run takes."""
        if self.settings.mode == "tiny":
            return self._made()
        return self._lived_in() if self._is_short(name) else paths_of(name)

    def _is_short(self, name):
        """Tells whether a quick run has an image and a version of it in place of a set."""
        return self.settings.mode == "quick" and name == DERIVED

    def captured(self, name):
        """Returns an archive with a set, made when it is first asked for; that of another set goes."""
        if name not in self._captured:
            self.drop_sets()
            images = self.of(name)
            say(f"  capturing {len(images)} images of `{name}`")
            self._captured[name] = capture(self.programs, self.folder / f"{name}.captured", images)
        return self._captured[name]

    def equal(self, name):
        """Returns a set's images with zeros in all free blocks, as the archive exports them."""
        return [self.equal_one(name, image) for image in self.of(name)]

    def equal_one(self, name, image):
        """Returns the same of one image of a set."""
        export = self.folder / f"{name}.equal" / image.name
        if not export.exists():
            archive = self.captured(name).archive
            export.parent.mkdir(exist_ok=True)
            system.run(self.programs.onefold, "image", "export", "--quiet", archive, image.stem, export)
        return export

    def drop_exports(self):
        for name in self._captured:
            shutil.rmtree(self.folder / f"{name}.equal", ignore_errors=True)

    def drop_sets(self):
        """Removes archives and exports."""
        self.drop_exports()
        for name in self._captured:
            shutil.rmtree(self.folder / f"{name}.captured")
        self._captured.clear()

    def _made(self):
        """Makes two images: the second is the first, lived in."""
        first, second = (self.folder / f"made-{number}.raw" for number in (1, 2))
        if not first.exists():
            made.image(first, self.folder / "tree", self.settings)
            system.run("cp", "--sparse=always", first, second)
            add_file(second, "new", MADE_FILE_BYTES, self.folder)
        return [first, second]

    def _lived_in(self):
        """Returns a real image, and a copy of it that was lived in."""
        first, second = paths_of(DERIVED)[0], self.folder / "lived-in.device"
        if not second.exists():
            system.run("cp", "--sparse=always", first, second)
            live_in(second, 1, self.settings.version_files, self.folder)
        return [first, second]

    # Stores of all sides, kept from a row to the next one that needs them.

    def store_with(self, side, paths):
        """Returns the folder of a side's store that has these images, in their order."""
        folder, stored = self._stores.get(side.name, (None, []))
        if folder is None or stored != paths[: len(stored)]:
            folder, stored = self.new_folder(f"{side.name}.store"), []
            side.create(folder)
        for image in paths[len(stored) :]:
            warm(image)
            side.store(folder, image, image.stem)
        self._stores[side.name] = folder, list(paths)
        return folder

    def drop_stores(self):
        for folder, _ in self._stores.values():
            shutil.rmtree(folder)
        self._stores.clear()

    # Folders that a turn makes and removes.

    def new_folder(self, name):
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def clear(self):
        """Removes all sets, stores and targets that rows have left."""
        self._captured.clear()
        self._stores.clear()
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def close(self):
        """Unmounts what is mounted, in whatever state it is."""
        for mountpoint in self.folder.glob("*.mount"):
            system.unmount(mountpoint)
        for path in self.folder.glob("*.device"):
            device.detach_loops(path)


def paths_of(name):
    """Returns where the images of a set lie, or would."""
    if name in OTHERS:
        first, *_ = corpus.images_of(OTHERS[name][0])
        paths = [first.with_name(f"{stem}.raw") for stem in OTHERS[name]]
    else:
        paths = [path for path in corpus.images_of(name) if path.stem not in LEFT_OUT.get(name, ())]
    folder = os.environ.get("ONEFOLD_IMAGES")
    return [Path(folder) / path.name for path in paths] if folder else paths


def missing_of(name, settings):
    """Returns why a set cannot be measured; None where it can."""
    if settings.mode == "tiny":
        return None
    # A quick run has the first of them only.
    wanted = paths_of(name)[:1] if settings.mode == "quick" and name == DERIVED else paths_of(name)
    absent = [path.stem for path in wanted if not path.is_file()]
    if not absent:
        return None
    return f"{', '.join(absent)} of the set not built: run `make corpus SETS=\"{' '.join(absent)}\"`"


def capture(programs, folder, images, kind=()):
    """Captures images one after the other into a new archive in a folder, with a kind of units as `create` names it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    archive, added, total, units = folder / "archive", [], 0, 0
    system.run(programs.onefold, "archive", "create", "--quiet", archive, *kind)
    for image in images:
        words = ("image", "capture", "--quiet", "--json", archive, image, image.stem)
        told = json.loads(system.run(programs.onefold, *words).text)["images"][0]
        stat = json.loads(system.run(programs.onefold, "archive", "stat", "--json", archive).text)
        now = units_bytes(archive)
        added.append(Added(told, stat["stored_bytes"] - total, now - units))
        total, units = stat["stored_bytes"], now
    return Captured(archive, added)


def live_in(image, number, count, folder):
    """Has a guest rewrite some of its files, and make a new one, through the kernel's file system."""
    mountpoint = folder / "lived-in.mount"
    mountpoint.mkdir(exist_ok=True)
    system.run("mount", "-o", f"loop,offset={root_of(image).start}", image, mountpoint)
    try:
        files = sorted(path for path in (mountpoint / "usr").rglob("*") if path.is_file() and not path.is_symlink())
        for path in files[number :: max(1, len(files) // count)]:
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] + f"version {number}".encode() + content[len(content) // 2 :])
        fresh = mountpoint / "usr" / f"version-{number}"
        fresh.write_bytes(b"".join(f"{number} {line}\n".encode() for line in range(100_000)))
    finally:
        system.unmount(mountpoint)
        # The loop device goes some time later, and writes until then: no program may find the image changing.
        device.detach_loops(image)
    system.run("sync", image)


def add_file(image, name, length, folder):
    """Writes a file of noise into an unmounted ext4 without partitions."""
    content = folder / "content"
    content.write_bytes(os.urandom(length))
    system.run("debugfs", "-w", "-R", f"write {content} {name}", image)
    content.unlink()


def expect_equal(one, other):
    """Raises BenchError where two files differ: a program that returns something else was not measured."""
    try:
        system.run("cmp", one, other)
    except BenchError as error:
        raise BenchError(f"{other.name} did not come back: {error}") from error



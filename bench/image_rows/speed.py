"""How fast images are stored and come back."""

import shutil

from guest_rows.programs import timed, warm
from lib import caches, device, system
from lib.measure import Cost, Sample, Work
from lib.rows.beside import ONEFOLD, alternating
from lib.runner import say

from .images import DERIVED, MIB, expect_equal, live_in, missing_of
from .line import ImageLine
from .row import ImageRow
from .sides import Onefold
from .stored import smaller


class StoresRow(ImageRow):
    """A row that needs a store on each side with the images of the derived set, all of them or all but the last."""

    stores_last = True

    def missing(self, settings):
        return missing_of(DERIVED, settings)

    def is_wanted(self, side):
        """Tells whether a side takes part."""
        return True

    def prepare(self, images, settings):
        # A disk has no room for both.
        images.drop_exports()
        paths, self._stores = images.of(DERIVED), {}
        for side in images.sides(self.is_wanted):
            say(f"  filling the store of {side.name}")
            # One that shares nothing is as fast without the others.
            wanted = paths if side.deduplicates else paths[-1:]
            self._stores[side.name] = images.store_with(side, wanted if self.stores_last else wanted[:-1])


class StoreRow(StoresRow):
    """One more image, and the same once more."""

    name = "store"
    share_of_time = 3.0
    stores_last = False

    def make_lines(self, settings):
        for key, title, bound, aim in (
            ("store-new", "storing one new image, warm", 1.0, 1.5),
            ("store-again", "storing it again, touched, so that every program looks at its content", 3.0, 8.0),
            ("store-untouched", "storing it again, untouched: some programs compare only times and skip it", 3.0, 8.0),
        ):
            yield ImageLine(key, title, "MiB/s", bound=bound, aim=aim, beside="fastest peer")

    def measure(self, images, settings, round_no):
        image = self._touchable(images)
        for side in alternating(round_no, *images.sides(self.is_wanted)):
            folder = images.folder / "turn"
            shutil.rmtree(folder, ignore_errors=True)
            system.run("cp", "--archive", self._stores[side.name], folder)
            # Copies of stores are no work of the turn.
            system.run("sync", "-f", folder)
            for number, key in enumerate(("store-new", "store-untouched", "store-again")):
                if key == "store-again":
                    image.touch()
                warm(image)
                took = side.store(folder, image, f"turn-{number}")
                yield key, side.name, rate(image.stat().st_size, took)
            shutil.rmtree(folder)

    def _touchable(self, images):
        """Returns a copy of the last image, as its times are changed."""
        source = images.of(DERIVED)[-1]
        copy = images.folder / "touched" / source.name
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            system.run("cp", "--sparse=always", source, copy)
        return copy

    def finish(self, images, settings):
        shutil.rmtree(images.folder / "touched")


class InstallRow(StoresRow):
    """The last image of the set, out of a store of which nothing is in memory."""

    name = "install"
    share_of_time = 3.0

    def make_lines(self, settings):
        yield smaller("install-zstd", "install to a new file, cold", "s", 0.9, 0.5, beside="`zstd -d`")
        yield smaller("install-peer", "the same", "s", 0.5, 0.25, beside="fastest deduplicating peer")
        yield smaller("install-loop", "install to a loop disk, cold", "s", 0.9, 0.5, beside="`zstd -d`")
        yield smaller("install-cpu", "processor time of an install to a new file", "s", 1.2, 0.9, beside="`zstd -d`")

    def is_wanted(self, side):
        return side.deduplicates or side.name in (ONEFOLD, "zstd")

    def measure(self, images, settings, round_no):
        image = images.of(DERIVED)[-1]
        for side in alternating(round_no, *images.sides(self.is_wanted)):
            folder = self._stores[side.name]
            caches.forget_all(folder)
            target = images.folder / "target"
            took = side.restore(folder, image, image.stem, target)
            if round_no == 0:
                whole = images.equal_one(DERIVED, image) if side.name == ONEFOLD else image
                expect_equal(whole, side.restored_file(image, target))
            remove(target)
            keys = ["install-peer"] if side.deduplicates else []
            if side.name in (ONEFOLD, "zstd"):
                keys.append("install-zstd")
                yield "install-cpu", side.name, Sample(took.cpu_seconds)
            for key in keys:
                yield key, side.name, Sample(took.seconds, Cost(took.cpu_seconds), more={"read_bytes": took.read_bytes})
        yield from self._to_loop(images, image, round_no)

    def _to_loop(self, images, image, round_no):
        disk = images.folder / "install.device"
        if not disk.exists():
            device.allocate(disk, image.stat().st_size)
        loop = device.attach_loop(disk)
        archive, packed = (self._stores[name] / "store" for name in (ONEFOLD, "zstd"))
        packed = packed / f"{image.stem}.zst"
        install = (images.programs.onefold, "image", "install", "--quiet", "--force", archive, image.stem, loop)
        script = f"zstd -dc --quiet {packed} | dd of={loop} bs=4M iflag=fullblock oflag=direct conv=fsync status=none"
        commands = ((ONEFOLD, install, archive), ("zstd", ("bash", "-o", "pipefail", "-ec", script), packed.parent))
        try:
            for side, command, folder in alternating(round_no, *commands):
                caches.forget_all(folder)
                took = timed(*command)
                yield "install-loop", side, Sample(took.seconds, Cost(took.cpu_seconds))
        finally:
            device.detach_loops(disk)

    def finish(self, images, settings):
        images.drop_stores()
        (images.folder / "install.device").unlink(missing_ok=True)


class VersionsRow(ImageRow):
    """An image and versions of it, each lived in since the one before; the last one lies in packs of all of them."""

    name = "versions"
    share_of_time = 2.0
    sides = (ONEFOLD, "first")

    def make_lines(self, settings):
        title = f"cold install of derived version {settings.versions}"
        yield ImageLine("versions", title, "MiB/s", bound=0.7, aim=0.9, beside="of the first version")

    def missing(self, settings):
        return missing_of(DERIVED, settings)

    def prepare(self, images, settings):
        super().prepare(images, settings)
        folder = images.new_folder("versions")
        self._side = Onefold(images.programs)
        self._side.create(folder)
        image = images.folder / "version.device"
        system.run("cp", "--sparse=always", images.of(DERIVED)[0], image)
        for number in range(1, settings.versions + 1):
            if number > 1:
                live_in(image, number, settings.version_files, images.folder)
            self._side.store(folder, image, "versions")
        self._folder, self._bytes = folder, system.stored_bytes(image)
        image.unlink()

    def measure(self, images, settings, round_no):
        target = images.folder / "target"
        for side, version in alternating(round_no, (ONEFOLD, settings.versions), ("first", 1)):
            caches.forget_all(self._folder)
            took = self._side.restore(self._folder, target, f"versions@{version}", target)
            yield "versions", side, rate(system.stored_bytes(target), took)
            remove(target)

    def finish(self, images, settings):
        shutil.rmtree(self._folder)


def rate(length, took):
    """Returns the sample of a whole process that went through so many bytes."""
    return Sample(length / MIB / took.seconds, Cost(took.cpu_seconds), Work.moved(length), {"seconds": took.seconds})


def remove(target):
    """Removes a file, or a folder with all in it."""
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()

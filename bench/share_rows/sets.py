"""A whole pass over a set of images with cold caches, beside duperemove; and the next pass over the same images."""

import json
import tempfile
from pathlib import Path

from lib import system
from lib.data import BLOCK_BYTES, CHUNK_BYTES, ImageData, UniqueData
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, lower
from lib.rows.row import seed_of
from lib.system import BenchError

from .ground import XFS
from .row import ShareRow

MIB = 1 << 20
# duperemove's usual unit and the smallest, by short names.
UNITS = ("128k", "4k")
# Whatever it can use: hashes in memory, and both cores.
ALWAYS = ("-d", "-r", "-q", "--io-threads=2", "--cpu-threads=2")
# Where its hashes are kept, so that no disk is waited for.
MEMORY = Path("/dev/shm")


class SetRow(ShareRow):
    """Each program has the images copied anew; zero blocks are holes in all copies."""

    base = "set"
    needed = ("duperemove",)
    share_of_time = 3.0
    # Parts of extents, too: without them it frees less of images that differ.
    options = ("--dedupe-options=partial",)
    rounds_max = 2

    def what(self, settings):
        """Returns what is shared, in words."""
        return what_is_copied(settings)

    def make_lines(self, settings):
        for unit in UNITS:
            beside = " ".join(("duperemove", "-b", unit, *self.options))
            time = f"whole pass over {self.what(settings)} on {self.where}, cold caches"
            yield lower(f"{self.name}-time-{unit}", time, "s", goal="5x", beside=beside)
            yield lower(f"{self.name}-cpu-{unit}", "its processor time", "s", goal="5x", beside=beside)
            freed = "more free afterwards, by df"
            yield BesideLine(f"{self.name}-freed-{unit}", freed, "MiB", goal="report", beside=beside, has_ratio=False)
            title = "that is, for each second of processor time"
            yield BesideLine(f"{self.name}-gain-{unit}", title, "MiB/s", goal="5x", beside=beside)
        yield from self.further_lines()

    def further_lines(self):
        """Returns those that have nothing to do with duperemove."""
        aim = "0.99x" if self.kind == XFS else "report"
        title = f"more free afterwards on {self.where}, by df, and what `analyze` foretells"
        yield BesideLine(f"{self.name}-forecast", title, "MiB", goal=aim, beside="`analyze`")
        entry = "bytes of the index for each entry of it"
        yield lower(f"{self.name}-entry", entry, "B", goal="at most 23 B", paper="about 23 B")
        again = f"the next pass over the unchanged images on {self.where}, cold caches"
        yield lower(f"{self.name}-again", again, "s", goal="report", beside="the first pass")
        read = "what it reads of them"
        yield lower(f"{self.name}-again-read", read, "MiB", goal="report", beside="the first pass", has_ratio=False)

    def measure(self, ground, settings, round_no):
        known = {line.key for line in self.lines}
        yield from (sample for sample in self._share(ground, settings, round_no) if sample[0] in known)
        for unit in UNITS:
            yield from self._duperemove(ground, settings, round_no, unit)

    def _share(self, ground, settings, round_no):
        self.copy(ground, settings, round_no)
        forecast = self._forecast(ground)
        before = ground.free_bytes()
        ground.make_cold()
        done = ground.share()
        freed = ground.free_bytes() - before
        for unit in UNITS:
            yield f"{self.name}-time-{unit}", ONEFOLD, Sample(done.seconds, more=done.told)
            yield f"{self.name}-cpu-{unit}", ONEFOLD, Sample(done.cost.client_seconds)
            yield from self._freed(unit, ONEFOLD, freed, done.cost)
        yield f"{self.name}-forecast", ONEFOLD, Sample(freed / MIB, more={"state_bytes": ground.state_bytes()})
        yield f"{self.name}-forecast", OTHER, Sample(forecast / MIB)
        index = done.told["index"]
        yield f"{self.name}-entry", ONEFOLD, Sample(index["bytes"] / (index["unique"] + index["shared"]), more=index)
        yield f"{self.name}-again", OTHER, Sample(done.seconds)
        yield f"{self.name}-again-read", OTHER, Sample(done.told["scanned"]["read_bytes"] / MIB)
        ground.make_cold()
        again = ground.share()
        yield f"{self.name}-again", ONEFOLD, Sample(again.seconds, more=again.told)
        yield f"{self.name}-again-read", ONEFOLD, Sample(again.told["scanned"]["read_bytes"] / MIB)
        ground.close()

    def _duperemove(self, ground, settings, round_no, unit):
        self.copy(ground, settings, round_no)
        before = ground.free_bytes()
        ground.make_cold()
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
            words = ("duperemove", *ALWAYS, f"--hashfile={folder}/hashes", "-b", unit, *self.options, ground.mountpoint)
            finished, cost = ground.timed(*words, timeout=settings.other_seconds_max)
        freed = ground.free_bytes() - before
        yield f"{self.name}-time-{unit}", OTHER, Sample(finished.seconds)
        yield f"{self.name}-cpu-{unit}", OTHER, Sample(cost.client_seconds)
        yield from self._freed(unit, OTHER, freed, cost)
        ground.close()

    def _freed(self, unit, side, freed, cost):
        yield f"{self.name}-freed-{unit}", side, Sample(freed / MIB)
        # What its records take may be more than it freed.
        yield f"{self.name}-gain-{unit}", side, Sample(max(freed, 0) / MIB / cost.client_seconds)

    def copy(self, ground, settings, round_no):
        """Makes a file system with the images."""
        ground.open()
        copy_set(ground, settings, seed_of(round_no, use=33))

    @staticmethod
    def _forecast(ground):
        """Returns how many bytes `analyze` foretells."""
        images = sorted(ground.mountpoint.glob("*.raw"))
        text = system.run(ground.programs.onefold, "analyze", "--quiet", "--json", *images).text
        sizes = json.loads(text)["block_sizes"]
        found = [size["saved_bytes"] for size in sizes if size["block_bytes"] == BLOCK_BYTES]
        if not found:
            raise BenchError("`analyze` tells nothing of blocks of 4 KiB")
        return found[0]


class CopiesRow(SetRow):
    """Where duperemove finds all there is: full copies of one image, in whole extents."""

    base = "copies"
    options = ()
    COPIES = 3

    def what(self, settings):
        return f"an image and {self.COPIES - 1} full copies of it"

    def further_lines(self):
        return ()

    def copy(self, ground, settings, round_no):
        if not settings.images:
            seed = seed_of(round_no, use=37)
            ground.open()
            for number in range(self.COPIES):
                ground.write(f"copy-{number}.raw", UniqueData(seed), settings.image_bytes)
            return
        ground.open()
        for number in range(self.COPIES):
            ground.copy(settings.images[0], f"copy-{number}.raw")


def what_is_copied(settings):
    """Returns what `copy_set` brings, in words."""
    return f"{len(settings.images)} real images" if settings.images else f"{settings.images_made} made-up images"


def copy_set(ground, settings, seed):
    """Copies the real images that there are, or makes up some."""
    for image in settings.images:
        ground.copy(image)
    if not settings.images:
        write_images(ground, seed, settings.images_made, settings.image_bytes)


def write_images(ground, seed, count, length):
    """Makes up images, each of which has a part in common with the one before it; zero blocks are holes."""
    hole_bytes = ImageData.ZERO * ImageData.RUN_BLOCKS * BLOCK_BYTES
    for number in range(count):
        ground.write(f"image-{number}.raw", ImageData(seed, number, length // CHUNK_BYTES), length, hole_bytes)


def stored_bytes(settings):
    """Returns what the set takes of the disk."""
    if settings.images:
        return system.stored_bytes(*settings.images)
    return settings.images_made * settings.image_bytes

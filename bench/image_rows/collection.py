"""Removal and collection in an archive of very many images, which are made up: each block of 4 KiB is a unit."""

import random
import shutil
import struct

from guest_rows.programs import timed
from lib import system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD
from lib.runner import say
from lib.system import BenchError

from .packs import files
from .row import ImageRow
from .stored import smaller

UNIT_BYTES = 4096
# Of an image's own units, so many more are another image's, too: images share, and packs are needed in part.
SHARED_PART = 5
# How many images lie on the disk at once, before they are captured.
BATCH = 25
# Whatever is retired goes at once, and no writer runs that could be waited for.
HASTE = ("--delay", "0s", "--silence", "0s")


class CollectionRow(ImageRow):
    """One image in ten is removed, and what nothing else needs is collected."""

    name = "collection"
    sides = (ONEFOLD,)
    share_of_time = 6.0
    rounds_max = 1
    in_quick = False

    def make_lines(self, settings):
        units = settings.many_images * settings.many_units
        title = f"{settings.many_images:,} images of {units:,} units, one in ten removed: `rm`"
        yield smaller("collection-rm", title, "s", 1, 0.2)
        yield smaller("collection-gc", "`gc`", "s", 60, 15)
        yield smaller("collection-kept", "bytes of packs kept beyond need", "%", 15, 5)
        yield smaller("collection-check", "`check`", "s", 60, 15)

    def missing(self, settings):
        return None if settings.collects else "this `archive` has no gc"

    def measure(self, images, settings, round_no):
        onefold = images.programs.onefold
        folder = images.new_folder("many")
        archive = folder / "archive"
        system.run(onefold, "archive", "create", "--quiet", "--unit", "fixed", "--unit-size", "4K", archive)
        dice = random.Random(round_no)
        images_units = [units_of(number, settings.many_units, dice) for number in range(settings.many_images)]
        fill(onefold, archive, images_units, folder / "batch")
        before, distinct = packs_bytes(archive), count(images_units)
        removed = set(range(0, settings.many_images, 10))
        names = [f"{name_of(number)}@1" for number in sorted(removed)]
        yield "collection-rm", ONEFOLD, seconds(timed(onefold, "image", "rm", "--quiet", archive, *names))
        yield "collection-gc", ONEFOLD, seconds(timed(onefold, "archive", "gc", "--quiet", *HASTE, archive))
        needed = count(units for number, units in enumerate(images_units) if number not in removed)
        kept = 100 * (packs_bytes(archive) / (before * needed / distinct) - 1)
        more = {"before_bytes": before, "needed": needed, "units": distinct}
        yield "collection-kept", ONEFOLD, Sample(kept, more=more)
        yield "collection-check", ONEFOLD, seconds(timed(onefold, "archive", "check", "--quiet", archive))
        shutil.rmtree(folder)


def collects(onefold):
    """Tells whether the program has a collection, as its help says."""
    return "\n  gc " in system.run(onefold, "archive", "--help").text


def units_of(number, count_of_units, dice):
    """Returns the numbers of an image's units: its own, in order, and some of one image before it."""
    own = range(number * count_of_units, (number + 1) * count_of_units)
    if number == 0:
        return (own,)
    start = dice.randrange(number) * count_of_units
    return own, range(start, start + count_of_units // SHARED_PART)


def count(images_units):
    """Returns how many distinct units some images have."""
    return len({unit for ranges in images_units for units in ranges for unit in units})


def name_of(number):
    return f"image-{number:05}"


def fill(onefold, archive, images_units, batch):
    """Makes the images and captures them, some at a time."""
    for start in range(0, len(images_units), BATCH):
        batch.mkdir()
        for number, ranges in enumerate(images_units[start : start + BATCH], start):
            with open(batch / f"{name_of(number)}.raw", "wb") as file:
                for units in ranges:
                    file.writelines(content(unit) for unit in units)
        system.run(onefold, "image", "capture", "--quiet", archive, "--each", batch)
        shutil.rmtree(batch)
        say(f"  {min(start + BATCH, len(images_units))} images are captured")
    listed = system.run(onefold, "image", "list", archive).text.count("image-")
    if listed != len(images_units):
        raise BenchError(f"{listed} images are listed, not {len(images_units)}")


def content(unit):
    """Returns a unit: no two are equal, none is zero, and all compress well."""
    return struct.pack("<Q", unit + 1) * (UNIT_BYTES // 8)


def packs_bytes(archive):
    return sum(path.stat().st_size for path in files(archive, "packs"))


def seconds(took):
    return Sample(took.seconds, Cost(took.cpu_seconds), more={"memory_bytes": took.memory_bytes})

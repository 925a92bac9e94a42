"""Real disk images out of the folder that `make demo` and `make corpus` fill."""

import os
from pathlib import Path

from . import system
from .programs import REPOSITORY
from .system import BenchError

SCRIPT = REPOSITORY / "bench" / "corpus" / "corpus.sh"
# Where they are built.
CACHE = REPOSITORY / "bench" / "corpus" / "cache"
# The demo's set, of which all have something in common with others.
FIRST = ("debian-12-base", "debian-12-web", "debian-13-base", "debian-13-web")


def images_of(name):
    """Returns the paths of a set's images, built or not."""
    return [Path(line) for line in system.run(SCRIPT, "path", name).text.splitlines()]


def folder():
    """Returns where images of sets are looked for: what ONEFOLD_IMAGES names, else where they are built."""
    return Path(os.environ.get("ONEFOLD_IMAGES") or CACHE)


def found(images):
    """Returns the absolute paths of images that were named. Raises BenchError where one is not there."""
    for image in images:
        if not image.is_file():
            raise BenchError(f"there is no image {image}")
    return tuple(image.absolute() for image in images)


def find_image(folder, device_bytes):
    """Returns the first image of a folder whose stored bytes fit twice on a side's disk (ext4 keeps both copies)."""
    for image in sorted(folder.glob("*.raw")):
        if 2 * system.stored_bytes(image) < device_bytes * 0.9:
            return image
    return None


def find_images(folder, bytes_max):
    """Returns the demo's images, and after them others by name, as many as fit by what they store."""
    fitting, room = [], bytes_max
    for image in sorted(folder.glob("*.raw"), key=lambda image: (image.stem not in FIRST, image.name)):
        stored = system.stored_bytes(image)
        if stored > room:
            break
        fitting.append(image)
        room -= stored
    return tuple(fitting)

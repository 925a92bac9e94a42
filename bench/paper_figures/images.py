"""The images of Figures 11 and 12: real ones where there are some, else some made from a seed."""

import os

from lib import system
from lib.data import CHUNK_BYTES, UniqueData
from lib.rows.row import seed_of
from lib.system import BenchError

# Of sixteen chunks of a made image so many are the same in all, and its own; the rest is a hole. The paper's images
# of one distribution share 33 to 60 % of what is not zero (Experiment B1), and here it is half.
CHUNKS_OF_PATTERN = 16
SHARED_CHUNKS = 6
OWN_CHUNKS = 6

# The part of a disk that images may take: ext4 stores every byte of them.
DEVICE_PART_MAX = 0.85


def chosen(named, cache, device_bytes, count):
    """Returns the images to use: those named, else the first of the cache; none where not so many are there and fit."""
    candidates = list(named) or sorted(cache.glob("*.raw"))[:count]
    found, stored = [], 0
    for image in candidates:
        if not image.is_file():
            raise BenchError(f"there is no image {image}")
        stored += system.stored_bytes(image)
        if stored > device_bytes * DEVICE_PART_MAX:
            if named:
                raise BenchError(f"{image} does not fit beside the others on a disk of {device_bytes >> 20} MiB")
            return []
        found.append(image.absolute())
    return found if named or len(found) == count else []


def make(folder, length, count):
    """Makes images that share half of their data, in the same runs each time they are made; returns their paths."""
    paths = []
    shared = UniqueData(seed_of(0, use=10))
    for number in range(count):
        own = UniqueData(seed_of(number, use=11))
        path = folder / f"made-{number + 1}.raw"
        with open(path, "wb", buffering=0) as file:
            for index in range(length // CHUNK_BYTES):
                place = index % CHUNKS_OF_PATTERN
                if place < SHARED_CHUNKS:
                    file.write(shared.chunk(index))
                elif place < SHARED_CHUNKS + OWN_CHUNKS:
                    file.write(own.chunk(index))
                else:
                    file.seek(CHUNK_BYTES, os.SEEK_CUR)
            file.truncate(length)
        paths.append(path)
    return paths

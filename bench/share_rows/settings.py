"""How much is shared: the full run, the quick one, and one that only shows that everything works."""

from dataclasses import dataclass
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes, times in seconds."""

    mode: str
    rounds: int
    # What a row may take as a rule: see `share_of_time` in lib/rows/row.py.
    row_seconds: float
    # The disk on which each row's file system is made.
    device_bytes: int
    # Of each of two files whose blocks are equal: in single blocks, in long runs, and beside a guest.
    shuffled_bytes: int
    runs_bytes: int
    guest_bytes: int
    # Of the file that is read before and after it was shared.
    read_bytes: int
    fio_seconds: int
    # Of each of twenty images beside a watch, and how long their guests write.
    watch_image_bytes: int
    watch_seconds: int
    # Of made-up images, and how many there are where there are no real ones.
    image_bytes: int
    images_made: int
    # What the real images of a set may take together.
    images_bytes_max: int
    # How long another program may work on the set.
    other_seconds_max: int
    # Entries of the described index, and how many blocks are merged into it.
    index_entries: int
    index_news: int
    # Real images, where there are some.
    images: tuple[Path, ...] = ()


FULL = Settings(
    mode="full",
    rounds=3,
    row_seconds=40,
    device_bytes=8 * GIB,
    shuffled_bytes=256 * MIB,
    runs_bytes=1 * GIB,
    guest_bytes=512 * MIB,
    read_bytes=384 * MIB,
    fio_seconds=4,
    watch_image_bytes=128 * MIB,
    watch_seconds=60,
    image_bytes=512 * MIB,
    images_made=5,
    images_bytes_max=2700 * MIB,
    other_seconds_max=150,
    index_entries=1 << 28,
    index_news=1 << 23,
)
QUICK = Settings(
    mode="quick",
    rounds=1,
    row_seconds=12,
    device_bytes=2 * GIB,
    shuffled_bytes=64 * MIB,
    runs_bytes=256 * MIB,
    guest_bytes=48 * MIB,
    read_bytes=96 * MIB,
    fio_seconds=1,
    watch_image_bytes=32 * MIB,
    watch_seconds=20,
    image_bytes=64 * MIB,
    images_made=4,
    images_bytes_max=0,
    other_seconds_max=60,
    index_entries=1 << 24,
    index_news=1 << 20,
)
TINY = Settings(
    mode="tiny",
    rounds=1,
    row_seconds=60,
    device_bytes=512 * MIB,
    shuffled_bytes=6 * MIB,
    runs_bytes=16 * MIB,
    guest_bytes=12 * MIB,
    read_bytes=12 * MIB,
    fio_seconds=1,
    watch_image_bytes=4 * MIB,
    watch_seconds=3,
    image_bytes=8 * MIB,
    images_made=2,
    images_bytes_max=0,
    other_seconds_max=60,
    index_entries=1 << 16,
    index_news=1 << 10,
)


# The demo's set, of which all have something in common with others.
FIRST = ("debian-12-base", "debian-12-web", "debian-13-base", "debian-13-web")


def find_images(folder, bytes_max):
    """Returns the demo's images, and after them others by name, as many as fit by what they store."""
    found, room = [], bytes_max
    for image in sorted(folder.glob("*.raw"), key=lambda image: (image.stem not in FIRST, image.name)):
        stored = image.stat().st_blocks * 512
        if stored > room:
            break
        found.append(image)
        room -= stored
    return tuple(found)

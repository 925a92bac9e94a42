"""How much is measured: the full run, the quick one, and one that only shows that everything works."""

from dataclasses import dataclass
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes, times in seconds."""

    mode: str
    rounds: int
    # What a row may take as a rule: see `share_of_time` in rows/row.py.
    row_seconds: float
    # Each side's disk. It holds two large files, or one and an image.
    device_bytes: int
    file_bytes: int
    # Of the files that are written with 4 KiB in each call, and of those that lie in bits and pieces.
    small_writes_bytes: int
    layout_bytes: int
    # Of the pool whose free space lies in single blocks, and of the file that is written there.
    punched_device_bytes: int
    punched_write_bytes: int
    # Of the file on a slowed disk, and of the one that is twice as long as the memory.
    slow_bytes: int
    beyond_memory_bytes: int
    fio_seconds: int
    fsync_file_bytes: int
    fsync_seconds: int
    # Of each image of a large import, and how many there are.
    import_image_bytes: int
    import_images: int
    # From the beginning of a write to the crash.
    recovery_seconds: float
    small_files: int
    # How many guests boot at once.
    guests: int = 20
    # The pool's `--memory`.
    memory: str = "1G"
    # A real disk image, if there is one that fits.
    image: Path | None = None
    # Where a recorded boot is kept for the next run.
    records: Path | None = None


FULL = Settings(
    mode="full",
    rounds=5,
    row_seconds=45,
    device_bytes=10 * GIB,
    file_bytes=4 * GIB,
    small_writes_bytes=GIB,
    layout_bytes=2 * GIB,
    punched_device_bytes=4 * GIB,
    punched_write_bytes=GIB,
    slow_bytes=384 * MIB,
    beyond_memory_bytes=4 * GIB,
    fio_seconds=4,
    fsync_file_bytes=256 * MIB,
    fsync_seconds=3,
    import_image_bytes=1920 * MIB,
    import_images=10,
    recovery_seconds=7,
    small_files=10_000,
)
QUICK = Settings(
    mode="quick",
    rounds=3,
    row_seconds=6,
    device_bytes=1536 * MIB,
    file_bytes=512 * MIB,
    small_writes_bytes=128 * MIB,
    layout_bytes=256 * MIB,
    punched_device_bytes=512 * MIB,
    punched_write_bytes=128 * MIB,
    slow_bytes=128 * MIB,
    beyond_memory_bytes=512 * MIB,
    fio_seconds=1,
    fsync_file_bytes=64 * MIB,
    fsync_seconds=1,
    import_image_bytes=64 * MIB,
    import_images=8,
    recovery_seconds=7,
    small_files=2_000,
)
TINY = Settings(
    mode="tiny",
    rounds=1,
    row_seconds=60,
    device_bytes=512 * MIB,
    file_bytes=16 * MIB,
    small_writes_bytes=4 * MIB,
    layout_bytes=16 * MIB,
    punched_device_bytes=64 * MIB,
    punched_write_bytes=8 * MIB,
    slow_bytes=96 * MIB,
    beyond_memory_bytes=192 * MIB,
    fio_seconds=1,
    fsync_file_bytes=8 * MIB,
    fsync_seconds=1,
    import_image_bytes=16 * MIB,
    import_images=3,
    recovery_seconds=1,
    small_files=100,
    guests=2,
    memory="64M",
)


def find_image(folder, device_bytes):
    """Returns the first image of a folder whose stored bytes fit twice on a side's disk (ext4 keeps both copies)."""
    for image in sorted(folder.glob("*.raw")):
        if 2 * image.stat().st_blocks * 512 < device_bytes * 0.9:
            return image
    return None

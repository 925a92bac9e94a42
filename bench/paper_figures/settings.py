"""How much is measured: the full run, the quick one, and one that only shows that everything works."""

from dataclasses import dataclass

from .variants import PAPER_INDEX_BITS, PAPER_TAG_BITS

MIB = 1 << 20

# Figure 12 fetches so many at once, at most.
IMAGES_MAX = 4


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes."""

    mode: str
    rounds: int
    # Crashes and images take longer, so there are fewer of them.
    crash_rounds: int
    image_rounds: int
    # Holds two large files, and four images, on ext4 too.
    device_bytes: int
    file_bytes: int
    # The file that a crash interrupts: long enough to hit its middle.
    crash_bytes: int
    # Length of each image that is made where there are no real ones.
    synthetic_bytes: int
    # So many images, where none are named.
    image_count: int = IMAGES_MAX
    # The pool's `--memory`.
    memory: str = "1G"
    index_bits: int = PAPER_INDEX_BITS
    tag_bits: int = PAPER_TAG_BITS


FULL = Settings(
    mode="full",
    rounds=5,
    crash_rounds=3,
    image_rounds=2,
    device_bytes=4608 * MIB,
    file_bytes=1024 * MIB,
    crash_bytes=1024 * MIB,
    synthetic_bytes=1024 * MIB,
)
QUICK = Settings(
    mode="quick",
    rounds=3,
    crash_rounds=2,
    image_rounds=1,
    device_bytes=1536 * MIB,
    file_bytes=256 * MIB,
    crash_bytes=512 * MIB,
    synthetic_bytes=256 * MIB,
)
TINY = Settings(
    mode="tiny",
    rounds=1,
    crash_rounds=1,
    image_rounds=1,
    device_bytes=320 * MIB,
    file_bytes=16 * MIB,
    crash_bytes=160 * MIB,
    synthetic_bytes=16 * MIB,
    image_count=2,
    memory="64M",
)

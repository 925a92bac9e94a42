"""How large the pools are: the full run, the quick one, and one that only shows that everything works."""

from dataclasses import dataclass

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Settings:
    """Sizes in bytes or blocks, times in seconds."""

    mode: str
    rounds: int
    # What a row may take as a rule: see `share_of_time` in lib/rows/row.py.
    row_seconds: float
    # Of the pools that the same is written into, from the smallest on.
    curve_blocks: tuple
    # Of the pool that is mounted, crashed, and loses its one file.
    large_blocks: int
    # `--memory` of the two kinds, in MiB.
    curve_memory_mib: int
    large_memory_mib: int
    # What is written in one stream.
    stream_bytes: int
    # The file with data in the large pool, which requests of 4 KiB go to.
    scratch_bytes: int
    # Of one sample of requests, and how many samples there are.
    fio_seconds: int
    fio_samples: int
    # How long reclaim is watched when nobody else works.
    alone_seconds: float


FULL = Settings(
    mode="full",
    rounds=3,
    row_seconds=120,
    curve_blocks=(10**6, 10**7, 10**8),
    large_blocks=1 << 28,
    curve_memory_mib=1024,
    large_memory_mib=4096,
    stream_bytes=GIB,
    scratch_bytes=2 * GIB,
    fio_seconds=5,
    fio_samples=3,
    alone_seconds=20,
)
QUICK = Settings(
    mode="quick",
    rounds=2,
    row_seconds=15,
    curve_blocks=(10**6, 10**7),
    large_blocks=1 << 25,
    curve_memory_mib=1024,
    large_memory_mib=1024,
    stream_bytes=512 * MIB,
    scratch_bytes=512 * MIB,
    fio_seconds=2,
    fio_samples=2,
    alone_seconds=3,
)
TINY = Settings(
    mode="tiny",
    rounds=1,
    row_seconds=60,
    curve_blocks=(10**5, 10**6),
    large_blocks=1 << 21,
    curve_memory_mib=64,
    large_memory_mib=64,
    stream_bytes=32 * MIB,
    scratch_bytes=64 * MIB,
    fio_seconds=1,
    fio_samples=1,
    alone_seconds=0.5,
)


def amount(blocks):
    """Returns a number of blocks as people say it: `10^6 blocks`, or `1 TiB`."""
    power = len(str(blocks)) - 1
    if blocks == 10**power:
        return f"10^{power} blocks"
    gib = blocks * 4096 // GIB
    return f"{gib >> 10} TiB" if gib >= 1024 else f"{gib} GiB"

"""What is measured, in the order of the table. A new row is a class in one of the modules here and a line in ROWS."""

from .beyond_memory import BeyondMemoryRow
from .boots import BootReplayRow, RealBootRow
from .clones import CloneRow
from .import_memory import ImportMemoryRow
from .imports import ImportRow
from .layouts import OverwrittenReadRow, SharedReadRow
from .memory import MemoryRow
from .metadata import MetadataRow
from .polling import PollingGainRow, PollingRow
from .punched import PunchedRow
from .random_io import FsyncRow, RandomRow, SmallWritesRow
from .recovery import RecoveryRow
from .slow_disk import SlowDuplicateRow
from .small_files import SmallFilesRow
from .small_requests import BesideRow, DepthOneRow, EmptyFilesRow
from .streams import ColdReadRow, DuplicateWriteRow, TwoStreamsRow, UniqueWriteRow
from .users import UserStreamRow, UserWriteRow

ROWS = [
    UniqueWriteRow("unique-write", direct=False),
    UniqueWriteRow("unique-write-direct", direct=True),
    TwoStreamsRow(),
    SmallWritesRow("small-writes", writeback_cache=False),
    SmallWritesRow("small-writes-writeback", writeback_cache=True),
    DuplicateWriteRow("duplicate-write", direct=False),
    DuplicateWriteRow("duplicate-write-direct", direct=True),
    ColdReadRow(),
    DepthOneRow(),
    BesideRow(),
    PollingGainRow(),
    RandomRow("random-read", writes=False),
    RandomRow("random-write", writes=True),
    UserWriteRow(),
    UserStreamRow(),
    SlowDuplicateRow(),
    BeyondMemoryRow(),
    OverwrittenReadRow(),
    SharedReadRow("cold-read-shared-runs", run_bytes=64 << 10, runs="runs of 64 KiB", goal="0.6x / 0.9x"),
    SharedReadRow(
        "cold-read-shared-blocks", run_bytes=4 << 10, runs="single blocks of 4 KiB", goal="report / 0.5x",
        of_disk="0.85x",
    ),
    PunchedRow(),
    FsyncRow("fsync-write-1", "1 writer", "0.5x / 1.0x"),
    FsyncRow("fsync-write-8", "8 writers, each with a file", "0.5x / 1.0x", writers=8, files=8),
    FsyncRow("fsync-write-8-one-file", "8 writers in one file", "0.3x / 0.5x", writers=8),
    SmallFilesRow(),
    EmptyFilesRow(),
    PollingRow(),
    CloneRow(),
    ImportRow(),
    MemoryRow(),
    ImportMemoryRow(),
    RealBootRow(),
    BootReplayRow("boots", direct=False),
    BootReplayRow("boots-direct", direct=True),
    MetadataRow(),
    RecoveryRow(),
]

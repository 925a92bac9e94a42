"""What is measured, in the order of the table. A new row is a class in one of the modules here and a line in ROWS."""

from .clones import CloneRow
from .imports import ImportRow
from .memory import MemoryRow
from .random_io import FsyncRow, RandomRow
from .small_files import SmallFilesRow
from .streams import ColdReadRow, DuplicateWriteRow, UniqueWriteRow

ROWS = [
    UniqueWriteRow("unique-write", direct=False),
    UniqueWriteRow("unique-write-direct", direct=True),
    DuplicateWriteRow("duplicate-write", direct=False),
    DuplicateWriteRow("duplicate-write-direct", direct=True),
    ColdReadRow(),
    RandomRow("random-read", writes=False),
    RandomRow("random-write", writes=True),
    FsyncRow(writers=1),
    SmallFilesRow(),
    CloneRow(),
    ImportRow(),
    MemoryRow(),
]

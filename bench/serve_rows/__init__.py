"""What is measured of served images, in the order of the table.

A new row is a class in a module here and a line below.
"""

from .chunks import ChunksRow, LastChunkRow
from .http import HttpRow, MemoryRow, RawRow
from .limits import NarrowRow, SlowCpuRow, SlowDiskRow, StagesRow
from .many import ClientsRow, LateRow, PartcloneRow, StartRow
from .missing import KilledRow, PreviousRow
from .multicast import CpuRow, GrowthRow, LossRow, ManyLossRow, PayloadRow
from .simulated import SimulatedRow

ROWS = (
    ClientsRow,
    ChunksRow,
    LastChunkRow,
    PayloadRow,
    LossRow,
    ManyLossRow,
    CpuRow,
    GrowthRow,
    SimulatedRow,
    NarrowRow,
    SlowDiskRow,
    SlowCpuRow,
    PartcloneRow,
    HttpRow,
    LateRow,
    PreviousRow,
    KilledRow,
    StartRow,
    RawRow,
    MemoryRow,
    StagesRow,
)


def rows(settings):
    """Returns the rows of a run of this size."""
    return [row(settings) for row in ROWS]

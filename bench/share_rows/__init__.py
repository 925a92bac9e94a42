"""What is measured of sharing, in the order of the tables.

A new row is a class in a module here and in one of PARTS.
"""

from .batches import BatchRow
from .cuts import CutRow
from .ground import BTRFS, XFS
from .guests import GuestRow
from .index import IndexRow
from .rates import CopyRow, ShuffledRow, SplitRow
from .reads import ReadRow
from .rotation import RotationRow
from .sets import CopiesRow, SetRow
from .watching import WatchRow

BOTH = (XFS, BTRFS)
# Each part has a table of its own: classes of rows, and the file systems that each is for.
PARTS = {
    "speed": ((ShuffledRow, BOTH), (CopyRow, BOTH), (SplitRow, BOTH), (SetRow, BOTH), (CopiesRow, BOTH)),
    "costs": (
        (IndexRow, (XFS,)), (GuestRow, BOTH), (ReadRow, BOTH), (WatchRow, BOTH), (RotationRow, (XFS,)), (CutRow, BOTH),
        (BatchRow, BOTH),
    ),
}


def rows(part, settings):
    """Returns the rows of a part in a run of this size."""
    return [row(settings, kind) for row, kinds in PARTS[part] for kind in kinds]

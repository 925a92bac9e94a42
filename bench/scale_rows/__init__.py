"""What is measured of large pools, in the order of the table. A new row is a class in a module here and one of ROWS."""

from .curve import CurveRow
from .filter import FilterRow
from .mounts import CleanMountRow, CrashMountRow
from .reclaim import UnlinkRow

# Rows with the same pools stand together, so that no pool is made twice; what spends its pool comes last.
ROWS = (CurveRow, FilterRow, CleanMountRow, CrashMountRow, UnlinkRow)


def rows(settings):
    """Returns the rows of a run of this size."""
    return [row(settings) for row in ROWS]

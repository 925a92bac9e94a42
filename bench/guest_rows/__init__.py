"""What is measured of guests, in the order of the table. A new row is a class in a module here and in ROWS.

Rows that look into the same image stand together; the last of them removes it.
"""

from .allocation import (
    ExtAllocationRow, ExtScanRow, ExtSparseRow, NtfsAllocationRow, NtfsScanRow, XfsAllocationRow, XfsScanRow,
    XfsSparseRow,
)  # fmt: skip
from .analysis import FilesOfAnalysisRow
from .content import CatRow, FirstByteRow
from .files import ExtentsRow, FlsRow, ListRow
from .looks import ClonesRow, LookRow, VirtLsRow
from .packages import DesktopPackagesRow, PackagesRow

ROWS = (
    LookRow, VirtLsRow, ClonesRow, FirstByteRow, CatRow, ExtentsRow, ListRow, FlsRow, ExtAllocationRow, ExtScanRow,
    XfsAllocationRow, XfsScanRow, NtfsAllocationRow, NtfsScanRow, ExtSparseRow, XfsSparseRow, PackagesRow,
    DesktopPackagesRow, FilesOfAnalysisRow,
)  # fmt: skip


def rows(settings):
    """Returns the rows of a run of this size."""
    return [row(settings) for row in ROWS]

"""What is measured of guests, in the order of the table. A new row is a class in a module here and a line below.

Rows that look into the same image stand together; the last of them removes it.
"""

from .allocation import AllocationRow, ScanRow, SparseRow
from .analysis import FilesOfAnalysisRow
from .content import CatRow, FirstByteRow
from .files import ExtentsRow, FlsRow, ListRow
from .looks import ClonesRow, LookRow, VirtLsRow
from .packages import DesktopPackagesRow, PackagesRow


def rows(settings):
    """Returns the rows of a run of this size."""
    return [
        *(row(settings) for row in (LookRow, VirtLsRow, ClonesRow, FirstByteRow, CatRow, ExtentsRow, ListRow, FlsRow)),
        *(row(settings, kind) for kind in ("ext4", "xfs", "ntfs") for row in (AllocationRow, ScanRow)),
        *(SparseRow(settings, kind) for kind in ("ext4", "xfs")),
        *(row(settings) for row in (PackagesRow, DesktopPackagesRow, FilesOfAnalysisRow)),
    ]

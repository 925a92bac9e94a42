"""What is measured of guests, in the order of the table. A new row is a class in a module here and a line below.

Rows that look into the same image stand together; the last of them removes it.
"""

from .allocation import SCANS, AllocationRow, ScanRow, SparseRow
from .analysis import FilesOfAnalysisRow
from .content import CatRow, FirstByteRow
from .files import ExtentsRow, FlsRow, ListRow
from .looks import ClonesRow, LookRow, VirtLsRow
from .packages import DesktopPackagesRow, PackagesRow


def rows(settings):
    """Returns the rows of a run of this size."""
    return [
        *(row(settings) for row in (LookRow, VirtLsRow, ClonesRow, FirstByteRow, CatRow, ExtentsRow, ListRow, FlsRow)),
        *(row for kind in ("ext4", "xfs", "ntfs") for row in maps(settings, kind)),
        *(SparseRow(settings, kind) for kind in ("ext4", "xfs")),
        *(row(settings) for row in (PackagesRow, DesktopPackagesRow, FilesOfAnalysisRow)),
    ]


def maps(settings, kind):
    """Returns the rows about allocation maps of one kind of file system."""
    return [AllocationRow(settings, kind), *(ScanRow(settings, scan) for scan in SCANS if scan.kind == kind)]

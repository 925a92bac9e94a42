"""What is measured of the sharing of guest files, in the order of the table.

A new row is a class in a module here and a line below.
"""

from share_rows.ground import BTRFS, XFS

from .calls import CallsRow
from .common import CommonRow
from .machines import MachinesRow
from .many import ManyRow
from .sets import SETS, SetRow
from .waits import WaitsRow


def rows(settings):
    """Returns the rows of a run of this size."""
    return [
        MachinesRow(settings),
        *(SetRow(settings, name, goal) for name, goal in SETS.items()),
        *(CallsRow(settings, kind) for kind in (XFS, BTRFS)),
        CommonRow(settings),
        *(WaitsRow(settings, kind) for kind in (XFS, BTRFS)),
        ManyRow(settings),
    ]

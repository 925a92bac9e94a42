"""What is measured of archives, in the order of the table. A new row is a class in a module here and a line below.

Rows of one set stand together: they share its archive and its exports.
"""

from .bucket import BucketRow
from .collection import CollectionRow
from .index import IndexRow
from .paper import PaperRow
from .speed import InstallRow, StoreRow, VersionsRow
from .stages import StagesRow
from .stored import MetadataRow, SavingsRow, SetRow
from .whole import CatRow, CheckRow


def rows(settings):
    """Returns the rows of a run of this size."""
    equal = "equal content"
    return [
        SetRow(settings, "derived", "fbs", "derived set as it is", (0.85, 0.75), is_equal=False, has_cpu=True),
        SetRow(settings, "derived-equal", "fbs", f"derived set, {equal}", (1.0, 0.92), is_equal=True),
        MetadataRow(settings),
        StoreRow(settings),
        InstallRow(settings),
        VersionsRow(settings),
        CatRow(settings),
        CheckRow(settings),
        BucketRow(settings),
        SetRow(settings, "distros", "distros", f"`distros` without Btrfs, {equal}", (0.85, 0.7), is_equal=True),
        SavingsRow(settings, "distros", "`distros` without Btrfs", 0.85, 0.95),
        SetRow(settings, "btrfs", "btrfs", "its Btrfs image, which is captured raw", (None, None), is_equal=False),
        SetRow(settings, "builds", "builds", f"two independent builds, {equal}", (0.75, 0.6), is_equal=True),
        SavingsRow(settings, "aligned", "aligned and misaligned pair", 0.9, 0.97),
        CollectionRow(settings),
        IndexRow(settings),
        StagesRow(settings),
        PaperRow(settings, "fbs"),
        PaperRow(settings, "distros"),
    ]

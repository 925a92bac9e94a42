"""Allocation maps: whole, with every block that files reach, beside checkers and scans of bitmaps."""

from lib.measure import Sample

from .programs import MIB, median, timed, warm
from .row import ONEFOLD, OTHER, GuestRow, alternating, lower

RUNS = 5
# Other programs by file system: what checks it, and what scans the bitmap that says what is free.
CHECKERS = {"ext4": ("e2fsck", "-f", "-n"), "xfs": ("xfs_repair", "-n"), "ntfs": ("ntfscluster", "--force", "--info")}
SCANS = {"ext4": "partclone.extfs", "xfs": "partclone.xfs", "ntfs": "partclone.ntfs"}
NAMES = {"ext4": "ext4", "xfs": "XFS", "ntfs": "NTFS"}


class AllocationRow(GuestRow):
    """The whole map of a system's root, of one kind of file system. The ScanRow after it removes the image."""

    kind = ""

    def __init__(self, settings):
        self.name = f"map-{self.kind}"
        self.checker = CHECKERS[self.kind]
        self.needed = (self.checker[0], "mkntfs", "ntfs-3g") if self.kind == "ntfs" else (self.checker[0],)
        super().__init__(settings)

    def make_lines(self, settings):
        where = NAMES[self.kind]
        title = f"`guest info` of a system on {where}: the allocation map, with every block that files reach, warm"
        yield lower(self.name, title, "ms", goal="1x / 3x", beside=" ".join(self.checker))
        title = "data of files that it reads for that, once it knows what the volume holds"
        yield lower(f"{self.name}-data", title, "bytes", goal="none", has_ratio=False)
        title = "what files have at the places where other kinds have their headers, read to find that out"
        yield lower(f"{self.name}-probed", title, "bytes", goal="few", has_ratio=False)

    def image(self, images):
        return images.root() if self.kind == "ext4" else images.with_the_tree(self.kind)

    def prepare(self, images, settings):
        self.image(images)

    def measure(self, images, settings, round_no):
        path = self.image(images)
        warm(path)
        commands = ((ONEFOLD, (images.programs.onefold, "guest", "info", path)), (OTHER, (*self.checker, path)))
        for side, command in alternating(round_no, *commands):
            known = median(RUNS, lambda command=command: timed(*command))
            yield self.name, side, known.sample(1000)
        # Of the library's own map: what its disk was asked for, held against that map.
        told = images.library("map", path)
        yield f"{self.name}-data", ONEFOLD, Sample(told["data_read_bytes"])
        yield f"{self.name}-probed", ONEFOLD, Sample(told["probed_bytes"])


class ExtAllocationRow(AllocationRow):
    kind = "ext4"


class XfsAllocationRow(AllocationRow):
    kind = "xfs"


class NtfsAllocationRow(AllocationRow):
    kind = "ntfs"


class ScanRow(GuestRow):
    """The whole map, beside a program that reads no more than the bitmap of what is free."""

    kind = ""

    def __init__(self, settings):
        self.name = f"scan-{self.kind}"
        self.needed = (SCANS[self.kind], "mkntfs", "ntfs-3g") if self.kind == "ntfs" else (SCANS[self.kind],)
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"`guest info` of a system on {NAMES[self.kind]} once more, beside a scan of nothing but the bitmap"
        yield lower(self.name, title, "ms", goal="1x / 3x", beside=f"{SCANS[self.kind]} --domain")

    def measure(self, images, settings, round_no):
        path = images.root() if self.kind == "ext4" else images.with_the_tree(self.kind)
        warm(path)
        listed = images.folder / "scan.log"
        quiet = ("--quiet", "--logfile", "/dev/null", "--overwrite", listed)
        commands = (
            (ONEFOLD, (images.programs.onefold, "guest", "info", path)),
            (OTHER, (SCANS[self.kind], "--domain", *quiet, "--source", path)),
        )
        for side, command in alternating(round_no, *commands):
            yield self.name, side, median(RUNS, lambda command=command: timed(*command)).sample(1000)

    def finish(self, images, settings):
        if self.kind != "ext4":
            images.drop(f"tree-{self.kind}")


class ExtScanRow(ScanRow):
    kind = "ext4"


class XfsScanRow(ScanRow):
    kind = "xfs"


class NtfsScanRow(ScanRow):
    kind = "ntfs"


class SparseRow(GuestRow):
    """The map of a very large file system that is nearly empty."""

    kind = ""
    share_of_time = 2.0

    def __init__(self, settings):
        self.name = f"sparse-{self.kind}"
        self.needed = (f"mkfs.{self.kind}",)
        super().__init__(settings)

    def make_lines(self, settings):
        size = amount(settings.sparse_bytes)
        title = f"`guest info` of {NAMES[self.kind]} of {size} with {settings.sparse_files:,} files, warm"
        yield lower(self.name, title, "s", goal="5 / 1 s")
        yield lower(f"{self.name}-memory", "its highest resident memory", "MiB", goal="64 MiB")

    def prepare(self, images, settings):
        images.sparse(self.kind)

    def measure(self, images, settings, round_no):
        path = images.sparse(self.kind)
        warm(path)
        known = timed(images.programs.onefold, "guest", "info", path)
        yield self.name, ONEFOLD, known.sample()
        yield f"{self.name}-memory", ONEFOLD, Sample(known.memory_bytes / MIB)

    def finish(self, images, settings):
        images.drop(f"sparse-{self.kind}")


class ExtSparseRow(SparseRow):
    kind = "ext4"


class XfsSparseRow(SparseRow):
    kind = "xfs"


def amount(length):
    """Returns a length in the largest unit that it has a whole number of."""
    units = ("TiB", "GiB", "MiB", "KiB")
    for power, unit in zip((40, 30, 20, 10), units, strict=True):
        if length % (1 << power) == 0 and length:
            return f"{length >> power} {unit}"
    return f"{length} bytes"

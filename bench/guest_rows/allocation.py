"""Allocation maps: whole, with every block that files reach, beside checkers and scans of bitmaps."""

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, lower

from .programs import MIB, timed, warm
from .row import GuestRow, from_memory

RUNS = 5
# Other programs by file system: what checks it, and what scans the bitmap that says what is free.
CHECKERS = {"ext4": ("e2fsck", "-f", "-n"), "xfs": ("xfs_repair", "-n"), "ntfs": ("ntfscluster", "--force", "--info")}
SCANS = {"ext4": "partclone.extfs", "xfs": "partclone.xfs", "ntfs": "partclone.ntfs"}
NAMES = {"ext4": "ext4", "xfs": "XFS", "ntfs": "NTFS"}
# What makes a file system with the files of a system, where that is not always there.
MAKERS = {"ext4": (), "xfs": (), "ntfs": ("mkntfs", "ntfs-3g")}


class KindRow(GuestRow):
    """A row about `guest info` of a system's root on one kind of file system, beside another program."""

    base = ""

    def __init__(self, settings, kind, program):
        self.kind = kind
        self.name = f"{self.base}-{kind}"
        self.needed = (program, *MAKERS[kind])
        super().__init__(settings)

    def image(self, images):
        return images.root() if self.kind == "ext4" else images.with_the_tree(self.kind)

    def info(self, images, round_no, theirs):
        """Yields the time of `guest info`, in memory, beside another program's."""
        path = self.image(images)
        ours = (images.programs.onefold, "guest", "info", path)
        for side, known in from_memory(round_no, RUNS, path, ours, theirs):
            yield self.name, side, known.sample(1000)


class AllocationRow(KindRow):
    """The whole map. The ScanRow after it removes the image."""

    base = "map"

    def __init__(self, settings, kind):
        self.checker = CHECKERS[kind]
        super().__init__(settings, kind, self.checker[0])

    def make_lines(self, settings):
        where = NAMES[self.kind]
        title = f"`guest info` of a system on {where}: the allocation map, with every block that files reach, warm"
        yield lower(self.name, title, "ms", goal="1x / 3x", beside=" ".join(self.checker))
        title = "data of files that it reads for that, once it knows what the volume holds"
        yield lower(f"{self.name}-data", title, "bytes", goal="none", has_ratio=False)
        title = "what files have at the places where other kinds have their headers, read to find that out"
        yield lower(f"{self.name}-probed", title, "bytes", goal="few", has_ratio=False)

    def prepare(self, images, settings):
        self.image(images)

    def measure(self, images, settings, round_no):
        path = self.image(images)
        yield from self.info(images, round_no, (*self.checker, path))
        # Of the library's own map: what its disk was asked for, held against that map.
        told = images.programs.library("map", path)
        yield f"{self.name}-data", ONEFOLD, Sample(told["data_read_bytes"])
        yield f"{self.name}-probed", ONEFOLD, Sample(told["probed_bytes"])


class ScanRow(KindRow):
    """The whole map, beside a program that reads no more than the bitmap of what is free."""

    base = "scan"

    def __init__(self, settings, kind):
        super().__init__(settings, kind, SCANS[kind])

    def make_lines(self, settings):
        title = f"`guest info` of a system on {NAMES[self.kind]} once more, beside a scan of nothing but the bitmap"
        yield lower(self.name, title, "ms", goal="1x / 3x", beside=f"{SCANS[self.kind]} --domain")

    def measure(self, images, settings, round_no):
        quiet = ("--quiet", "--logfile", "/dev/null", "--overwrite", images.folder / "scan.log")
        theirs = (SCANS[self.kind], "--domain", *quiet, "--source", self.image(images))
        yield from self.info(images, round_no, theirs)

    def finish(self, images, settings):
        if self.kind != "ext4":
            images.drop(f"tree-{self.kind}")


class SparseRow(GuestRow):
    """The map of a very large file system that is nearly empty."""

    share_of_time = 2.0

    def __init__(self, settings, kind):
        self.kind = kind
        self.name = f"sparse-{kind}"
        self.needed = (f"mkfs.{kind}",)
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


def amount(length):
    """Returns a length in the largest unit that it has a whole number of."""
    units = ("TiB", "GiB", "MiB", "KiB")
    for power, unit in zip((40, 30, 20, 10), units, strict=True):
        if length % (1 << power) == 0 and length:
            return f"{length >> power} {unit}"
    return f"{length} bytes"

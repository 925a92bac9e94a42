"""Allocation maps: whole, with every block that files reach, beside checkers; by bitmaps alone, beside scans."""

from dataclasses import dataclass

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, lower

from .programs import MIB, timed, warm
from .row import GuestRow, from_memory

RUNS = 5
# What checks each file system.
CHECKERS = {"ext4": ("e2fsck", "-f", "-n"), "xfs": ("xfs_repair", "-n"), "ntfs": ("ntfscluster", "--force", "--info")}
NAMES = {"ext4": "ext4", "xfs": "XFS", "ntfs": "NTFS"}
# What makes a file system with the files of a system, where that is not always there.
MAKERS = {"ext4": (), "xfs": (), "ntfs": ("mkntfs", "ntfs-3g")}


@dataclass(frozen=True)
class Scan:
    """A program that reads no more of a file system than the bitmap that says what is free."""

    kind: str
    program: str
    option: str
    # Whether processor time is compared: partclone sleeps for up to two seconds, which differs from run to run.
    by_processor: bool = False

    @property
    def name(self):
        return f"scan-{self.kind}-processor" if self.by_processor else f"scan-{self.kind}"

    def command(self, path, folder):
        """Returns its whole command for an image; `folder` is for what it writes."""
        if self.program == "ntfsinfo":
            return (self.program, "--force", self.option, path)
        quiet = ("--quiet", "--logfile", "/dev/null", "--overwrite", folder / "scan.log")
        return (self.program, self.option, *quiet, "--source", path)


SCANS = (
    Scan("ext4", "partclone.extfs", "--domain", by_processor=True),
    Scan("xfs", "partclone.xfs", "--domain", by_processor=True),
    Scan("ntfs", "ntfsinfo", "--mft"),
    Scan("ntfs", "partclone.ntfs", "--domain", by_processor=True),
)


class KindRow(GuestRow):
    """A row about the map of a system's root on one kind of file system, beside another program."""

    def __init__(self, settings, name, kind, program):
        self.name = name
        self.kind = kind
        self.needed = (program, *MAKERS[kind])
        super().__init__(settings)

    def image(self, images):
        return images.root() if self.kind == "ext4" else images.with_the_tree(self.kind)

    def beside(self, images, round_no, ours, theirs):
        """Yields each side with what a program of ours took of the image, in memory, and another program."""
        path = self.image(images)
        yield from from_memory(round_no, RUNS, path, (*ours, path), theirs)


class AllocationRow(KindRow):
    """The whole map. The ScanRow after it removes the image."""

    def __init__(self, settings, kind):
        self.checker = CHECKERS[kind]
        super().__init__(settings, f"map-{kind}", kind, self.checker[0])

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
        ours = (images.programs.onefold, "guest", "info")
        for side, known in self.beside(images, round_no, ours, (*self.checker, path)):
            yield self.name, side, known.sample(1000)
        # Of the library's own map: what its disk was asked for, held against that map.
        told = images.programs.library("map", path)
        yield f"{self.name}-data", ONEFOLD, Sample(told["data_read_bytes"])
        yield f"{self.name}-probed", ONEFOLD, Sample(told["probed_bytes"])


class ScanRow(KindRow):
    """The bitmaps alone, beside a scan of these. The last scan of a kind removes the image."""

    def __init__(self, settings, scan):
        self.scan = scan
        super().__init__(settings, scan.name, scan.kind, scan.program)

    def make_lines(self, settings):
        unit = "ms of processor time" if self.scan.by_processor else "ms"
        title = f"the library's map of a system on {NAMES[self.kind]} by its bitmaps alone, warm, the whole process"
        yield lower(self.name, title, unit, goal="1x / 3x", beside=f"{self.scan.program} {self.scan.option}")

    def measure(self, images, settings, round_no):
        theirs = self.scan.command(self.image(images), images.folder)
        ours = (images.programs.synthetic, "guest", "bitmaps")
        for side, known in self.beside(images, round_no, ours, theirs):
            if self.scan.by_processor:
                yield self.name, side, Sample(known.cpu_seconds * 1000, more={"seconds": known.seconds})
            else:
                yield self.name, side, known.sample(1000)

    def finish(self, images, settings):
        is_last = [scan for scan in SCANS if scan.kind == self.kind][-1] == self.scan
        if self.kind != "ext4" and is_last:
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

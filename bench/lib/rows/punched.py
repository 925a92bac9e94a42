"""New data in a pool whose free space lies in single blocks: what is left where random overwrites went on for long."""

from .. import device
from ..measure import Line, Sample
from ..pool_side import PoolSide
from ..system import BenchError
from .random_io import DEPTH, disk_rate
from .row import Row, expect_unique, seed_of
from .streams import throughput

FILLER = "filler"
NEW = "new"
# What is wanted, of the same write into a fresh pool, or of random writes to the disk where that is less.
FRESH_PART = 0.15
DISK_PART = 0.7
# A pool counts as filled where no more of it is free.
FREE_PART_MAX = 0.02


class PunchedSide(PoolSide):
    """A pool of the row's own."""

    name = "punched"


class PunchedRow(Row):
    """A pool is filled with one file, every second block of which is punched out. Then a new file is written there, and
    one just as long into the run's own pool, which is empty. Beforehand fio writes to the disk itself."""

    name = "punched-write"
    sides = ("pool",)
    share_of_time = 1.0
    lines = (
        Line(
            "punched-write", "sequential unique write, 1 MiB, O_DIRECT, fsync; all free space in single blocks", "MB/s",
            has_ratio=False, goal="report",
        ),
        Line("punched-write-fresh", "the same write into an empty pool", "MB/s", has_ratio=False, goal="report"),
        Line(
            "punched-write-disk", f"the disk itself: fio, 4 KiB random writes, depth {DEPTH}", "MB/s", has_ratio=False,
            goal="report",
        ),
        Line(
            "punched-write-part",
            f"the first of these, in parts of the lesser of {FRESH_PART} of the second and {DISK_PART} of the third",
            "x", has_ratio=False, goal="1x",
        ),
    )  # fmt: skip

    def __init__(self):
        self._punched = None
        self._disk = None

    def prepare(self, side, settings):
        self._punched = PunchedSide(side.place, side.onefold, side.memory)
        try:
            self._make(self._punched, settings)
        except BaseException:
            self._drop()
            raise

    def _make(self, punched, settings):
        device.allocate(punched.device, settings.punched_device_bytes)
        # While it is no file system yet.
        self._disk = disk_rate(punched.device, "write", DEPTH, settings.fio_seconds)
        punched.format()
        punched.mount()
        answer, _ = punched.client("fill-up", punched.path(FILLER), seed=seed_of(0, use=27))
        punched.settle()
        free_bytes = punched.stat()["free_bytes"]
        if free_bytes > settings.punched_device_bytes * FREE_PART_MAX:
            raise BenchError(f"{self.name}: the pool is not full, {free_bytes} bytes are free")
        punched.client("punch-every-second", punched.path(FILLER), bytes=answer["bytes"])
        punched.settle()

    def measure(self, side, settings, round_no):
        try:
            written = self._write(self._punched, settings, seed_of(round_no, use=28))
            fresh = self._write(side, settings, seed_of(round_no, use=29))
        except BaseException:
            self._drop()
            raise
        wanted = min(FRESH_PART * fresh.value, DISK_PART * self._disk.value)
        return {
            self.name: written,
            f"{self.name}-fresh": fresh,
            f"{self.name}-disk": self._disk,
            f"{self.name}-part": Sample(written.value / wanted),
        }

    def _write(self, side, settings, seed):
        length = settings.punched_write_bytes
        answer, cost = side.client("write", side.path(NEW), bytes=length, seed=seed, direct=True)
        expect_unique(cost, self.name)
        side.remove(NEW)
        return throughput(length, answer, cost)

    def finish(self, side, settings):
        self._drop()

    def _drop(self):
        punched, self._punched = self._punched, None
        if punched is not None:
            punched.close()
            punched.device.unlink(missing_ok=True)

"""Cold reads of files that do not lie on the disk in their own order."""

from ..measure import Line, Sample
from .random_io import disk_rate
from .row import OneLineRow, expect_shared, seed_of
from .streams import throughput

NAME = "layout"
DONOR = "donor"
DONORS = 4
# With as many requests in flight the disk of a common machine gives all it has.
DISK_DEPTH = 64


class OverwrittenReadRow(OneLineRow):
    """Reading a file after a tenth of its blocks were overwritten one by one: a pool puts those elsewhere."""

    SEEDS = {"seed": seed_of(0, use=10), "overwriting-seed": seed_of(1, use=10)}

    def __init__(self):
        title = "sequential cold read after random 4 KiB overwrites of 10 %, 1 MiB, buffered"
        super().__init__("cold-read-overwritten", title, "MB/s", goal="0.6x / 0.9x")

    def prepare(self, side, settings):
        side.client("write", side.path(NAME), bytes=settings.layout_bytes, seed=self.SEEDS["seed"])
        side.client("overwrite", side.path(NAME), bytes=settings.layout_bytes, **self.SEEDS)

    def measure(self, side, settings, round_no):
        side.make_cold()
        answer, cost = side.client(
            "read", side.path(NAME), bytes=settings.layout_bytes, data="overwritten", **self.SEEDS
        )
        return {self.name: throughput(settings.layout_bytes, answer, cost)}

    def finish(self, side, settings):
        side.remove(NAME)


class SharedReadRow(OneLineRow):
    """Reading a file whose every block is in one of four other files, run by run in shuffled order.

    On ext4 the file alone is written, as it holds its blocks itself there.
    """

    share_of_time = 1.5
    SEED = seed_of(0, use=11)

    def __init__(self, name, run_bytes, runs, goal, of_disk=None):
        """With `of_disk`, which part is wanted of what fio reads of the pool's disk at random places."""
        title = f"sequential cold read of a file shared with {DONORS} others in {runs}, 1 MiB, buffered"
        super().__init__(name, title, "MB/s", goal=goal)
        self.run_bytes = run_bytes
        if of_disk is not None:
            disk = f"the disk itself: fio, 4 KiB random reads, depth {DISK_DEPTH}"
            part = "what the pool has of that"
            self.lines += (
                Line(f"{name}-disk", disk, "MB/s", goal="report", has_ratio=False),
                Line(f"{name}-part", part, "x", goal=of_disk, has_ratio=False),
            )

    def prepare(self, side, settings):
        if side.name == "pool":
            for number in range(DONORS):
                side.client(
                    "write", side.path(f"{DONOR}-{number}"), bytes=settings.layout_bytes // DONORS,
                    seed=self.SEED + number,
                )  # fmt: skip
        _, cost = side.client("write", side.path(NAME), **self._file(settings))
        expect_shared(cost, self.name)

    def _file(self, settings):
        return {
            "bytes": settings.layout_bytes, "data": "shuffled", "count": DONORS, "seed": self.SEED,
            "run-bytes": self.run_bytes,
        }  # fmt: skip

    def measure(self, side, settings, round_no):
        side.make_cold()
        answer, cost = side.client("read", side.path(NAME), **self._file(settings))
        samples = {self.name: throughput(settings.layout_bytes, answer, cost)}
        if side.name == "pool" and len(self.lines) > 1:
            disk = disk_rate(side.device, "read", DISK_DEPTH, settings.fio_seconds)
            samples[f"{self.name}-disk"] = disk
            samples[f"{self.name}-part"] = Sample(samples[self.name].value / disk.value)
        return samples

    def finish(self, side, settings):
        side.remove(NAME, *(f"{DONOR}-{number}" for number in range(DONORS)))

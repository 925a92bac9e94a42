"""How long a guest's writes take beside a pass over the files of its image and another one."""

import statistics
import time
from contextlib import ExitStack

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, lower
from lib.system import BenchError
from share_rows import fio
from share_rows.ground import NAMES
from share_rows.guests import START_SECONDS, VERIFY

from .calls import maps_of, shared_runs
from .row import FilesRow, share
from .sets import made_images

WRITTEN = "written"
# Where nothing of a guest's own begins: made-up images have no partitions.
CHUNK_BYTES = 1 << 20
MS, US = 1e3, 1e6
# Of two images the first is the source.
GUEST = 1


class WaitsRow(FilesRow):
    """fio writes into a file of a guest that is mounted, one request at a time, and verifies what it wrote.

    Only writes that were in flight during the pass count. The other side is as many seconds without a pass, on equal
    copies of the images.
    """

    needed = ("mkfs.xfs", "mkfs.btrfs", "mke2fs", "fio")

    def __init__(self, settings, kind):
        self.kind, self.name = kind, f"waits-{kind}"
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"4 KiB O_DIRECT writes in a guest on {NAMES[self.kind]} during `share files`: the longest"
        yield lower(self.name, title, "ms", goal="100 ms", beside="as long without a pass")
        yield lower(f"{self.name}-median", "the median", "us", goal="report", beside="as long without a pass")

    def measure(self, bench, settings, round_no):
        ground = self._copied(bench, settings)
        before, guest = maps_of(ground), ground.images()[GUEST].name
        done, beside = self._beside(bench, ground, round_no, lambda: share(bench.programs, "files", ground.mountpoint))
        shared = sum(run.length for run in shared_runs(before, maps_of(ground)) if run.target == guest)
        if not shared:
            raise BenchError(f"{self.name}: nothing was shared into {guest}, which the guest writes to")
        ground = self._copied(bench, settings)
        _, alone = self._beside(bench, ground, round_no, lambda: time.sleep(done.seconds))
        more = {ONEFOLD: {"shared_into_guest_bytes": shared} | done.told, OTHER: {}}
        for side, writes in ((OTHER, alone), (ONEFOLD, beside)):
            latencies = [write.seconds for write in writes]
            counts = {"writes": len(latencies), "seconds": done.seconds}
            yield self.name, side, Sample(max(latencies) * MS, more=counts | more[side])
            yield f"{self.name}-median", side, Sample(statistics.median(latencies) * US)

    def _copied(self, bench, settings):
        ground = bench.ground(self.kind, settings.device_bytes)
        for image in made_images(bench, settings):
            ground.copy(image)
        with self._mounted(bench, ground) as root, open(root / WRITTEN, "wb") as file:
            for _ in range(settings.waits_bytes // CHUNK_BYTES):
                file.write(bytes([1]) * CHUNK_BYTES)
        ground.free_bytes()
        return ground

    @staticmethod
    def _mounted(bench, ground):
        return bench.guests.mounted(ground.images()[GUEST], direct=True)

    def _beside(self, bench, ground, round_no, work):
        """Does some work while the guest writes; returns what came of it, and the writes during that time."""
        log = bench.place.folder / "latencies"
        with ExitStack() as stack:
            root = stack.enter_context(self._mounted(bench, ground))
            job = (root / WRITTEN, bench.settings.waits_bytes, 1 + round_no)
            with fio.Beside(*job, **VERIFY, **fio.log_options(log)):
                time.sleep(START_SECONDS)
                begin = time.time()
                done = work()
                end = time.time()
        writes = fio.logged_writes(log, begin, end)
        if not writes:
            raise BenchError(f"{self.name}: the guest wrote nothing in {end - begin:.3f} s")
        return done, writes

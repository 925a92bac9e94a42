"""How long a guest's writes take beside a pass over the files of its image and another one."""

import time
from contextlib import ExitStack

from lib.measure import Sample
from lib.system import BenchError
from share_rows import fio
from share_rows.ground import NAMES
from share_rows.guests import MILLISECOND, START_SECONDS, VERIFY, median_us
from share_rows.row import ONEFOLD, OTHER, lower

from .row import FilesRow, share
from .sets import made_images

WRITTEN = "written"
# Where nothing of a guest's own begins: made-up images have no partitions.
CHUNK_BYTES = 1 << 20


class WaitsRow(FilesRow):
    """fio writes into a file of a guest that is mounted, one request at a time, and verifies what it wrote."""

    needed = ("mkfs.xfs", "mkfs.btrfs", "mke2fs", "fio")

    def __init__(self, settings, kind):
        self.kind, self.name = kind, f"waits-{kind}"
        super().__init__(settings)

    def make_lines(self, settings):
        title = f"4 KiB O_DIRECT writes in a guest on {NAMES[self.kind]} beside `share files`: the longest"
        yield lower(self.name, title, "ms", goal="100 ms", beside="no pass")
        yield lower(f"{self.name}-median", "the median", "us", goal="report", beside="no pass")

    def measure(self, bench, settings, round_no):
        ground = bench.ground(self.kind, settings.device_bytes)
        for image in made_images(bench, settings):
            ground.copy(image)
        guest = ground.images()[0]
        with ExitStack() as stack:
            root = stack.enter_context(bench.guests.mounted(guest, direct=True))
            written = root / WRITTEN
            with open(written, "wb") as file:
                for _ in range(settings.waits_bytes // CHUNK_BYTES):
                    file.write(bytes([1]) * CHUNK_BYTES)
            ground.free_bytes()
            job = (written, settings.waits_bytes, 1 + round_no)
            alone = fio.for_seconds(*job, settings.fio_seconds, **VERIFY)["write"]
            with fio.Beside(*job, **VERIFY) as beside:
                time.sleep(START_SECONDS)
                done = share(bench.programs, "files", ground.mountpoint)
        for side, writes in ((OTHER, alone), (ONEFOLD, beside.job["write"])):
            latency = writes["clat_ns"]
            yield self.name, side, Sample(latency["max"] / MILLISECOND, more=latency)
            yield f"{self.name}-median", side, Sample(median_us(writes))
        if not beside.job["write"]["total_ios"]:
            raise BenchError(f"{self.name}: the pass had ended before fio wrote")
        if not done.shared_bytes:
            raise BenchError(f"{self.name}: nothing was shared")

"""What a guest notices of a pass that shares its image: fio, one request at a time, and verifying what it wrote."""

import time

from lib import system
from lib.data import BLOCK_BYTES, ShuffledData, UniqueData
from lib.measure import Sample
from lib.rows.row import seed_of

from . import fio
from .row import ONEFOLD, OTHER, ShareRow, lower

SOURCE, GUEST = "a-source", "b-guest"
# Options of the pass, by the end of the lines' keys.
MODES = {"usual": (), "stall": ("--max-stall", "5"), "limited": ("--io-limit", "64M")}
# It reads back each few blocks that it wrote.
VERIFY = {
    "rw": "randwrite", "verify": "crc32c", "verify_backlog": 32, "verify_fatal": 1, "verify_state_save": 0,
}  # fmt: skip
MILLISECOND = 1e6
# By then fio writes.
START_SECONDS = 2.0


class GuestRow(ShareRow):
    """All of the guest's blocks are equal to those of another file, single ones in shuffled order."""

    base = "guest"
    share_of_time = 2.0

    def make_lines(self, settings):
        for mode, options in MODES.items():
            how = f" with `{' '.join(options)}`" if options else ""
            title = f"4 KiB O_DIRECT writes into an image on {self.where} that a pass{how} shares: the longest"
            yield lower(f"{self.name}-{mode}-stall", title, "ms", goal="100 ms", beside="no pass")
            title = "the median"
            yield lower(f"{self.name}-{mode}-median", title, "us", goal="0.83x", beside="no pass")
            yield lower(f"{self.name}-{mode}-pass", "and the pass takes", "s", goal="report")

    def measure(self, ground, settings, round_no):
        for number, (mode, options) in enumerate(MODES.items()):
            ground.open()
            length, seed = settings.guest_bytes, seed_of(round_no, use=40 + number)
            ground.write(SOURCE, UniqueData(seed), length)
            ground.write(GUEST, ShuffledData([seed], length // BLOCK_BYTES, 1, order_seed=seed), length)
            guest = (ground.path(GUEST), length, seed)
            alone = fio.for_seconds(*guest, settings.fio_seconds, **VERIFY)["write"]
            system.drop_caches()
            with fio.Beside(*guest, **VERIFY) as beside:
                time.sleep(START_SECONDS)
                done = ground.share(*options)
            for side, writes in ((OTHER, alone), (ONEFOLD, beside.job["write"])):
                latency = writes["clat_ns"]
                yield f"{self.name}-{mode}-stall", side, Sample(latency["max"] / MILLISECOND, more=latency)
                median = latency["percentile"]["50.000000"] / 1000
                yield f"{self.name}-{mode}-median", side, Sample(median)
            if not beside.job["write"]["total_ios"]:
                raise system.BenchError(f"{self.name}: the pass had ended before fio wrote")
            # A tiny file is overwritten before the pass has read it.
            if settings.mode != "tiny" and done.told["shared"]["now_bytes"] < length / 4:
                raise system.BenchError(f"{self.name}: hardly anything was shared: {done.told['shared']}")
            yield f"{self.name}-{mode}-pass", ONEFOLD, Sample(done.seconds, more=done.told)
            ground.close()

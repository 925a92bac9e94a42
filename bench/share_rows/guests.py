"""What a guest notices of a pass that shares its image or others: fio, one request at a time, verifying its writes."""

import time

from lib import system
from lib.data import BLOCK_BYTES, ShuffledData, UniqueData
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, lower
from lib.rows.row import seed_of

from . import fio
from .row import ShareRow

SOURCE, GUEST, OWN = "a-source", "b-guest", "c-own"
# Options of the pass, by the end of the lines' keys.
MODES = {"usual": (), "stall": ("--max-stall", "5ms"), "limited": ("--io-limit", "64M")}
# In this one the guest has an image of its own, which the pass leaves alone.
BESIDE = "beside"
# It reads back each few blocks that it wrote. It writes no faster than a busy machine: a guest that overwrites all of
# its image in seconds leaves nothing to share.
VERIFY = {
    "rw": "randwrite", "verify": "crc32c", "verify_backlog": 32, "verify_fatal": 1, "verify_state_save": 0,
    "rate_iops": 2000,
}  # fmt: skip
MILLISECOND = 1e6
# By then fio writes.
START_SECONDS = 2.0


class GuestRow(ShareRow):
    """All of the guest's blocks, or other files', are equal to those of another file, singly and in shuffled order."""

    base = "guest"
    share_of_time = 3.0

    def make_lines(self, settings):
        for mode, options in MODES.items():
            how = f" with `{' '.join(options)}`" if options else ""
            yield from self._lines(mode, f"into an image on {self.where} that a pass{how} shares")
            if mode == "usual":
                title = "the median once the pass is over, and nothing else runs"
                yield lower(f"{self.name}-{mode}-after", title, "us", goal="report", beside="no pass")
        yield from self._lines(BESIDE, f"into an image on {self.where} beside those that a pass shares")

    def _lines(self, mode, where):
        title = f"4 KiB O_DIRECT writes {where}: the longest"
        yield lower(f"{self.name}-{mode}-stall", title, "ms", goal="100 ms", beside="no pass")
        yield lower(f"{self.name}-{mode}-median", "the median", "us", goal="0.83x", beside="no pass")
        yield lower(f"{self.name}-{mode}-pass", "and the pass takes", "s", goal="report")

    def measure(self, ground, settings, round_no):
        for number, (mode, options) in enumerate({**MODES, BESIDE: ("--exclude", OWN)}.items()):
            ground.open()
            length, seed = settings.guest_bytes, seed_of(round_no, use=40 + number)
            ground.write(SOURCE, UniqueData(seed), length)
            ground.write(GUEST, ShuffledData([seed], length // BLOCK_BYTES, 1, order_seed=seed), length)
            image = GUEST
            if mode == BESIDE:
                image = OWN
                ground.write(OWN, UniqueData(seed_of(round_no, use=39)), length)
            guest = (ground.path(image), length, seed)
            how = VERIFY | {"user": ground.place.user}
            alone = fio.for_seconds(*guest, settings.fio_seconds, **how)["write"]
            ground.make_cold()
            log = self._log(ground)
            with fio.Beside(*guest, **how, **fio.log_options(log)) as beside:
                time.sleep(START_SECONDS)
                begin = time.time()
                done = ground.share(*options)
                end = time.time()
            for side, writes in ((OTHER, alone), (ONEFOLD, beside.job["write"])):
                latency = writes["clat_ns"]
                yield f"{self.name}-{mode}-stall", side, Sample(latency["max"] / MILLISECOND, more=latency)
                yield f"{self.name}-{mode}-median", side, Sample(median_us(writes))
            if not fio.logged_writes(log, begin, end):
                raise system.BenchError(f"{self.name}: fio wrote nothing during the pass")
            # A tiny file is overwritten before the pass has read it.
            if settings.mode != "tiny" and done.told["shared"]["now_bytes"] < length / 4:
                raise system.BenchError(f"{self.name}: hardly anything was shared: {done.told['shared']}")
            yield f"{self.name}-{mode}-pass", ONEFOLD, Sample(done.seconds, more=done.told)
            if mode == "usual":
                after = fio.for_seconds(*guest, settings.fio_seconds, **how)["write"]
                yield f"{self.name}-{mode}-after", ONEFOLD, Sample(median_us(after))
                yield f"{self.name}-{mode}-after", OTHER, Sample(median_us(alone))
            ground.close()

    @staticmethod
    def _log(ground):
        """Returns where fio, as the user that it is, may log its latencies."""
        folder = ground.folder / "latencies"
        folder.mkdir(exist_ok=True)
        ground.place.user.own(folder)
        return folder / "guest"


def median_us(writes):
    """Returns the median latency of a job's requests, in microseconds."""
    return writes["clat_ns"]["percentile"]["50.000000"] / 1000

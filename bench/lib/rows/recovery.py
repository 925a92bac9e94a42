"""Mounting after a crash: experiment A4 of the LiveDFS paper, which pulled the plug in the middle of a long write."""

import time

from ..measure import Line, Sample
from ..system import BenchError, NothingToRecover
from .row import Row, seed_of

KEPT = "kept"
KEPT_BYTES = 1 << 20
CHURN = "churn"
COMMIT_SECONDS = 5
# A crash that comes right after the journal was emptied shows nothing, and is done again: so many seconds earlier or
# later, or the same number of blocks would have been written until then.
CRASH_OFFSETS = (0, -1, 1, -0.5)


class RecoveryRow(Row):
    """New files are written one after the other until the crash; then the clock runs until the mount is there.

    The pool's daemon is killed; ext4 is told to stop as if the power had gone (see `Ext4Side.crash`). Both commit
    every five seconds, and the caches are dropped before the mount. What was synced before has to be there after it.
    """

    name = "recovery"
    # The file system of the machine is not crashed.
    sides = ("pool", "ext4")
    share_of_time = 1.5
    # The crash has to come after the first commit by itself.
    in_quick = False
    lines = (
        Line(
            "recovery", f"mount after a crash in the middle of a write, commits every {COMMIT_SECONDS} s", "s",
            higher_is_better=False, goal="1 s / 0.2 s",
        ),
        Line(
            "recovery-filter", "until every equal block can be found again", "s", higher_is_better=False,
            has_ratio=False,
        ),
    )  # fmt: skip
    rounds_max = 3

    def measure(self, side, settings, round_no):
        for offset in CRASH_OFFSETS:
            seconds = self._crash(side, settings, round_no, settings.recovery_seconds + offset)
            try:
                samples = {"recovery": Sample(seconds, more=side.recovered())}
                break
            except NothingToRecover:
                if offset == CRASH_OFFSETS[-1]:
                    raise
                self._remove(side)
        if side.name == "pool":
            started = time.monotonic()
            side.wait_for_filter()
            samples["recovery-filter"] = Sample(seconds + time.monotonic() - started)
        side.client("read", side.path(KEPT), bytes=KEPT_BYTES, seed=seed_of(round_no, use=16))
        self._remove(side)
        return samples

    def _crash(self, side, settings, round_no, after_seconds):
        """Crashes it so long after it is written to; returns how many seconds the mount took afterwards."""
        side.remount(**{"commit-interval": f"{COMMIT_SECONDS}s"})
        side.client("write", side.path(KEPT), bytes=KEPT_BYTES, seed=seed_of(round_no, use=16))
        with side.background_client(
            "churn", side.path(CHURN), bytes=settings.layout_bytes, seed=seed_of(round_no, use=17)
        ) as client:
            time.sleep(after_seconds)
            if client.poll() is not None:
                raise BenchError(f"{self.name}: the writer on {side.name} ended before the crash")
            side.crash()
        return side.recover()

    @staticmethod
    def _remove(side):
        side.remove(KEPT, *(path.name for path in side.mountpoint.glob(f"{CHURN}-*")))

    def finish(self, side, settings):
        side.remount()

"""What it costs that a pass works in batches: the calls that it makes, and the extents that it leaves."""

from lib.data import BLOCK_BYTES
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, lower
from lib.rows.row import seed_of
from lib.system import BenchError

from .maps import Layout
from .row import ShareRow
from .sets import copy_set, what_is_copied

MIB = 1 << 20
# Upper limit of the contents that a pass puts into the arena in one batch: the slots of an arena file.
SLOTS_MAX = 1 << 18
# The least `--memory`. It has room for fewer contents: of 96 bytes each, in a quarter of what buffers leave.
SMALL_MEMORY = "64M"
SLOTS_SMALL = (64 - 48) * MIB // 4 // 96
IN_SMALL_BATCHES = ("--memory", SMALL_MEMORY)
SMALL_BATCHES = f"batches of {SLOTS_SMALL * BLOCK_BYTES // MIB} MiB (`{' '.join(IN_SMALL_BATCHES)}`)"
# Fewer batches than in a full run say nothing.
BATCHES_MIN = 4
# A pass makes calls shorter when they take longer than this. At the upper limit, other work hardly changes how many
# there are.
PATIENT = ("--max-stall", "100ms")


class BatchRow(ShareRow):
    """One set of images, passed over in small batches and in a single one of usual size."""

    base = "batches"
    share_of_time = 2.0
    rounds_max = 2

    def make_lines(self, settings):
        where = f"over {what_is_copied(settings)} on {self.where} in {SMALL_BATCHES}"
        beside = "one batch"
        title = f"calls that clone or share of a pass {where}"
        yield lower(f"{self.name}-calls", title, "calls", goal="0.952x", beside=beside)
        title = "extents of the images afterwards"
        yield lower(f"{self.name}-extents", title, "extents", goal="0.952x", beside=beside)
        yield lower(f"{self.name}-time", "the whole pass, cold caches", "s", goal="report", beside=beside)

    def measure(self, ground, settings, round_no):
        turns = [(ONEFOLD, IN_SMALL_BATCHES), (OTHER, ())]
        shared = {}
        # The side that goes first changes, in case going first matters.
        for side, words in turns if round_no % 2 == 0 else reversed(turns):
            ground.open()
            copy_set(ground, settings, seed_of(round_no, use=90))
            ground.make_cold()
            done = ground.share(*PATIENT, *words)
            self._ensure_batches(side, done.told["planned"]["promoted"], settings)
            layout = Layout.of(ground.images())
            shared[side] = layout.shared_bytes
            yield f"{self.name}-calls", side, Sample(calls_of(done.told), more=done.told)
            yield f"{self.name}-extents", side, Sample(layout.extents, more=vars(layout))
            yield f"{self.name}-time", side, Sample(done.seconds)
            ground.close()
        if min(shared.values()) < max(shared.values()) * 0.99:
            raise BenchError(f"{self.name}: {shared[ONEFOLD]} bytes are shared in batches, {shared[OTHER]} in one")

    def _ensure_batches(self, side, promoted, settings):
        """Raises BenchError where a side had too many batches, or too few."""
        if side == OTHER and promoted > SLOTS_MAX:
            raise BenchError(f"{self.name}: {promoted} contents are more than one batch")
        if side == ONEFOLD and settings.mode == "full" and promoted <= (BATCHES_MIN - 1) * SLOTS_SMALL:
            raise BenchError(f"{self.name}: {promoted} contents are less than {BATCHES_MIN} batches")


def calls_of(told):
    """Returns how many calls a pass made that clone or share."""
    calls = told.get("calls")
    if calls is None:
        raise BenchError("the pass does not tell its calls: the program is older than this row")
    return calls["clones"] + calls["shares"]

"""What an ordinary user's writes cost beside root's: the kernel marks each of them, as it may have to drop privileges."""

from ..measure import Line, Sample
from ..user import ROOT
from .random_io import DEPTH, NAME, fio, rate, small_writes
from .row import Row, expect_unique, seed_of
from .streams import throughput


class UserWriteRow(Row):
    """Random writes by an ordinary user and by root, one after the other, in one file of the pool."""

    name = "random-write-user"
    sides = ("pool",)
    share_of_time = 1.5
    lines = (
        Line("random-write-user", f"O_DIRECT 4 KiB random write, depth {DEPTH}, by an ordinary user", "op/s"),
        Line("random-write-root", "the same by root", "op/s"),
        Line("random-write-user-part", "what the user has of that", "x", goal="0.9x", has_ratio=False),
    )

    def prepare(self, side, settings):
        side.client("write", side.path(NAME), bytes=settings.layout_bytes, seed=seed_of(0, use=50))

    def measure(self, side, settings, round_no):
        users = {"user": side.user, "root": ROOT}
        samples = {}
        # The user that goes first changes, in case going first matters.
        for number, key in enumerate(users if round_no % 2 == 0 else reversed(users)):
            with side.clients_are(users[key]):
                job, cost = fio(
                    side, "randwrite", 2 * round_no + number, settings.fio_seconds, direct=1, ioengine="libaio",
                    iodepth=DEPTH, end_fsync=1,
                )  # fmt: skip
            expect_unique(cost, self.name)
            side.settle()
            samples[f"random-write-{key}"] = rate(job, "write", cost)
        part = samples["random-write-user"].value / samples["random-write-root"].value
        return samples | {"random-write-user-part": Sample(part)}

    def finish(self, side, settings):
        side.remove(NAME)


class UserStreamRow(Row):
    """New files written in order by an ordinary user and by root, one after the other, on one mount of the pool."""

    name = "stream-user"
    sides = ("pool",)
    share_of_time = 1.5
    in_quick = False
    KINDS = {
        "buffered": "sequential unique write, 1 MiB, buffered, fsync",
        "direct": "the same, O_DIRECT",
        "small": "sequential unique write, 4 KiB, buffered, fsync",
    }
    lines = tuple(
        Line(f"stream-user-{kind}", f"what a user has of root's rate: {title}", "x", goal="report", has_ratio=False)
        for kind, title in KINDS.items()
    )

    def measure(self, side, settings, round_no):
        rates = {kind: {} for kind in self.KINDS}
        users = {"user": side.user, "root": ROOT}
        # The one that goes first changes, in case going first matters.
        for number, key in enumerate(users if round_no % 2 == 0 else reversed(users)):
            with side.clients_are(users[key]):
                for kind, of in rates.items():
                    of[key] = self.rate(side, settings, kind, 2 * round_no + number)
        return {f"stream-user-{kind}": Sample(of["user"] / of["root"], more=of) for kind, of in rates.items()}

    def rate(self, side, settings, kind, seed_no):
        """Returns the MB that one client writes in a second."""
        if kind == "small":
            return small_writes(side, settings, seed_no).value
        seed = seed_of(seed_no, use=51 if kind == "direct" else 52)
        options = {"direct": True} if kind == "direct" else {}
        answer, cost = side.client("write", side.path(NAME), bytes=settings.file_bytes, seed=seed, **options)
        expect_unique(cost, self.name)
        side.remove(NAME)
        return throughput(settings.file_bytes, answer, cost).value

"""What was measured: values by series, side and round."""

from dataclasses import asdict, dataclass, field

from lib.measure import Spread
from lib.report import write_document

PLAIN = "ext4"


@dataclass
class Results:
    """`values[series][side]` is a list of numbers; seconds, or MB/s where the series is a throughput."""

    facts: dict
    settings: object
    # Keys of the sides to their titles, in the order of the tables.
    sides: dict
    images: list = field(default_factory=list)
    values: dict = field(default_factory=dict)
    # Lines of what went wrong.
    failures: list = field(default_factory=list)
    complete: bool = False

    def add(self, series, side, value):
        self.values.setdefault(series, {}).setdefault(side, []).append(value)

    def spread(self, series, side):
        """Returns median, lowest and highest; None where nothing was measured."""
        return Spread.of(self.values.get(series, {}).get(side, []))

    def ratio(self, series, side):
        """Returns a side as a multiple of ext4, from the pairs of each round; None where a round of either is missing.

        Pairs, because both saw the same disk in the same minute.
        """
        own, plain = (self.values.get(series, {}).get(key, []) for key in (side, PLAIN))
        if side == PLAIN or not own or len(own) != len(plain):
            return None
        return Spread.of(mine / theirs for mine, theirs in zip(own, plain, strict=True))

    def write_json(self, path):
        write_document(path, asdict(self))


def image_series(number):
    """Returns the series of one image's insert time (Figure 11a)."""
    return f"insert-{number + 1}"


def fetch_series(count):
    """Returns the series of fetching so many images at once (Figure 12b)."""
    return f"fetch-{count}"


WRITE, READ, DUPLICATE, RECOVERY, RECOVERED, INSERT = "write", "read", "duplicate", "recovery", "recovered", "insert"

"""A real disk image from outside: the first time, and when all of it is there already."""

from ..measure import Line, Sample
from .row import Row

FIRST = "import-first"
SECOND = "import-second"


class ImportRow(Row):
    """`onefold pool import` beside `cp --sparse=always`, each with an fsync; the image is in the page cache."""

    name = "import"
    lines = (
        Line("import-new", "import of a real image: new", "s", higher_is_better=False),
        Line("import-again", "import of the same image under another name", "s", higher_is_better=False),
        Line("import-gain", "how many times faster the second is", "x", goal="2x / 4x", has_ratio=False),
    )

    def missing(self, settings):
        if settings.image is not None:
            return None
        return "no image; `make demo` builds some into bench/corpus/cache, `--image` names one"

    def rounds(self, settings):
        # It takes far longer than any other row, and its image is the same each time.
        return (settings.rounds + 1) // 2

    def measure(self, side, settings, round_no):
        read_through(settings.image)
        new, new_cost = self._import(side, settings.image, FIRST)
        side.settle()
        again, again_cost = self._import(side, settings.image, SECOND)
        side.remove(FIRST, SECOND)
        return {
            "import-new": Sample(new, new_cost),
            "import-again": Sample(again, again_cost),
            "import-gain": Sample(new / again),
        }

    @staticmethod
    def _import(side, image, name):
        if side.name == "pool":
            words = (side.onefold, "--quiet", "pool", "import", side.mountpoint, image, "--to", name)
        else:
            words = ("cp", "--sparse=always", image, side.path(name))
        finished, cost = side.command(*words)
        synced, sync_cost = side.client("sync", side.path(name))
        cost.client_seconds += sync_cost.client_seconds
        cost.server_seconds += sync_cost.server_seconds
        cost.machine_seconds += sync_cost.machine_seconds
        return finished.seconds + synced["seconds"], cost


def read_through(path):
    """Brings a file into the page cache, so that the disk it comes from is not what is measured."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass

"""What every row of the table of served images is, and the bench that measures them."""

from lib.rows.beside import ONEFOLD, BesideBench, BesideRow
from lib.system import BenchError

from . import network
from .images import Images


class ServeRow(BesideRow):
    """A row whose `measure` is given the run's Images."""

    sides = (ONEFOLD,)
    # Whether it has machines of its own, in namespaces of the network.
    needs_network = False

    def missing(self, settings):
        return super().missing(settings) or (network.why_none() if self.needs_network else None)

    def prepare(self, images, settings):
        """Makes what it needs before the first round."""

    def finish(self, images, settings):
        """Removes what only this row needs."""
        images.drop_targets()


class ServeBench(BesideBench):
    """A folder with images, an archive that has them, and targets."""

    def __init__(self, place, programs, settings):
        self.place, self.settings = place, settings
        self.images = Images(place, programs, settings)

    def open(self):
        self.place.ballast.fill()

    def prepare(self, row):
        row.prepare(self.images, self.settings)

    def ground_of(self, row):
        return self.images

    def finish(self, row):
        row.finish(self.images, self.settings)

    def close(self):
        self.images.close()

    def start_anew(self):
        self.close()
        self.images.drop_targets()


def expect(is_so, why):
    """Raises BenchError where a row has measured something else than it means to."""
    if not is_so:
        raise BenchError(why)

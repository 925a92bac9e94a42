"""What every row of the table of archives is, and the bench that measures them."""

from lib.rows.beside import ONEFOLD, BesideBench, BesideRow

from .dedup import DEDUPLICATING
from .gateway import Gateway
from .images import Images
from .plain import PLAIN

# All of them: which ones a run has depends on what is installed.
SIDES = (ONEFOLD, *(side.name for side in (*DEDUPLICATING, *PLAIN)))


class ImageRow(BesideRow):
    """A row whose `measure` is given the run's Images."""

    sides = SIDES

    def prepare(self, images, settings):
        """Makes what it needs. Rows that need the stores of all sides stand together: another row drops them."""
        images.drop_stores()


class ImagesBench(BesideBench):
    """A folder with sets of images."""

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
        Gateway(self.place.folder).stop()
        self.images.close()
        self.images.clear()

    start_anew = close

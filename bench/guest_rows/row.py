"""What every row about guests is, and the bench that measures them."""

from lib.rows.beside import ONEFOLD, OTHER, BesideBench, BesideRow, alternating

from .images import Images
from .programs import median, timed, warm


class GuestRow(BesideRow):
    """A row that looks into images, which it makes before its first round."""

    def prepare(self, images, settings):
        """Makes the images that it looks into."""

    def finish(self, images, settings):
        """Removes the images that no other row looks into."""


class GuestBench(BesideBench):
    """A folder of images."""

    def __init__(self, place, programs, settings):
        self.place = place
        self.settings = settings
        self.images = Images(place.folder, programs, settings)

    def open(self):
        self.images.open()
        self.place.ballast.fill()

    def prepare(self, row):
        row.prepare(self.images, self.settings)

    def ground_of(self, row):
        return self.images

    def finish(self, row):
        row.finish(self.images, self.settings)
        self.images.unmount_all()

    def close(self):
        self.images.unmount_all()

    start_anew = close


def from_memory(round_no, runs, path, ours, theirs):
    """Has a file in memory, and yields each side with the median run of its command, Onefold's and the other one."""
    warm(path)
    for side, command in alternating(round_no, (ONEFOLD, ours), (OTHER, theirs)):
        yield side, median(runs, lambda command=command: timed(*command))

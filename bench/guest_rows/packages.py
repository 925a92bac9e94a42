"""The packages of a guest, with all their files and digests."""

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, BesideLine
from lib.system import BenchError

from .programs import median, timed, warm
from .row import GuestRow

RUNS = 5
WORDS = ("packages", "--files")


class PackagesRow(GuestRow):
    """All packages of the first image, as a document for programs: only that has the digests."""

    name = "packages"
    # Which of the run's images, and what it is called.
    title = "an image"

    def make_lines(self, settings):
        title = f"`guest packages --files --json` of {self.title}, warm: paths with their digests, the whole process"
        yield BesideLine(self.name, title, "paths/s", goal="300,000 / 1,000,000")

    def path(self, images, settings):
        return images.image

    def measure(self, images, settings, round_no):
        path = self.path(images, settings)
        warm(path)
        packages = images.programs.guest(*WORDS, path)["packages"]
        files = [file for package in packages for file in package["files"]]
        digests = sum(file["digest"] is not None for file in files)
        if not files or not digests:
            raise BenchError("the image has no packages with digests")
        known = median(RUNS, lambda: timed(images.programs.onefold, "guest", WORDS[0], "--json", *WORDS[1:], path))
        more = {"packages": len(packages), "paths": len(files), "digests": digests, "seconds": known.seconds}
        yield self.name, ONEFOLD, Sample(len(files) / known.seconds, more=more)


class DesktopPackagesRow(PackagesRow):
    """A desktop has many more of them."""

    name = "packages-desktop"
    title = "the desktop of `vdi`"

    def missing(self, settings):
        return None if settings.desktop else "the desktop is not built: run `make corpus SETS=vdi`"

    def path(self, images, settings):
        return settings.desktop

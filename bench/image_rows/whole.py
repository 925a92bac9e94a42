"""A check of all data, and a look into an archived image."""

from guest_rows.programs import timed
from lib import caches, system
from lib.measure import Cost, Sample
from lib.rows.beside import ONEFOLD, alternating

from .images import DERIVED, MIB, missing_of
from .line import ImageLine
from .packs import files
from .row import ImageRow
from .stored import smaller

# Of about 10 KiB in each Debian.
SMALL = "/usr/share/common-licenses/Apache-2.0"


class CheckRow(ImageRow):
    """`archive check --data`, beside reading the same files."""

    name = "check"
    sides = (ONEFOLD, "cat")

    def make_lines(self, settings):
        title = "`archive check --data`, cold: stored bytes"
        yield ImageLine("check", title, "MiB/s", bound=0.8, aim=1.0, beside="reading the same files")
        title = "the same for each second of processor time; this or the ratio above has to reach its bound"
        yield ImageLine("check-cpu", title, "MiB/s", bound=1024)

    def missing(self, settings):
        return missing_of(DERIVED, settings)

    def measure(self, images, settings, round_no):
        archive = images.captured(DERIVED).archive
        packs = files(archive, "packs")
        length = sum(path.stat().st_size for path in packs)
        check = (images.programs.onefold, "archive", "check", "--data", "--quiet", archive)
        for side, command in alternating(round_no, (ONEFOLD, check), ("cat", ("cat", *packs))):
            caches.forget_all(archive)
            took = timed(*command)
            yield "check", side, Sample(length / MIB / took.seconds, Cost(took.cpu_seconds))
            if side == ONEFOLD:
                yield "check-cpu", side, Sample(length / MIB / took.cpu_seconds)


class CatRow(ImageRow):
    """A small file of an archived image, the whole process."""

    name = "cat"
    sides = (ONEFOLD,)

    def make_lines(self, settings):
        title = "`guest cat` of a file of 11 KiB out of an archived image, cold: time"
        yield smaller("cat", title, "s", 1.0, 0.2)
        yield smaller("cat-bytes", "bytes that it reads", "MiB", 32, 8)

    def missing(self, settings):
        if settings.mode == "tiny":
            return "made-up guests have no such file"
        if not settings.archived_sources:
            return "this `guest cat` takes no archived image"
        return missing_of(DERIVED, settings)

    def measure(self, images, settings, round_no):
        captured = images.captured(DERIVED)
        source = f"{captured.archive}#{captured.added[-1].told['image']}"
        caches.forget_all(captured.archive)
        took = timed(images.programs.onefold, "guest", "cat", source, SMALL)
        yield "cat", ONEFOLD, Sample(took.seconds, Cost(took.cpu_seconds))
        yield "cat-bytes", ONEFOLD, Sample(took.read_bytes / MIB)


def takes_archived_images(onefold):
    """Tells whether the verbs of `guest` take an image of an archive, as their help says."""
    return "ARCHIVE#" in system.run(onefold, "guest", "cat", "--help").text.upper()


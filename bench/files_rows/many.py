"""How much memory very many images with very many files take."""

from types import SimpleNamespace

from guest_rows import made
from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, lower
from lib.system import BenchError
from share_rows.ground import XFS

from .row import MIB, FilesRow, share


class ManyRow(FilesRow):
    """Clones of one image by reflink; a dry run finds the files of packages that are equal, which are all."""

    name = "many"
    share_of_time = 3.0
    rounds_max = 1

    def make_lines(self, settings):
        what = f"{settings.many_images:,} images of {settings.many_packages * made.FILES_OF_PACKAGE:,} files"
        limit = f"`--memory {settings.many_memory >> 20}M`"
        title = f"memory that finding takes for {what}, at most"
        yield lower(self.name, title, "MiB", goal="1x", beside=limit)
        yield BesideLine(f"{self.name}-rate", "files a second", "files/s", goal="report")

    def measure(self, bench, settings, round_no):
        ground = bench.ground(XFS, settings.many_device_bytes)
        first = ground.path("image-0.raw")
        sizes = SimpleNamespace(made_packages=settings.many_packages, made_bytes=settings.many_image_bytes)
        made.image(first, bench.place.folder / "tree", sizes)
        for number in range(1, settings.many_images):
            system.run("cp", "--reflink=always", first, ground.path(f"image-{number}.raw"))
        ground.free_bytes()
        memory = ("--memory", f"{settings.many_memory >> 20}M", "--temporary", ground.temporary)
        done = share(bench.programs, "files", ground.mountpoint, "--dry-run", "--tiers", "1", *memory)
        files = done.told["examined"]["files"]
        if files < settings.many_images * settings.many_packages * made.FILES_OF_PACKAGE:
            raise BenchError(f"only {files} files were examined")
        yield self.name, ONEFOLD, Sample(done.told["memory_peak_bytes"] / MIB, more=done.told)
        yield self.name, OTHER, Sample(settings.many_memory / MIB)
        yield f"{self.name}-rate", ONEFOLD, Sample(files / done.seconds)

"""All files of a guest: with all extents in the order of the disk, and by name, beside other programs."""

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, alternating, lower

from .programs import forget, median, timed, warm
from .row import GuestRow

RUNS = 5


class ExtentsRow(GuestRow):
    """The library's list of all files: no verb prints it."""

    name = "extents"

    def make_lines(self, settings):
        title = "files with all their extents in the order of the disk, warm (the library's list, without printing it)"
        yield BesideLine("extents", title, "files/s", goal="300,000 / 1,000,000")

    def measure(self, images, settings, round_no):
        warm(images.image)
        told = [images.programs.library("files", images.image) for _ in range(RUNS)]
        known = sorted(told, key=lambda one: one["seconds"])[RUNS // 2]
        yield "extents", ONEFOLD, Sample(known["files"] / known["seconds"], more=known)


class ListRow(GuestRow):
    """All files with what `ls -l` shows of them, of an image of which nothing is in memory."""

    name = "list"

    def make_lines(self, settings):
        title = "`guest ls -lR` of a system, nothing of the image in memory"
        yield lower("list", title, "s", goal="1x / 3x", beside="mount, find -ls and umount")

    def measure(self, images, settings, round_no):
        root, mountpoint = images.root(), images.mountpoint
        by_mount = f"mount -o loop,ro {root} {mountpoint} && find {mountpoint} -ls && umount {mountpoint}"

        def guest():
            forget(root)
            return timed(images.programs.onefold, "guest", "ls", "-lR", root)

        def mount():
            forget(root)
            return timed("sh", "-c", by_mount)

        for side, one in alternating(round_no, (ONEFOLD, guest), (OTHER, mount)):
            yield "list", side, median(RUNS, one).sample()


class FlsRow(GuestRow):
    """All names, beside the Sleuth Kit."""

    name = "fls"
    needed = ("fls",)

    def make_lines(self, settings):
        for key, how in (("cold", "nothing of the image in memory"), ("warm", "warm")):
            title = f"`guest find` of all names of a system, {how}"
            yield lower(f"fls-{key}", title, "s", goal="1x / 3x", beside="fls -r")

    def measure(self, images, settings, round_no):
        root = images.root()
        commands = ((ONEFOLD, (images.programs.onefold, "guest", "find", root)), (OTHER, ("fls", "-r", root)))
        for side, command in alternating(round_no, *commands):

            def cold(command=command):
                forget(root)
                return timed(*command)

            yield "fls-cold", side, median(RUNS, cold).sample()
            warm(root)
            yield "fls-warm", side, median(RUNS, lambda command=command: timed(*command)).sample()

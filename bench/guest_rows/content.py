"""Content of files: the first byte of a small one, and all of a large one."""

from lib.measure import Work
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, alternating, lower

from .programs import forget, median, timed, warm
from .row import GuestRow, from_memory

MIB = 1 << 20
SMALL = "etc/os-release"
RUNS = 5


class FirstByteRow(GuestRow):
    """A small file of an image of which nothing is in memory."""

    name = "first-byte"

    def make_lines(self, settings):
        title = f"`guest cat IMAGE /{SMALL}`, nothing of the image in memory"
        yield lower("first-byte", title, "ms", goal="1x / 3x", beside="mount, cat and umount")

    def measure(self, images, settings, round_no):
        root, mountpoint = images.root(), images.mountpoint
        by_mount = f"mount -o loop,ro {root} {mountpoint} && cat {mountpoint}/{SMALL} && umount {mountpoint}"

        def guest():
            forget(root)
            return timed(images.programs.onefold, "guest", "cat", root, f"/{SMALL}")

        def mount():
            forget(root)
            return timed("sh", "-c", by_mount)

        for side, one in alternating(round_no, (ONEFOLD, guest), (OTHER, mount)):
            yield "first-byte", side, median(RUNS, one).sample(1000)


class CatRow(GuestRow):
    """A large file, from memory."""

    name = "cat"

    def make_lines(self, settings):
        title = f"`guest cat` of a file of {settings.large_bytes // MIB} MiB to /dev/null, warm"
        yield BesideLine("cat", title, "MB/s", goal="0.5x / 0.9x", beside="cat on the mount")

    def prepare(self, images, settings):
        images.one_file()

    def measure(self, images, settings, round_no):
        path = images.one_file()
        with images.mounted(path, "ro") as mountpoint:
            # Both come from the disk: the page cache keeps what was written in smaller pieces, and is slower there.
            forget(path)
            warm(path)
            ours = (images.programs.onefold, "guest", "cat", path, "/large")
            theirs = ("cat", mountpoint / "large")
            for side, known in from_memory(round_no, RUNS, mountpoint / "large", ours, theirs):
                sample = known.sample()
                sample.value = settings.large_bytes / known.seconds / 1e6
                sample.work = Work.moved(settings.large_bytes)
                yield "cat", side, sample

    def finish(self, images, settings):
        images.drop("large")

"""How long a look into an image takes: one directory, beside libguestfs, and a question to a hundred clones."""

from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, lower
from lib.system import BenchError

from .programs import forget, median, timed, warm
from .row import GuestRow

# Runs of one sample: each lasts some milliseconds.
RUNS = 15
COLD_RUNS = 5
# What libguestfs's own page of its performance says that its appliance takes to start, with hardware virtualisation.
APPLIANCE_SECONDS = 6.0
APPLIANCE = "libguestfs's page: 6 s"


class LookRow(GuestRow):
    """`guest ls /`, the whole process."""

    name = "ls"
    needed = ("debugfs",)

    def make_lines(self, settings):
        yield lower("ls-warm", "`guest ls IMAGE /`, the whole process, warm", "ms", goal="20 / 5 ms")
        yield lower("ls-cold", "the same, nothing of the image in memory", "ms", goal="100 / 40 ms")
        yield lower("ls-dirty", "the same, warm, of an image whose journal has to be applied", "ms", goal="150 / 60 ms")
        title = "the first line, beside the start of an appliance with hardware virtualisation"
        yield lower("ls-appliance", title, "ms", goal="100x / 1000x", beside=APPLIANCE)

    def prepare(self, images, settings):
        images.dirty()

    def measure(self, images, settings, round_no):
        words = (images.programs.onefold, "guest", "ls")
        warm(images.image)
        warm(images.dirty())
        known = median(RUNS, lambda: timed(*words, images.image, "/"))
        yield "ls-warm", ONEFOLD, known.sample(1000)
        yield "ls-appliance", ONEFOLD, known.sample(1000)
        yield "ls-appliance", OTHER, Sample(APPLIANCE_SECONDS * 1000)
        yield "ls-dirty", ONEFOLD, median(RUNS, lambda: timed(*words, images.dirty(), "/")).sample(1000)

        def cold():
            forget(images.image)
            return timed(*words, images.image, "/")

        yield "ls-cold", ONEFOLD, median(COLD_RUNS, cold).sample(1000)

    def finish(self, images, settings):
        images.drop("dirty")


class VirtLsRow(GuestRow):
    """The same question, asked by libguestfs."""

    name = "virt-ls"
    needed = ("virt-ls",)
    # It boots a kernel, emulated where the machine has no virtualisation.
    share_of_time = 3.0
    in_quick = False
    rounds_max = 1

    def make_lines(self, settings):
        title = "`guest ls IMAGE /`, warm, beside `virt-ls -a IMAGE /`"
        yield lower("virt-ls", title, "ms", goal="100x / 1000x", beside="virt-ls")

    def why_not(self, settings):
        if settings.mode == "tiny":
            return "a virtual machine starts for it"
        return super().why_not(settings)

    def measure(self, images, settings, round_no):
        warm(images.image)
        known = median(RUNS, lambda: timed(images.programs.onefold, "guest", "ls", images.image, "/"))
        yield "virt-ls", ONEFOLD, known.sample(1000)
        yield "virt-ls", OTHER, listed(images.image).sample(1000)


def listed(image):
    """Runs virt-ls; emulated where its appliance does not start, as with a /dev/kvm that this QEMU cannot use."""
    command = ("virt-ls", "--format=raw", "-a", image, "/")
    try:
        return timed(*command)
    except BenchError:
        return timed("env", "LIBGUESTFS_BACKEND_SETTINGS=force_tcg", *command)


class ClonesRow(GuestRow):
    """One question to many images."""

    name = "clones"
    needed = ("mkfs.xfs",)

    def make_lines(self, settings):
        count = settings.clones
        yield lower("clones-df", f"`guest df` of {count} clones, warm", "s", goal="2 / 0.5 s")
        title = f"`guest packages --name 'libssl*'` of {count} clones, warm"
        yield lower("clones-packages", title, "s", goal="5 / 1 s")

    def prepare(self, images, settings):
        images.clones()

    def measure(self, images, settings, round_no):
        folder = images.clones()
        onefold = images.programs.onefold
        for key, words in (("df", ("df",)), ("packages", ("packages", "--name", "libssl*"))):
            command = (onefold, "guest", *words, folder)
            # The first run has all that it reads put into memory.
            timed(*command)
            yield f"clones-{key}", ONEFOLD, timed(*command).sample()

    def finish(self, images, settings):
        images.unmount_all()
        images.drop("clones")

"""A machine that comes to a common volume, by how many machines there are already."""

from dataclasses import replace

from fbs_rows.machines import MACHINES, MADE_BYTES, TEMPLATE, MadeUp
from fbs_rows.offline import COMMON
from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, alternating, lower
from lib.system import BenchError

from .row import FilesRow, share

# What the files of a made-up package take of a disk: at most, and at least of what is shared of them.
PACKAGE_BYTES_MAX = 1 << 20
PACKAGE_BYTES_MIN = 256 << 10
# Beside the images lies a folder with the files of the packages, which are no images.
WORDS = ("--common", *(word for name in (COMMON, TEMPLATE, MACHINES) for word in ("--include", name)))


class CommonRow(FilesRow):
    """Machines that are made up: clones of a template that got the same packages."""

    name = "common"
    share_of_time = 3.0
    needed = ("mkfs.xfs", "mke2fs", "debugfs", "e2fsck")

    def make_lines(self, settings):
        few, many = settings.common_machines
        title = f"a new machine with a common volume, warm, beside {many} machines"
        # At most 1.2 times, and 1.05 times, as long.
        yield lower(self.name, title, "s", goal="0.833x / 0.952x", beside=f"beside {few} machines")

    def measure(self, bench, settings, round_no):
        few, many = settings.common_machines
        for side, count in alternating(round_no, (OTHER, few), (ONEFOLD, many)):
            done = new_machine(bench, replace(settings, new_packages=settings.common_packages), count)
            yield self.name, side, Sample(done.seconds, more=done.told)


def new_machine(bench, settings, count):
    """Shares files of so many machines with a common volume, and then those of one more; returns the second Pass."""
    guests = bench.guests
    path = guests.path("machines-of-common")
    made_up = MadeUp(guests, path, settings)
    made_up.make(count, MADE_BYTES + (count + 1) * settings.new_packages * PACKAGE_BYTES_MAX)
    try:
        with guests.mounted(path, name="common") as folder:
            system.run(bench.programs.onefold, "--quiet", "share", "common", "create", folder / COMMON)
            share(bench.programs, "files", folder, *WORDS)
            made_up.add_machine(folder, count + 1)
            system.run("sync", "--file-system", folder)
            bench.place.ballast.fill()
            done = share(bench.programs, "files", folder, *WORDS)
    finally:
        path.unlink(missing_ok=True)
    # The machines, the new one and the template. The volume is none of them.
    examined = done.told["examined"]["images"]
    if examined != count + 2:
        raise BenchError(f"{examined} images were examined, not {count + 2}")
    wanted = settings.new_packages * PACKAGE_BYTES_MIN
    if done.shared_bytes < wanted:
        raise BenchError(f"the new machine shares {done.shared_bytes} bytes, not {wanted}")
    return done

"""What every experiment of the FBS paper is, and the bench that it works on."""

from contextlib import contextmanager
from dataclasses import dataclass

from lib import device, system
from lib.programs import Programs
from lib.rows.beside import lacking
from lib.system import BenchError

from .machines import Machines


@dataclass
class Bench:
    """A folder for images, whose names end in `.device`: whatever way a run ends, their loop devices go."""

    place: object
    programs: Programs
    settings: object
    source: object = None

    def machines(self):
        """Returns the set of machines."""
        return Machines(self, self.source)

    @property
    def folder(self):
        return self.place.folder

    def path(self, name):
        return self.folder / f"{name}.device"

    @contextmanager
    def mounted(self, path, *options, offset=0, direct=False, name="guest"):
        """Has an image mounted meanwhile. Afterwards all is in the image, and no mount namespace has it mounted."""
        mountpoint = self.folder / f"{name}.mount"
        mountpoint.mkdir(exist_ok=True)
        words = (f"--offset={offset}", f"--direct-io={'on' if direct else 'off'}")
        loop = system.run("losetup", *words, "--show", "--find", path).text.strip()
        try:
            system.run("mount", *(["-o", ",".join(options)] if options else []), loop, mountpoint)
            try:
                yield mountpoint
            finally:
                system.unmount(mountpoint)
                device.wait_until_unused(loop)
        finally:
            system.run("losetup", "--detach", loop)

    def close(self):
        """Takes away what is mounted, in whatever state it is."""
        for mountpoint in self.folder.glob("*.mount"):
            system.unmount(mountpoint)
        for path in self.folder.glob("*.device"):
            device.detach_loops(path)


class Experiment:
    """One table or figure of the paper."""

    # As `--only` takes it.
    name = ""
    title = ""
    # Programs without which it is left out.
    needed = ()

    def why_not(self, settings):
        """Returns why it is left out; None where it is not."""
        return lacking(self.needed)

    def measure(self, bench):
        """Returns a Section. Raises BenchError where a claim of ours does not hold."""
        raise NotImplementedError


def expect(holds, message):
    """Raises BenchError with a message unless something holds."""
    if not holds:
        raise BenchError(message)

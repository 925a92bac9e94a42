"""What every row about sharing is, and the bench that measures them."""

from lib import device, system
from lib.rows.beside import BesideBench, BesideRow
from lib.runner import say

from .ground import NAMES, Ground


class ShareRow(BesideRow):
    """A row on one kind of file system, which it has made anew as often as it likes."""

    # Part of its name; the file system is the other one.
    base = ""

    def __init__(self, settings, kind):
        self.kind = kind
        self.name = f"{self.base}-{kind}"
        super().__init__(settings)

    @property
    def where(self):
        """Returns the file system, as lines name it."""
        return NAMES[self.kind]

    def missing(self, settings):
        if (why := super().missing(settings)) is not None:
            return why
        try:
            system.run(f"mkfs.{self.kind}", "-V")
        except system.BenchError as error:
            return str(error)
        return None


class ShareBench(BesideBench):
    """One disk, on which each row has a file system made."""

    def __init__(self, place, programs, settings):
        self.place = place
        self.programs = programs
        self.settings = settings
        self._ground = None

    def open(self):
        path = self.place.folder / "disk.device"
        if not path.exists():
            say(f"making a disk of {self.settings.device_bytes >> 20} MiB in {self.place.folder}")
            device.allocate(path, self.settings.device_bytes)

    def prepare(self, row):
        self._ground = Ground(self.place, self.programs, row.kind)

    def ground_of(self, row):
        return self._ground

    def finish(self, row):
        self.close()

    def close(self):
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    start_anew = close

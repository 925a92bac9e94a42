"""Where the sides of a benchmark work, and what they have in common there."""

from dataclasses import dataclass
from pathlib import Path

from .memory import Ballast

BALLAST = "ballast"


@dataclass(frozen=True)
class Place:
    """The folder of a run."""

    folder: Path

    @property
    def ballast(self):
        """Returns what fills free memory before each measured turn."""
        return Ballast(self.folder / BALLAST)

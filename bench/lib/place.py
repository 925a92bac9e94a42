"""Where the sides of a benchmark work, and what they have in common there."""

import sys
from dataclasses import dataclass
from pathlib import Path

from .memory import Ballast
from .user import ROOT, User

BALLAST = "ballast"
# What is read all the same where figures mean nothing.
COLD_BALLAST_BYTES = 16 << 20


@dataclass(frozen=True)
class Place:
    """The folder of a run, and the user of its clients."""

    folder: Path
    user: User = ROOT
    # The interpreter that runs the client program.
    python: str = sys.executable
    # Whether figures count: then memory is warm for each of them.
    warms_memory: bool = True

    @property
    def ballast(self):
        """Returns what fills free memory before each measured turn."""
        return Ballast(self.folder / BALLAST, None if self.warms_memory else COLD_BALLAST_BYTES)

"""The programs under test: where they are, and what they say in JSON."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from . import system
from .system import BenchError

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Programs:
    """The program, and the one that calls the library and the kernel without it."""

    onefold: Path
    synthetic: Path

    def guest(self, *words):
        """Returns what a verb of `guest` says in JSON."""
        return json.loads(system.run(self.onefold, "guest", words[0], "--json", "--quiet", *words[1:]).text)

    def library(self, *words):
        """Returns what the library says of an image."""
        return json.loads(system.run(self.synthetic, "guest", *words).text)


def find():
    """Returns both: $ONEFOLD, else the release build of this tree; $ONEFOLD_SYNTHETIC, else what lies beside it."""
    onefold = find_onefold()
    synthetic = Path(os.environ.get("ONEFOLD_SYNTHETIC") or onefold.with_name("onefold-synthetic"))
    return Programs(onefold, executable(synthetic, "ONEFOLD_SYNTHETIC"))


def find_onefold():
    """Returns the program to measure: $ONEFOLD, else the release build of this tree."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    return executable(Path(os.environ.get("ONEFOLD") or target / "release" / "onefold"), "ONEFOLD")


def executable(path, variable):
    path = path.absolute()
    if not os.access(path, os.X_OK):
        raise BenchError(f"there is no program {path}: run `cargo build --release`, or set {variable}")
    return path

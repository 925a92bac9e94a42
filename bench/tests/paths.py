"""Makes the modules of the benchmarks importable: `python3 -m unittest discover -s bench/tests`."""

import os
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
CLIENT = BENCH / "lib" / "client.py"

sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))


def folder(test):
    """Returns an empty folder that lasts as long as a test."""
    made = tempfile.TemporaryDirectory()
    test.addCleanup(made.cleanup)
    return Path(made.name)


def disk_folder(test):
    """Returns an empty folder that lasts as long as a test and that every user can reach.

    Not below /tmp, where it can be helped: that may be a file system without O_DIRECT, or nothing but page cache.
    """
    place = Path(os.environ.get("BENCH_DIR") or BENCH.parent / "target")
    place.mkdir(parents=True, exist_ok=True)
    folder = tempfile.TemporaryDirectory(dir=place)
    test.addCleanup(folder.cleanup)
    os.chmod(folder.name, 0o755)
    return Path(folder.name)

"""Section 4.2: what it costs to hash files as wholes, block by block, and many blocks side by side."""

import json

from lib import system
from lib.measure import Spread
from lib.report import with_unit

from .experiment import Experiment
from .section import Section

# By the names that the program gives the ways: which digest, and of what.
WAYS = {
    "md5_by_file": ("MD5", "each file as one"),
    "md5_by_block": ("MD5", "each block by itself"),
    "blake3_by_file": ("BLAKE3", "each file as one"),
    "blake3_by_block": ("BLAKE3", "each block by itself"),
    "blake3_blocks_side_by_side": ("BLAKE3", "sixteen blocks side by side, as Onefold does"),
}
# The way that the time of each is held against.
BASE = "md5_by_file"


class HashingExperiment(Experiment):
    """The files of the packages, in memory and in one thread."""

    name = "hashing"
    title = "Section 4.2: hashing by file and by block"

    def measure(self, bench):
        tree, _ = bench.machines().packages()
        command = (bench.programs.synthetic, "hash", "--bytes", str(bench.settings.hashed_bytes), tree)
        return section([json.loads(system.run(*command).text) for _ in range(bench.settings.rounds)])


def section(runs):
    """Returns the section of what the program says in each round."""
    result = Section(HashingExperiment.title, ("digest", "of", "MB/s", "time, as a multiple of MD5 of files"))
    result.data = {"runs": runs}
    for way, (digest, what) in WAYS.items():
        rates = Spread.of(run["bytes"] / 1e6 / run["seconds"][way] for run in runs)
        times = Spread.of(run["seconds"][way] / run["seconds"][BASE] for run in runs)
        result.rows.append((digest, what, with_unit(rates, "MB/s"), with_unit(times, "x")))
    result.notes.append(
        f"The same {runs[0]['bytes'] / 1e6:,.0f} MB of {runs[0]['files']:,} files in whole blocks of 4 KiB, from "
        "memory, in one thread. The paper gives no figure; it expects a file to cost less than its blocks, each of "
        "which begins and ends a digest. A digest that works on several blocks at once needs no files for that."
    )
    return result

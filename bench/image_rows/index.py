"""How fast the index of a very large archive answers: 10^8 units, of which only the index exists.

`index_speed`, an example of the crate onefold-image, makes segments and looks units up: `cargo build --release -p
onefold-image --example index_speed`.
"""

import json
import shutil

from lib import system
from lib.measure import Sample
from lib.rows.beside import ONEFOLD
from lib.system import BenchError

from .line import ImageLine
from .row import ImageRow
from .stored import smaller

UNITS = 100_000_000
# A capture gives the index a quarter of its --memory.
MEMORY_MIB = 512
INDEX_MIB = MEMORY_MIB // 4
MIB = 1 << 20


class IndexRow(ImageRow):
    """Look-ups of new units and of known ones in the order in which they were stored."""

    name = "units"
    sides = (ONEFOLD,)
    share_of_time = 3.0
    rounds_max = 3
    in_quick = False

    def make_lines(self, settings):
        yield ImageLine("units-new", f"{UNITS:,} units in the index: look-ups of new ones", "per s", bound=1e5, aim=3e5)
        yield ImageLine("units-known", "look-ups of known ones in old order", "per s", bound=3e5, aim=1e6)
        yield smaller("units-memory", f"within a quarter of `--memory` {MEMORY_MIB}M: whole process", "MiB", 512, 256)

    def missing(self, settings):
        return None

    def measure(self, images, settings, round_no):
        program = images.programs.onefold.parent / "examples" / "index_speed"
        if not program.exists():
            raise BenchError(f"there is no program {program}: build the example `index_speed`")
        folder = images.new_folder("index")
        found = json.loads(system.run(program, folder, str(UNITS), str(INDEX_MIB)).text)
        shutil.rmtree(folder)
        yield "units-new", ONEFOLD, Sample(found["new_per_second"], more=found)
        yield "units-known", ONEFOLD, Sample(found["known_per_second"], more=found)
        yield "units-memory", ONEFOLD, Sample(found["memory_peak_bytes"] / MIB, more=found)

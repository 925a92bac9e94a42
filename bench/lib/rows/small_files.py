"""Many files of one block in one folder."""

from ..caches import drop_names
from ..measure import Line, Sample, Work
from .row import Row, seed_of

FOLDER = "small"
GOAL = "0.3x / 0.6x"
CREATE_GOAL = "0.25x / 0.6x"

# The client's job for each line, in their order.
JOBS = {"small-create": "create-files", "small-stat": "stat-files", "small-unlink": "unlink-files"}


class SmallFilesRow(Row):
    """Creating files of 4 KiB, asking for the attributes of each when names are forgotten, unlinking them."""

    name = "small-files"
    needs_journal = True
    lines = (
        Line("small-create", "create of 4 KiB files, one folder, then fsync of the folder", "op/s", goal=CREATE_GOAL),
        Line("small-stat", "stat of each, names and inodes dropped from the kernel's memory", "op/s", goal=GOAL),
        Line("small-unlink", "unlink of each, then fsync of the folder", "op/s", goal=GOAL),
    )

    def measure(self, side, settings, round_no):
        folder, count = side.make_folder(FOLDER), settings.small_files
        samples = {}
        for key, job in JOBS.items():
            if key == "small-stat":
                drop_names()
            answer, cost = side.client(job, folder, count=count, seed=seed_of(round_no, use=5))
            samples[key] = Sample(count / answer["seconds"], cost, Work.operations(count))
        folder.rmdir()
        side.settle()
        return samples

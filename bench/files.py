#!/usr/bin/env python3
"""Measures the sharing of guest files, beside the sharing of blocks by content and beside the kernel's calls.

Needs root (mounts, loop devices, caches), fio, xfsprogs, btrfs-progs, e2fsprogs and release builds of onefold and
onefold-synthetic. See bench/README.md.
"""

import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from fbs_rows.experiment import Bench  # noqa: E402
from fbs_rows.machines import chosen_set  # noqa: E402
from files_rows import rows  # noqa: E402
from files_rows.row import FilesBench  # noqa: E402
from lib import corpus, launch, programs, report, settings, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.rows import beside  # noqa: E402
from lib.runner import Run  # noqa: E402

MIB = 1 << 20


PAGE = "guest-files.md"
FORM = report.Form("bench/files.py", (*beside.COLUMNS, ("FBS's paper", beside.paper)))


def parse():
    known = rows(settings.FILES.full)
    parser = launch.rows_parser(__doc__, known)
    launch.add_arguments(parser, minutes=20, record="files.json", page=PAGE)
    parser.add_argument("--machines", type=Path, metavar="FILE", help="a set, in place of those of bench/corpus/cache")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    tested = programs.find()
    launch.ensure_able()
    folder = arguments.dir.absolute()
    source = chosen_set(arguments.machines, corpus.CACHE, chosen)
    with workplace.taken(folder, source.needed_bytes + SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        facts = launch.facts("bench/files.py", chosen.mode, place, tested.onefold) | sizes(chosen, source)
        run = Run(facts, chosen)
        bench = FilesBench(Bench(place, tested, chosen, source))
        launch.measure_rows(bench, launch.wanted(rows(chosen), arguments), run, arguments.json or folder / "files.json")
    return launch.show(run, arguments, FORM)


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.FILES)
    images = corpus.found(corpus.find_images(corpus.folder(), chosen.images_bytes_max))
    return replace(chosen, images=images, rounds=arguments.rounds or chosen.rounds)


def sizes(chosen, source):
    """Returns what is measured with, by name."""
    images = ", ".join(f"`{image.name}`" for image in chosen.images) or "made up"
    return {
        "machines": source.what,
        "images beside the bare calls": images,
        "sizes": f"made-up machines with {chosen.common_packages} packages beside a common volume, a file of "
        f"{chosen.waits_bytes // MIB} MiB that a guest writes to, up to {chosen.rounds} rounds",
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

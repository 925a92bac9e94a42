#!/usr/bin/env python3
"""Measures how fast the insides of disk images are read, beside mounts, libguestfs, the Sleuth Kit and checkers.

Needs root (mounts, caches), e2fsprogs, xfsprogs and release builds of onefold and onefold-synthetic; rows whose other
program is not installed are left out. See bench/README.md.
"""

import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from guest_rows import rows  # noqa: E402
from guest_rows.row import GuestBench  # noqa: E402
from lib import corpus, launch, programs, report, settings, system, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.rows import beside  # noqa: E402
from lib.runner import Run  # noqa: E402

MIB = 1 << 20
# The first of a set of the corpus.
DESKTOP = "desktop"


PAGE = "guests.md"
FORM = report.Form("bench/guest.py", beside.COLUMNS)


def parse():
    known = rows(settings.GUEST.full)
    parser = launch.rows_parser(__doc__, known)
    launch.add_arguments(parser, minutes=3, record="guest.json", page=PAGE)
    parser.add_argument("--images", type=Path, nargs="+", metavar="IMAGE", help="in place of bench/corpus/cache")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    tested = programs.find()
    chosen = choose(arguments, tested.onefold)
    launch.ensure_able()
    folder = arguments.dir.absolute()
    with workplace.taken(folder, needed_bytes(chosen) + SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        facts = launch.facts("bench/guest.py", chosen.mode, place, tested.onefold) | sizes(chosen)
        run = Run(facts, chosen)
        bench = GuestBench(place, tested, chosen)
        launch.measure_rows(bench, launch.wanted(rows(chosen), arguments), run, arguments.json or folder / "guest.json")
    return launch.show(run, arguments, FORM)


def choose(arguments, onefold):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.GUEST)
    images, desktop = arguments.images, None
    if images is None:
        cache = corpus.folder()
        images = first_of(corpus.find_images(cache, chosen.images_bytes_max))
        desktop = next(iter(sorted(cache.glob(f"{DESKTOP}*.raw"))), None)
    images = corpus.found(images)
    desktop = desktop if chosen.mode != "tiny" else None
    rounds = arguments.rounds or chosen.rounds
    return replace(chosen, images=images, desktop=desktop, onefold=onefold, rounds=rounds)


def first_of(images):
    """Returns images with the one first that most figures are of."""
    return sorted(images, key=lambda image: image.stem != "debian-12-web")


def needed_bytes(chosen):
    """Returns what all images take that are there at the same time: copies of the first one, or a large file twice."""
    stored = system.stored_bytes(chosen.images[0]) if chosen.images else chosen.made_bytes
    files = chosen.sparse_files * 2 * settings.KIB * 4
    return max(6 * stored + 512 * MIB, 2 * stored + 2 * chosen.large_bytes, 2 * stored + 2 * files + 2048 * MIB)


def sizes(chosen):
    images = ", ".join(f"`{image.name}`" for image in chosen.images)
    made = f"a made-up one with {chosen.made_packages} packages"
    return {
        "images": images or made,
        "sizes": f"{chosen.clones} clones by reflink on an XFS, a file of {chosen.large_bytes // MIB} MiB, sparse file "
        f"systems with {chosen.sparse_files:,} files, up to {chosen.rounds} rounds",
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

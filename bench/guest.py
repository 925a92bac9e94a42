#!/usr/bin/env python3
"""Measures how fast the insides of disk images are read, beside mounts, libguestfs, the Sleuth Kit and checkers.

Needs root (mounts, caches), e2fsprogs, xfsprogs and release builds of onefold and onefold-synthetic; rows whose other
program is not installed are left out. See bench/README.md.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from guest_rows import rows  # noqa: E402
from guest_rows.programs import Programs  # noqa: E402
from guest_rows.row import ONEFOLD, OTHER, GuestBench  # noqa: E402
from lib import corpus, launch, report, settings, workplace  # noqa: E402
from lib.launch import REPOSITORY, SPARE_BYTES  # noqa: E402
from lib.runner import Run  # noqa: E402
from lib.system import BenchError  # noqa: E402

MIB = 1 << 20
# The first of a set of the corpus.
DESKTOP = "desktop"


def beside(result):
    """Returns the other side's figure, and whose it is."""
    figure = report.figure_of(OTHER)(result)
    return f"{figure}, {result.line.beside}" if figure else ""


def better(result):
    return report.with_unit(result.ratio(ONEFOLD, OTHER), "x")


FORM = report.Form(
    "bench/guest.py",
    (
        ("Onefold", report.figure_of(ONEFOLD)),
        ("beside it", beside),
        ("Onefold better by", better),
        ("at least / aim", report.goal),
    ),
)


def parse():
    known = rows(settings.GUEST.full)
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=launch.list_of_rows(known),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in known]
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help="only this row; may come again")
    launch.add_arguments(parser, minutes=3, record="guest.json")
    parser.add_argument("--images", type=Path, nargs="+", metavar="IMAGE", help="in place of bench/corpus/cache")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    programs = find_programs()
    chosen = choose(arguments, programs)
    launch.ensure_able()
    folder = arguments.dir.absolute()
    with workplace.taken(folder, needed_bytes(chosen) + SPARE_BYTES) as work:
        place = launch.place(arguments, work, programs.onefold)
        facts = launch.facts("bench/guest.py", chosen.mode, place, programs.onefold) | sizes(chosen)
        run = Run(facts, chosen)
        wanted = [row for row in rows(chosen) if not arguments.only or row.name in arguments.only]
        launch.measure_rows(GuestBench(place, programs, chosen), wanted, run, arguments.json or folder / "guest.json")
    return launch.show(run, arguments, FORM)


def choose(arguments, programs):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.GUEST)
    images, desktop = arguments.images, None
    if images is None:
        cache = Path(os.environ.get("ONEFOLD_IMAGES") or REPOSITORY / "bench" / "corpus" / "cache")
        images = first_of(corpus.find_images(cache, chosen.images_bytes_max))
        desktop = next(iter(sorted(cache.glob(f"{DESKTOP}*.raw"))), None)
    for image in images:
        if not image.is_file():
            raise BenchError(f"there is no image {image}")
    images = tuple(image.absolute() for image in images)
    desktop = desktop if chosen.mode != "tiny" else None
    rounds = arguments.rounds or chosen.rounds
    return replace(chosen, images=images, desktop=desktop, onefold=programs.onefold, rounds=rounds)


def first_of(images):
    """Returns images with the one first that most figures are of."""
    return sorted(images, key=lambda image: image.stem != "debian-12-web")


def find_programs():
    onefold = launch.find_onefold()
    synthetic = Path(os.environ.get("ONEFOLD_SYNTHETIC") or onefold.with_name("onefold-synthetic"))
    return Programs(onefold, launch.executable(synthetic, "ONEFOLD_SYNTHETIC"))


def needed_bytes(chosen):
    """Returns what all images take that are there at the same time: copies of the first one, or a large file twice."""
    stored = chosen.images[0].stat().st_blocks * 512 if chosen.images else chosen.made_bytes
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

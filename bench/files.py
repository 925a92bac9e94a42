#!/usr/bin/env python3
"""Measures the sharing of guest files, beside the sharing of blocks by content and beside the kernel's calls.

Needs root (mounts, loop devices, caches), fio, xfsprogs, btrfs-progs, e2fsprogs and release builds of onefold and
onefold-synthetic. See bench/README.md.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from fbs_rows.experiment import Bench, Programs  # noqa: E402
from fbs_rows.machines import chosen_set  # noqa: E402
from files_rows import rows  # noqa: E402
from files_rows.row import FilesBench  # noqa: E402
from lib import corpus, launch, report, settings, workplace  # noqa: E402
from lib.launch import REPOSITORY, SPARE_BYTES  # noqa: E402
from lib.runner import Run  # noqa: E402
from share_rows.row import ONEFOLD, OTHER  # noqa: E402

MIB = 1 << 20


def beside(result):
    """Returns the other side's figure, and whose it is."""
    figure = report.figure_of(OTHER)(result)
    return f"{figure}, {result.line.beside}" if figure else ""


def better(result):
    return report.with_unit(result.ratio(ONEFOLD, OTHER), "x")


FORM = report.Form(
    "bench/files.py",
    (
        ("Onefold", report.figure_of(ONEFOLD)),
        ("beside it", beside),
        ("Onefold better by", better),
        ("at least / aim", report.goal),
        ("FBS's paper", lambda result: result.line.paper),
    ),
)


def parse():
    known = rows(settings.FILES.full)
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=launch.list_of_rows(known),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in known]
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help="only this row; may come again")
    launch.add_arguments(parser, minutes=20, record="files.json")
    parser.add_argument("--machines", type=Path, metavar="FILE", help="a set, in place of those of bench/corpus/cache")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    programs = find_programs()
    launch.ensure_able()
    folder = arguments.dir.absolute()
    source = chosen_set(arguments.machines, REPOSITORY / "bench" / "corpus" / "cache", chosen)
    with workplace.taken(folder, source.needed_bytes + SPARE_BYTES) as work:
        place = launch.place(arguments, work, programs.onefold)
        facts = launch.facts("bench/files.py", chosen.mode, place, programs.onefold) | sizes(chosen, source)
        run = Run(facts, chosen)
        bench = FilesBench(Bench(place, programs, chosen, source))
        wanted = [row for row in rows(chosen) if not arguments.only or row.name in arguments.only]
        launch.measure_rows(bench, wanted, run, arguments.json or folder / "files.json")
    return launch.show(run, arguments, FORM)


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.FILES)
    cache = Path(os.environ.get("ONEFOLD_IMAGES") or REPOSITORY / "bench" / "corpus" / "cache")
    images = tuple(image.absolute() for image in corpus.find_images(cache, chosen.images_bytes_max))
    return replace(chosen, images=images, rounds=arguments.rounds or chosen.rounds)


def find_programs():
    onefold = launch.find_onefold()
    synthetic = Path(os.environ.get("ONEFOLD_SYNTHETIC") or onefold.with_name("onefold-synthetic"))
    return Programs(onefold, launch.executable(synthetic, "ONEFOLD_SYNTHETIC"))


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

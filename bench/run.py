#!/usr/bin/env python3
"""Compares a pool with ext4 on the same disk, side by side, and prints a table.

Needs root (mounts, loop devices, caches), fio, e2fsprogs and a release build of onefold. See bench/README.md.
"""

import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import corpus, launch, programs, report, settings, system, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.profile import Profiler  # noqa: E402
from lib.rows import ROWS  # noqa: E402
from lib.runner import Bench, Run  # noqa: E402

PAGE = "pool.md"


def parse():
    parser = launch.rows_parser(__doc__, ROWS)
    launch.add_arguments(parser, minutes=3, record="last.json", page=PAGE)
    parser.add_argument("--image", type=Path, help="a disk image to import (default: one of bench/corpus/cache)")
    parser.add_argument(
        "--settle", type=int, default=0, metavar="SECONDS",
        help="wait this long once the disks are made: a virtual disk may be slow for minutes after so much was written",
    )  # fmt: skip
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="where `perf` writes what the time goes to")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only", "profile"])
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    onefold = programs.find_onefold()
    launch.ensure_able()
    rows = launch.wanted(ROWS, arguments)
    folder = arguments.dir.absolute()
    with workplace.taken(folder, needed_bytes(chosen)) as work:
        place = launch.place(arguments, work, onefold, *filter(None, [chosen.image]))
        profiler = arguments.profile and Profiler(arguments.profile.absolute())
        bench = Bench(place, onefold, chosen, profiler, arguments.settle)
        facts = launch.facts("bench/run.py", chosen.mode, place, onefold)
        run = Run(facts | bench.disk_facts() | sizes(chosen), chosen)
        launch.measure_rows(bench, rows, run, arguments.json or folder / "last.json")
    return launch.show(run, arguments, report.SIDE_BY_SIDE)


def needed_bytes(chosen):
    """Returns what a run takes of the disk: both disks, and what a row has beside them or writes to the disk itself."""
    image_bytes = system.stored_bytes(chosen.image) if chosen.image else 0
    on_the_disk = 2 * max(chosen.file_bytes, chosen.layout_bytes, chosen.beyond_memory_bytes, image_bytes)
    beside = max(chosen.import_image_bytes, chosen.punched_device_bytes, on_the_disk)
    return 2 * chosen.device_bytes + beside + SPARE_BYTES


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.RUN)
    image = arguments.image or corpus.find_image(corpus.CACHE, chosen.device_bytes)
    image = image and corpus.found([image])[0]
    return replace(
        chosen, image=image, rounds=arguments.rounds or chosen.rounds,
        records=arguments.dir.absolute(),
    )  # fmt: skip


def sizes(chosen):
    mib = 1 << 20
    return {
        "sizes": f"files of {chosen.file_bytes // mib} MiB on disks of {chosen.device_bytes // mib} MiB, "
        f"{chosen.small_files} small files, up to {chosen.rounds} rounds, pool memory {chosen.memory}, "
        f"imports of {chosen.import_images} images of {chosen.import_image_bytes // mib} MiB",
        "image": f"`{chosen.image.name}`, {chosen.image.stat().st_size // mib} MiB" if chosen.image else "none",
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

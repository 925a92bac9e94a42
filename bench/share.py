#!/usr/bin/env python3
"""Measures the sharing of blocks between plain files, on XFS and Btrfs, beside the kernel's calls and duperemove.

Needs root (mounts, loop devices, caches), fio, duperemove, xfsprogs, btrfs-progs and release builds of onefold and
onefold-synthetic. See bench/README.md.
"""

import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import corpus, launch, programs, report, settings, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.rows import beside  # noqa: E402
from lib.rows.beside import ONEFOLD, OTHER  # noqa: E402
from lib.runner import Run, say  # noqa: E402
from lib.system import BenchError, run as run_command  # noqa: E402
from share_rows import PARTS, rows  # noqa: E402
from share_rows.row import ShareBench  # noqa: E402

MIB = 1 << 20


PAGE = "sharing.md"
COLUMNS = (
    *beside.COLUMNS,
    ("DeDe's paper", beside.paper),
    ("CPU of Onefold", report.cpu_of(ONEFOLD)),
    ("CPU beside it", report.cpu_of(OTHER)),
)
FORMS = {part: report.Form("bench/share.py", COLUMNS, part) for part in PARTS}


def parse():
    known = {part: rows(part, settings.SHARE.full) for part in PARTS}
    listed = "\n\n".join(f"--part {part}, {launch.list_of_rows(known[part])}" for part in PARTS)
    parser = launch.rows_parser(__doc__, [row for part in known.values() for row in part], listed)
    parser.add_argument("--part", choices=PARTS, help="only the rows of this table")
    launch.add_arguments(parser, minutes=5, record="share-PART.json", page=PAGE)
    parser.add_argument("--images", type=Path, nargs="+", metavar="IMAGE", help="in place of bench/corpus/cache")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    tested = programs.find()
    launch.ensure_able()
    folder = arguments.dir.absolute()
    runs = {}
    with workplace.taken(folder, chosen.device_bytes + SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        for part in [arguments.part] if arguments.part else PARTS:
            wanted = launch.wanted(rows(part, chosen), arguments)
            if not wanted:
                continue
            facts = launch.facts("bench/share.py", chosen.mode, place, tested.onefold) | tools() | sizes(chosen)
            runs[part] = Run(facts, chosen)
            bench = ShareBench(place, tested, chosen)
            launch.measure_rows(bench, wanted, runs[part], arguments.json or folder / f"share-{part}.json")
    failed = []
    for part, run in runs.items():
        try:
            launch.show(run, arguments, FORMS[part])
        except BenchError as error:
            failed.append(str(error))
    if failed:
        raise BenchError("; ".join(failed))
    return launch.DONE


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.SHARE)
    images = arguments.images
    if images is None:
        images = corpus.find_images(corpus.folder(), chosen.images_bytes_max)
    return replace(chosen, images=corpus.found(images), rounds=arguments.rounds or chosen.rounds)


def tools():
    """Returns the versions of what else is measured or measured with."""
    found = []
    for command in (("duperemove", "--version"), ("mkfs.xfs", "-V"), ("mkfs.btrfs", "--version")):
        try:
            found.append(run_command(*command).text.strip())
        except BenchError as error:
            say(f"warning: {error}")
    return {"beside it": ", ".join(found)}


def sizes(chosen):
    images = ", ".join(f"`{image.name}`" for image in chosen.images)
    made = f"{chosen.images_made} made-up ones of {chosen.image_bytes // MIB} MiB"
    return {
        "sizes": f"a file system of {chosen.device_bytes // MIB} MiB for each row, files of "
        f"{chosen.shuffled_bytes // MIB} MiB in shuffled order, {chosen.runs_bytes // MIB} MiB in one run, "
        f"{chosen.guest_bytes // MIB} MiB beside a guest, {chosen.read_bytes // MIB} MiB to be read, "
        f"{chosen.cut_images} made-up images of {chosen.cut_image_bytes // MIB} MiB for a pass that is interrupted, an "
        f"index of {chosen.index_entries} entries, up to {chosen.rounds} rounds",
        "images": images or made,
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

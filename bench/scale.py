#!/usr/bin/env python3
"""Measures what size costs: memory, mounts, removals and writes of pools that describe up to 1 TiB of distinct blocks.

Needs root (mounts, caches), fio and release builds of onefold and onefold-synthetic. See bench/README.md.
"""

import sys
from dataclasses import replace

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import launch, programs, report, settings, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.runner import Run  # noqa: E402
from scale_rows import rows  # noqa: E402
from scale_rows.pools import ScaleBench, amount, disk_bytes  # noqa: E402

PAGE = "large-pools.md"
FORM = report.Form(
    "bench/scale.py",
    (("figure", report.figure_of("pool")), ("at least / aim", report.goal), ("CPU", report.cpu_of("pool"))),
)


def parse():
    known = rows(settings.SCALE.full)
    parser = launch.rows_parser(__doc__, known)
    launch.add_arguments(parser, minutes=3, record="scale.json", page=PAGE)
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = launch.choose(arguments, settings.SCALE)
    chosen = replace(chosen, rounds=arguments.rounds or chosen.rounds)
    tested = programs.find()
    launch.ensure_able()
    wanted = launch.wanted(rows(chosen), arguments)
    folder = arguments.dir.absolute()
    with workplace.taken(folder, disk_bytes(wanted, chosen) + SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        run = Run(launch.facts("bench/scale.py", chosen.mode, place, tested.onefold) | sizes(chosen), chosen)
        bench = ScaleBench(place, tested, chosen)
        launch.measure_rows(bench, wanted, run, arguments.json or folder / "scale.json")
    return launch.show(run, arguments, FORM)


def sizes(chosen):
    curve, large = ", ".join(map(amount, chosen.curve_blocks)), amount(chosen.large_blocks)
    return {
        "sizes": f"pools of {curve} at `--memory {chosen.curve_memory_mib}M`, of {large} at "
        f"`--memory {chosen.large_memory_mib}M`; streams of {chosen.stream_bytes >> 20} MiB, requests of 4 KiB to a "
        f"file of {chosen.scratch_bytes >> 20} MiB for {chosen.fio_samples} times {chosen.fio_seconds} s, up to "
        f"{chosen.rounds} rounds"
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

#!/usr/bin/env python3
"""Measures what size costs: memory, mounts, removals and writes of pools that describe up to 1 TiB of distinct blocks.

Needs root (mounts, caches), fio and release builds of onefold and onefold-synthetic. See bench/README.md.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import launch, report, settings, workplace  # noqa: E402
from lib.launch import SPARE_BYTES  # noqa: E402
from lib.runner import Run  # noqa: E402
from scale_rows import rows  # noqa: E402
from scale_rows.pools import Programs, ScaleBench, amount, disk_bytes  # noqa: E402

FORM = report.Form(
    "bench/scale.py",
    (("figure", report.figure_of("pool")), ("at least / aim", report.goal), ("CPU", report.cpu_of("pool"))),
)


def parse():
    known = rows(settings.SCALE.full)
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=launch.list_of_rows(known),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in known]
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help="only this row; may come again")
    launch.add_arguments(parser, minutes=3, record="scale.json")
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = launch.choose(arguments, settings.SCALE)
    chosen = replace(chosen, rounds=arguments.rounds or chosen.rounds)
    programs = find_programs()
    launch.ensure_able()
    wanted = [row for row in rows(chosen) if not arguments.only or row.name in arguments.only]
    folder = arguments.dir.absolute()
    with workplace.taken(folder, disk_bytes(wanted, chosen) + SPARE_BYTES) as work:
        place = launch.place(arguments, work, programs.onefold)
        run = Run(launch.facts("bench/scale.py", chosen.mode, place, programs.onefold) | sizes(chosen), chosen)
        bench = ScaleBench(place, programs, chosen)
        launch.measure_rows(bench, wanted, run, arguments.json or folder / "scale.json")
    return launch.show(run, arguments, FORM)


def find_programs():
    onefold = launch.find_onefold()
    synthetic = Path(os.environ.get("ONEFOLD_SYNTHETIC") or onefold.with_name("onefold-synthetic"))
    return Programs(onefold, launch.executable(synthetic, "ONEFOLD_SYNTHETIC"))


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

#!/usr/bin/env python3
"""Compares a pool with ext4 on the same disk, side by side, and prints a table.

Needs root (mounts, loop devices, caches), fio, e2fsprogs and a release build of onefold. See bench/README.md.
"""

import argparse
import os
import shlex
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import machine, report, settings, workplace  # noqa: E402
from lib.rows import ROWS  # noqa: E402
from lib.runner import Bench, Run, say  # noqa: E402
from lib.system import BenchError  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent
# What a run needs besides its two disks.
SPARE_BYTES = 256 << 20
# Above this load, other work takes a noticeable part of the machine.
LOAD_MAX = 0.5

DONE, FAILED, INTERRUPTED = 0, 1, 130


def main():
    arguments = parse()
    try:
        with workplace.signals_as_interrupts():
            return measure(arguments)
    except BenchError as error:
        say(f"error: {error}")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; everything is unmounted and removed")
        return INTERRUPTED


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=list_of_rows(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.name for row in ROWS]
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help="only this row; may come again")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", default=quick, help="under 3 minutes (or QUICK=1)")
    size.add_argument("--tiny", action="store_true", help="only shows that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, help="measure each line this often")
    parser.add_argument("--image", type=Path, help="a disk image to import (default: one of bench/corpus/cache)")
    parser.add_argument("--dir", type=Path, default=default_folder(), help="where the disks are made (or BENCH_DIR)")
    parser.add_argument("--json", type=Path, help="where every sample goes (default: last.json in --dir)")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers")
    arguments = parser.parse_args()
    if arguments.update and (arguments.only or arguments.tiny):
        parser.error("--update takes a whole table: no --only, no --tiny")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    return arguments


def list_of_rows():
    """Returns each row's name with the first line that it adds to the table."""
    width = max(len(row.name) for row in ROWS)
    lines = [f"  {row.name:<{width}}  {row.lines[0].title}" for row in ROWS]
    return "\n".join(["rows, and the first line of each:", *lines])


def default_folder():
    return Path(os.environ.get("BENCH_DIR") or REPOSITORY / "target" / "bench")


def measure(arguments):
    chosen = choose(arguments)
    onefold = find_onefold()
    if os.geteuid() != 0:
        raise BenchError("mounts and loop devices need root: run it as root")
    load = os.getloadavg()[0]
    if load > LOAD_MAX:
        say(f"warning: the machine is busy (load {load:.1f}), so the figures will be worth little")
    rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    folder = arguments.dir.absolute()
    needed_bytes = 2 * chosen.device_bytes + chosen.import_image_bytes + SPARE_BYTES
    with workplace.taken(folder, needed_bytes) as work:
        facts = {"when": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC", "command": command_line(chosen)}
        facts |= machine.describe(REPOSITORY, work, onefold) | sizes(chosen)
        run = Run(facts, chosen)
        bench = Bench(work, onefold, chosen)
        try:
            bench.open()
            bench.measure_all(rows, run)
        finally:
            with workplace.uninterrupted():
                bench.close()
            report.write_json(run, arguments.json or folder / "last.json")
    say(report.timetable(run))
    text = report.markdown(run)
    print(text)
    if arguments.update:
        report.update(arguments.update, text)
    if run.failed():
        raise BenchError(f"these rows failed: {', '.join(run.failed())}")
    return DONE


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = settings.TINY if arguments.tiny else settings.QUICK if arguments.quick else settings.FULL
    image = arguments.image or settings.find_image(REPOSITORY / "bench/corpus/cache", chosen.device_bytes)
    if image is not None and not image.is_file():
        raise BenchError(f"there is no image {image}")
    return replace(
        chosen, image=image and image.absolute(), rounds=arguments.rounds or chosen.rounds,
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


def find_onefold():
    """Returns the program to measure: $ONEFOLD, else the release build of this tree."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
    onefold = Path(os.environ.get("ONEFOLD") or target / "release" / "onefold").absolute()
    if not os.access(onefold, os.X_OK):
        raise BenchError(f"there is no program {onefold}: run `cargo build --release`, or set ONEFOLD")
    return onefold


def command_line(chosen):
    """Returns what repeats this run, for the document: its path is the repository's, not this machine's."""
    quick = ["QUICK=1"] if chosen.mode == "quick" and "--quick" not in sys.argv else []
    return f"`{' '.join([*quick, 'bench/run.py', *map(shlex.quote, sys.argv[1:])])}`"


if __name__ == "__main__":
    sys.exit(main())

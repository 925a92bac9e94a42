#!/usr/bin/env python3
"""Measures archives of disk images beside restic, borg, casync, zstd, partclone and qemu-img.

Needs root (loop devices, mounts, caches), e2fsprogs and release builds of onefold and onefold-synthetic; programs that
are not installed are left out. See bench/README.md.
"""

import sys
from dataclasses import replace

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from image_rows import charts, records, rows  # noqa: E402
from image_rows.collection import collects  # noqa: E402
from image_rows.line import COLUMNS  # noqa: E402
from image_rows.row import ImagesBench  # noqa: E402
from image_rows.sides import sides  # noqa: E402
from image_rows.whole import takes_archived_images  # noqa: E402
from lib import launch, programs, report, settings, workplace  # noqa: E402
from lib.measure import NotMeasured  # noqa: E402
from lib.runner import Run, say  # noqa: E402
from lib.system import BenchError  # noqa: E402

PAGE, RECORD = "images.md", "images.json"
CHARTS = {
    "archive-stages.svg": "Processor time of captures by stage",
    "archive-savings.svg": "Savings with the paper's unit and with ours",
    "archive-stored.svg": "Bytes that each program stores",
}
FORM = report.Form("bench/images.py", COLUMNS)


def parse():
    parser = launch.rows_parser(__doc__, rows(settings.IMAGES.full))
    launch.add_arguments(parser, minutes=4, record=RECORD, page=PAGE)
    launch.add_charts(parser)
    parser.add_argument(
        "--keep", action="store_true", help=f"rows that --only leaves out are those of the last record ({RECORD})"
    )
    parser.add_argument("--defaults", action="store_true", help="other programs with their defaults only")
    arguments = parser.parse_args()
    # With what is kept, a few rows make a whole table.
    launch.check_arguments(parser, arguments, parts=[] if arguments.keep else ["only", "defaults"])
    return arguments


def measure(arguments):
    tested = programs.find()
    chosen = launch.choose(arguments, settings.IMAGES)
    able = {"archived_sources": takes_archived_images(tested.onefold), "collects": collects(tested.onefold)}
    defaults_only = arguments.defaults or chosen.defaults_only
    chosen = replace(chosen, rounds=arguments.rounds or chosen.rounds, defaults_only=defaults_only, **able)
    launch.ensure_able()
    folder = arguments.dir.absolute()
    record = arguments.json or folder / RECORD
    needed = chosen.part_disk_bytes if arguments.only or chosen.defaults_only else chosen.disk_bytes
    with workplace.taken(folder, needed + launch.SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        facts = launch.facts("bench/images.py", chosen.mode, place, tested.onefold)
        # Stores are folders: no side serves clients.
        facts |= {"clients": "root"} | settings_of(sides(tested, chosen), chosen)
        run = Run(facts, chosen)
        every = rows(chosen)
        wanted = launch.wanted(every, arguments)
        if arguments.keep and record.exists():
            records.keep(record, every, wanted, run)
        launch.measure_rows(ImagesBench(place, tested, chosen), wanted, run, record)
    records.in_order(run, every)
    return show(run, arguments)


def settings_of(known, chosen):
    """Returns what the figures were measured with, by name."""
    return {
        "programs": "; ".join(f"`{side.name}`: {side.settings}" for side in known),
        "sizes": f"{chosen.versions} versions of an image, {chosen.many_images:,} made-up images beside a collection, "
        f"up to {chosen.rounds} rounds",
    }


def show(run, arguments):
    """Prints the tables, and writes them where that is asked for. Raises BenchError where rows have failed."""
    say(report.timetable(run))
    launch.show_charted(
        arguments, lambda folder: charts.write(run, folder), lambda linked, at: markdown(run, linked, at), FORM.begin
    )
    if run.failed():
        raise BenchError(f"these rows failed: {', '.join(run.failed())}")
    return launch.DONE


def markdown(run, linked, folder):
    """Returns the tables with the charts that were written."""
    pictures = [f"![{CHARTS[name]}]({folder}/{name})" for name in linked]
    return "\n\n".join([report.markdown(run, FORM), *pictures, all_sides(run)])


def all_sides(run):
    """Returns a table of each side's own figures, of which the first table shows the best one only."""
    lines = report.table(["what", "side", "figure", "processor time"])
    for row, series in run.measured:
        if isinstance(series, NotMeasured):
            continue
        for result in series.lines:
            # Of one side alone, the first table has the figure.
            for side in by_figure(result) if len(result.samples) > 1 else ():
                cpu, figure = result.cpu_seconds(side), report.with_unit(result.spread(side), result.line.unit)
                cpu_text = f"{report.number(cpu[0])} s/{cpu[2]}" if cpu else ""
                lines.append(report.row_of([f"{row.name}: {result.line.title}", f"`{side}`", figure, cpu_text]))
    return "All sides, the best one first:\n\n" + "\n".join(lines)


def by_figure(result):
    """Returns the sides of a line, that with the best median first."""
    return sorted(result.samples, key=lambda side: result.spread(side).median, reverse=result.line.higher_is_better)


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

#!/usr/bin/env python3
"""Measures served images beside udpcast, UFTP, partclone, casync, nginx, curl and zstd.

Needs root (namespaces, loop devices, caches), e2fsprogs, iproute2, nftables and release builds of onefold and of the
examples `chunk_speed` and `multicast_load`; programs that are not installed are left out. See bench/README.md.
"""

import sys
from dataclasses import replace

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from image_rows import records  # noqa: E402
from image_rows.line import COLUMNS  # noqa: E402
from lib import launch, programs, report, settings, workplace  # noqa: E402
from lib.runner import Run, say  # noqa: E402
from lib.system import BenchError  # noqa: E402
from serve_rows import charts, rows  # noqa: E402
from serve_rows.row import ServeBench  # noqa: E402

PAGE, RECORD = "serving.md", "serve.json"
CHARTS = {
    "serve-clients.svg": "Time of an installation over the number of machines",
    "serve-loss.svg": "Bytes sent and requests over loss, and over the number of machines",
    "serve-stages.svg": "Stages of an installation, alone and together",
}
FORM = report.Form("bench/serve.py", COLUMNS)


def parse():
    parser = launch.rows_parser(__doc__, rows(settings.SERVE.full))
    launch.add_arguments(parser, minutes=4, record=RECORD, page=PAGE)
    launch.add_charts(parser)
    parser.add_argument(
        "--keep", action="store_true", help=f"rows that --only leaves out are those of the last record ({RECORD})"
    )
    arguments = parser.parse_args()
    # With what is kept, a few rows make a whole table.
    launch.check_arguments(parser, arguments, parts=[] if arguments.keep else ["only"])
    return arguments


def measure(arguments):
    tested = programs.find()
    chosen = launch.choose(arguments, settings.SERVE)
    chosen = replace(chosen, rounds=arguments.rounds or chosen.rounds)
    launch.ensure_able()
    folder = arguments.dir.absolute()
    record = arguments.json or folder / RECORD
    with workplace.taken(folder, chosen.disk_bytes + launch.SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        facts = launch.facts("bench/serve.py", chosen.mode, place, tested.onefold)
        run = Run(facts | {"clients": "root"} | settings_of(chosen), chosen)
        every = rows(chosen)
        wanted = launch.wanted(every, arguments)
        if arguments.keep and record.exists():
            records.keep(record, every, wanted, run)
        launch.measure_rows(ServeBench(place, tested, chosen), wanted, run, record)
    records.in_order(run, every)
    return show(run, arguments)


def settings_of(chosen):
    """Returns what the figures were measured with, by name."""
    links = ", ".join(f"{bits // 10**6:,}" for bits in (chosen.link_bits, chosen.many_bits, chosen.narrow_bits))
    return {
        "links": f"{links} Mbit/s, of the server, in namespaces of one machine",
        "sizes": f"an ext4 with {chosen.image_bytes >> 20} MiB of files, {chosen.noise_bytes >> 20} MiB of noise, "
        f"{chosen.short_bytes >> 20} of it to many machines; up to {chosen.clients} machines, {chosen.rounds} rounds",
    }


def show(run, arguments):
    """Prints the table, and writes it where that is asked for. Raises BenchError where rows have failed."""
    say(report.timetable(run))
    launch.show_charted(
        arguments, lambda folder: charts.write(run, folder), lambda linked, at: markdown(run, linked, at), FORM.begin
    )
    if run.failed():
        raise BenchError(f"these rows failed: {', '.join(run.failed())}")
    return launch.DONE


def markdown(run, linked, folder):
    """Returns the table with the charts that were written."""
    pictures = [f"![{CHARTS[name]}]({folder}/{name})" for name in linked]
    return "\n\n".join([report.markdown(run, FORM), *pictures])


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

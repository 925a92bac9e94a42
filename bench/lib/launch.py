"""What the programs of the benchmarks have in common: arguments, what is looked at before a run, how a run ends."""

import argparse
import os
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path

from . import machine, report, user, workplace
from .place import Place
from .programs import REPOSITORY
from .runner import say
from .side import CLIENT
from .system import BenchError

# What a run needs besides its disks.
SPARE_BYTES = 256 << 20
# Above this load, other work takes a noticeable part of the machine.
LOAD_MAX = 0.5

# The documents with the tables.
PAGES = REPOSITORY / "docs" / "benchmarks"

DONE, FAILED, INTERRUPTED = 0, 1, 130


def run_program(parse, measure):
    """Measures as the arguments say; returns the exit code."""
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


def rows_parser(about, rows, epilog=None):
    """Returns the parser of a program that measures rows, by the first line of its documentation."""
    parser = argparse.ArgumentParser(
        description=about.splitlines()[0],
        epilog=epilog or list_of_rows(rows),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in rows]
    parser.add_argument("--only", metavar="ROW", action="append", choices=names, help="only this row; may come again")
    return parser


def add_charts(parser):
    """Adds the argument of programs that draw charts."""
    parser.add_argument("--charts", type=Path, metavar="FOLDER", help="write the charts there (--update: figures/)")


def add_arguments(parser, minutes, record, page):
    """Adds the arguments that all programs have: minutes of a quick run, the name of the JSON file, its document."""
    quick = os.environ.get("QUICK", "") not in ("", "0")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", default=quick, help=f"under {minutes} minutes (or QUICK=1)")
    size.add_argument("--tiny", action="store_true", help="only shows that everything works; its figures mean nothing")
    parser.add_argument("--rounds", type=int, help="measure each line this often")
    parser.add_argument("--dir", type=Path, default=default_folder(), help="where the disks are made (or BENCH_DIR)")
    parser.add_argument(
        "--user", type=int, metavar="NUMBER", default=user.owner_of(REPOSITORY),
        help=f"who the clients are (default: the owner of this tree, or {user.NOBODY} where it is root's)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help=f"where every sample goes (default: {record} in --dir)")
    add_update(parser, page)


def add_update(parser, page):
    """Adds the argument that has tables written to a document, and charts to the folder `figures` beside it."""
    parser.add_argument(
        "--update", type=Path, nargs="?", const=PAGES / page, metavar="FILE",
        help=f"write what a document has between markers (default: {(PAGES / page).relative_to(REPOSITORY)})",
    )  # fmt: skip


def check_arguments(parser, arguments, parts):
    """Refuses what makes no sense; `parts` are the names of those arguments that make a run a part of the whole."""
    check_update(parser, arguments)
    left_out = [part for part in (*parts, "tiny") if getattr(arguments, part)]
    if arguments.update and left_out:
        parser.error(f"--update takes a whole run: no --{', no --'.join(left_out)}")
    if arguments.update and getattr(arguments, "charts", None):
        parser.error("--update has its own place for charts, the folder `figures` beside the document")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")


def check_update(parser, arguments):
    if arguments.update and not arguments.update.is_file():
        parser.error(f"there is no document {arguments.update} to update")


def list_of_rows(rows):
    """Returns each row's name with the first line that it adds to the table."""
    width = max(len(row.name) for row in rows)
    lines = [f"  {row.name:<{width}}  {row.lines[0].title}" for row in rows]
    return "\n".join(["rows, and the first line of each:", *lines])


def default_folder():
    return Path(os.environ.get("BENCH_DIR") or REPOSITORY / "target" / "bench")


def choose(arguments, sizes):
    """Returns the settings that were asked for, of a program's `settings.Sizes`."""
    return sizes.tiny if arguments.tiny else sizes.quick if arguments.quick else sizes.full


def wanted(named, arguments):
    """Returns the rows or experiments that `--only` names, all of them where it was not given."""
    return [one for one in named if not arguments.only or one.name in arguments.only]


def ensure_able():
    """Raises BenchError without root; warns where other work will disturb."""
    if os.geteuid() != 0:
        raise BenchError("mounts and loop devices need root: run it as root")
    load = os.getloadavg()[0]
    if load > LOAD_MAX:
        say(f"warning: the machine is busy (load {load:.1f}), so the figures will be worth little")


def place(arguments, work, *used):
    """Returns the place of a run in a folder, whose clients need what is used.

    Raises BenchError where their user cannot get there.
    """
    clients = user.numbered(arguments.user) if arguments.user else user.ROOT
    # Whatever the caller's umask is.
    work.chmod(0o755)
    clients.ensure_reaches(work, CLIENT, *used)
    return Place(work, clients, clients.find_python(), warms_memory=not arguments.tiny)


def facts(script, mode, place, onefold):
    """Returns what the figures are of, by name, in the order in which it is shown."""
    return {
        "when": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": command_line(script, mode),
    } | machine.describe(REPOSITORY, place, onefold)


def command_line(script, mode):
    """Returns what repeats this run, for the document: its path is the repository's, not this machine's."""
    quick = ["QUICK=1"] if mode == "quick" and "--quick" not in sys.argv else []
    return f"`{' '.join([*quick, script, *map(shlex.quote, sys.argv[1:])])}`"


def measure_rows(bench, rows, run, record):
    """Opens a bench, measures the rows on it into `run`, closes it and writes every sample to `record`."""
    try:
        bench.open()
        bench.measure_all(rows, run)
    finally:
        with workplace.uninterrupted():
            bench.close()
        report.write_json(run, record)


def show_charted(arguments, write_charts, markdown, begin):
    """Prints tables; writes their charts and the document where that is asked for.

    `write_charts` writes the charts into a folder and returns their names; `markdown` returns the tables with links to
    charts of these names in a folder.
    """
    linked, place = [], arguments.update.parent / "figures" if arguments.update else arguments.charts
    if place:
        linked = write_charts(place)
    text = markdown(linked, "figures" if arguments.update else place)
    print(text)
    if arguments.update:
        report.update(arguments.update, text, begin)


def show(run, arguments, form):
    """Prints the table, and writes it where that is asked for. Raises BenchError where rows have failed."""
    say(report.timetable(run))
    text = report.markdown(run, form)
    print(text)
    if arguments.update:
        report.update(arguments.update, text, form.begin)
    if run.failed():
        raise BenchError(f"these rows failed: {', '.join(run.failed())}")
    return DONE

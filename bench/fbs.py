#!/usr/bin/env python3
"""Repeats the experiments of the FBS paper with Onefold, and prints tables beside the paper's own figures.

Needs root (mounts, loop devices, caches), e2fsprogs, xfsprogs, btrfs-progs and release builds of onefold and
onefold-synthetic; experiments whose programs are not installed are left out. See bench/README.md.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from fbs_rows import EXPERIMENTS  # noqa: E402
from fbs_rows.experiment import Bench  # noqa: E402
from fbs_rows.machines import chosen_set  # noqa: E402
from lib import corpus, launch, programs, report, settings, workplace  # noqa: E402
from lib.launch import DONE, SPARE_BYTES  # noqa: E402
from lib.runner import one_line, say  # noqa: E402
from lib.system import BenchError  # noqa: E402
from paper_figures import svg  # noqa: E402

PAGE = "paper-figures.md"
BEGIN = f"{report.ANY_BEGIN}written by bench/fbs.py --update -->"
MIB = 1 << 20


@dataclass
class Run:
    """What was measured: the section of each experiment, by its name."""

    facts: dict
    settings: object
    sections: dict = field(default_factory=dict)
    # Lines of what went wrong, and of what was left out.
    failures: list = field(default_factory=list)
    left_out: list = field(default_factory=list)

    def write_charts(self, folder):
        """Writes all charts; returns the names of the files."""
        charts = {name: panels for section in self.sections.values() for name, panels in section.charts.items()}
        for name, panels in charts.items():
            report.write_whole(folder / name, svg.document(panels))
        return list(charts)

    def markdown(self, linked=(), folder="figures"):
        """Returns the run as Markdown: how it was made, and the section of each experiment."""
        lines = [f"- {name}: {value}" for name, value in self.facts.items()]
        lines += [f"- failed: {failure}" for failure in self.failures]
        lines += [f"- left out: {reason}" for reason in self.left_out]
        for section in self.sections.values():
            lines += section.markdown(linked, folder)
        return "\n".join(lines)

    def write_json(self, path):
        data = {name: section.data for name, section in self.sections.items()}
        document = {
            "facts": self.facts, "settings": asdict(self.settings), "failures": self.failures,
            "left_out": self.left_out, "experiments": data,
        }  # fmt: skip
        report.write_document(path, document)


def parse():
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(f"  {experiment.name:<10}  {experiment.title}" for experiment in EXPERIMENTS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=names, help="this experiment; may be given again")
    launch.add_arguments(parser, minutes=30, record="fbs.json", page=PAGE)
    parser.add_argument("--machines", type=Path, metavar="FILE", help="a set, in place of those of bench/corpus/cache")
    launch.add_charts(parser)
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only"])
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    tested = programs.find()
    launch.ensure_able()
    folder = arguments.dir.absolute()
    source = chosen_set(arguments.machines, corpus.CACHE, chosen)
    with workplace.taken(folder, source.needed_bytes + SPARE_BYTES) as work:
        place = launch.place(arguments, work, tested.onefold)
        facts = launch.facts("bench/fbs.py", chosen.mode, place, tested.onefold) | {"machines": source.what}
        run = Run(facts, chosen)
        bench = Bench(place, tested, chosen, source)
        try:
            measure_all(bench, launch.wanted(EXPERIMENTS, arguments), run)
        finally:
            with workplace.uninterrupted():
                bench.close()
            run.write_json(arguments.json or folder / "fbs.json")
    show(arguments, run)
    if run.failures:
        raise BenchError("; ".join(run.failures))
    return DONE


def measure_all(bench, experiments, run):
    """Makes the experiments one after the other; what one that fails has left goes before the next."""
    started = time.monotonic()
    for experiment in experiments:
        say(f"[{time.monotonic() - started:4.0f} s] {experiment.name}")
        reason = experiment.why_not(bench.settings)
        if reason is not None:
            say(f"  left out: {reason}")
            run.left_out.append(f"{experiment.name}: {reason}")
            continue
        try:
            run.sections[experiment.name] = experiment.measure(bench)
        except (BenchError, OSError) as error:
            say(f"  failed: {error}")
            run.failures.append(f"{experiment.name}: {one_line(error)}")
            bench.close()
    say(f"[{time.monotonic() - started:4.0f} s] done")


def show(arguments, run):
    """Prints the tables; writes charts and the document where that is asked for."""
    launch.show_charted(arguments, run.write_charts, run.markdown, BEGIN)


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.FBS)
    rounds = arguments.rounds
    return replace(chosen, rounds=rounds or chosen.rounds, bonnie_rounds=rounds or chosen.bonnie_rounds)


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

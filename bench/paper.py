#!/usr/bin/env python3
"""Repeats the LiveDFS paper's experiments with Onefold's switches, and prints tables beside the paper's own figures.

Needs root (mounts, loop devices, caches), e2fsprogs, fio and a release build of onefold. See bench/README.md.
"""

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import corpus, device, launch, programs, settings, workplace  # noqa: E402
from lib.launch import DONE, SPARE_BYTES  # noqa: E402
from lib.runner import one_line, say  # noqa: E402
from lib.system import BenchError  # noqa: E402
from paper_figures import experiments, figures, images, tables  # noqa: E402
from paper_figures.results import PLAIN, Results  # noqa: E402
from paper_figures.variants import DEVICE, VARIANTS, PlainSide, VariantSide, turn  # noqa: E402

PAGE = "paper-figures.md"
EXPERIMENTS = ("streams", "recovery", "images")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    keys = [variant.key for variant in VARIANTS] + [PLAIN]
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="this experiment; may be given again")
    parser.add_argument("--variant", action="append", choices=keys, help="this side only; may be given again")
    launch.add_arguments(parser, minutes=4, record="paper.json", page=PAGE)
    parser.add_argument(
        "--image", type=Path, action="append", default=[], help="an image, up to four (default: bench/corpus/cache)"
    )
    parser.add_argument("--filter-index-bits", type=int, metavar="N", help="the filter's n (default: the paper's 19)")
    parser.add_argument("--filter-tag-bits", type=int, metavar="K", help="the filter's k (default: the paper's 24)")
    launch.add_charts(parser)
    arguments = parser.parse_args()
    launch.check_arguments(parser, arguments, parts=["only", "variant"])
    if len(arguments.image) > settings.PAPER_IMAGES_MAX:
        parser.error(f"at most {settings.PAPER_IMAGES_MAX} images")
    return arguments


def measure(arguments):
    chosen = choose(arguments)
    onefold = programs.find_onefold()
    launch.ensure_able()
    # Before the disk is made: naming an image that is not there must not take minutes to find out.
    real = images.chosen(arguments.image, corpus.CACHE, chosen.device_bytes, chosen.image_count)
    wanted = arguments.only or EXPERIMENTS
    made_bytes = 0 if real else chosen.image_count * chosen.synthetic_bytes
    folder = arguments.dir.absolute()
    with workplace.taken(folder, chosen.device_bytes + made_bytes + SPARE_BYTES) as work:
        place = launch.place(arguments, work, onefold, *real)
        facts = launch.facts("bench/paper.py", chosen.mode, place, onefold) | sizes(chosen, real)
        say(f"making a disk of {chosen.device_bytes >> 20} MiB in {work}")
        device.allocate(work / DEVICE, chosen.device_bytes)
        sides = [*(VariantSide(place, onefold, chosen, variant) for variant in VARIANTS), PlainSide(place)]
        if arguments.variant:
            sides = [side for side in sides if side.name in arguments.variant]
        paths = real or (images.make(work, chosen.synthetic_bytes, chosen.image_count) if "images" in wanted else [])
        measured = Results(
            facts, chosen, {side.name: side.title for side in sides}, images=[path.name for path in paths]
        )
        try:
            repeat_all(wanted, sides, paths, measured)
        finally:
            measured.write_json(arguments.json or folder / "paper.json")
    show(arguments, measured)
    if measured.failures:
        raise BenchError("; ".join(measured.failures))
    return DONE


def repeat_all(wanted, sides, paths, measured):
    """Repeats the wanted experiments, all sides in each round."""
    chosen, started = measured.settings, time.monotonic()
    plans = {
        "streams": (chosen.rounds, experiments.streams),
        "recovery": (chosen.crash_rounds, experiments.recovery),
        "images": (chosen.image_rounds, lambda *of_turn: experiments.images(*of_turn, paths)),
    }
    for name in (name for name in EXPERIMENTS if name in wanted):
        rounds, experiment = plans[name]
        left = list(sides)
        for round_no in range(rounds):
            say(f"[{time.monotonic() - started:4.0f} s] {name}, round {round_no + 1} of {rounds}")
            # The side that goes first changes, in case going first matters.
            start = round_no % len(sides)
            for side in [side for side in sides[start:] + sides[:start] if side in left]:
                try:
                    with turn(side):
                        values = experiment(side, chosen, round_no)
                except (BenchError, OSError) as error:
                    say(f"  {side.title} failed: {error}")
                    measured.failures.append(f"{name}, {side.title}, round {round_no + 1}: {one_line(error)}")
                    # Its rounds would no longer be the others'.
                    left.remove(side)
                    continue
                for series, value in values.items():
                    measured.add(series, side.name, value)
    measured.complete = True
    say(f"[{time.monotonic() - started:4.0f} s] done")


def show(arguments, measured):
    """Prints the tables; writes charts and the document where that is asked for."""
    launch.show_charted(
        arguments, partial(figures.write, measured), partial(tables.markdown, measured), tables.BEGIN
    )


def choose(arguments):
    """Returns the sizes to measure with."""
    chosen = launch.choose(arguments, settings.PAPER)
    rounds = arguments.rounds
    return replace(
        chosen,
        rounds=rounds or chosen.rounds,
        crash_rounds=rounds or chosen.crash_rounds,
        image_rounds=rounds or chosen.image_rounds,
        index_bits=arguments.filter_index_bits or chosen.index_bits,
        tag_bits=arguments.filter_tag_bits or chosen.tag_bits,
    )


def sizes(chosen, real):
    mib = 1 << 20
    made = f"{chosen.image_count} of {chosen.synthetic_bytes // mib} MiB, made from a seed"
    rounds = f"{chosen.rounds} rounds of streams, {chosen.crash_rounds} of crashes, {chosen.image_rounds} of images"
    return {
        "sizes": f"files of {chosen.file_bytes // mib} MiB, {chosen.crash_bytes // mib} in a crash, "
        f"on a disk of {chosen.device_bytes // mib} MiB, {rounds}, pool memory {chosen.memory}",
        "filter of the paper's variants": f"n = {chosen.index_bits}, k = {chosen.tag_bits}",
        "images": ", ".join(f"`{path.name}` of {path.stat().st_size // mib} MiB" for path in real) or made,
    }


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, measure))

#!/usr/bin/env python3
"""Captures sets of images into archives with each kind of unit, and shows what each stores and costs.

Images that are not built yet are left out with their set; `make corpus` builds them. Times are processor time, so other
work on the machine hardly changes them. See bench/README.md.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

import sets  # noqa: E402
from lib import corpus, launch, programs, report  # noqa: E402
from lib.runner import say  # noqa: E402
from lib.system import BenchError  # noqa: E402

BEGIN = f"{report.ANY_BEGIN}written by bench/units.py --update -->"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Kind:
    """A kind of unit, in words and in those of `archive create`."""

    title: str
    unit: str
    size: str


KINDS = (
    Kind("along files, 64 KiB", "files", "64K"),
    Kind("along files, 128 KiB", "files", "128K"),
    Kind("along files, 256 KiB", "files", "256K"),
    Kind("along files, 1 MiB", "files", "1M"),
    Kind("fixed, 4 KiB", "fixed", "4K"),
    Kind("fixed, 32 KiB (the paper's)", "fixed", "32K"),
    Kind("fixed, 128 KiB", "fixed", "128K"),
)
QUICK_KINDS = (KINDS[1], KINDS[5])
SETS = ("demo", "distros", "vdi", "fbs", "ntfs")
QUICK_SETS = ("demo",)
# Two images of which the second has much of the first, in another form.
PAIRS = {
    "another release": ("debian-12-base", "debian-13-base"),
    "independent builds": ("debian-12-base", "debian-12-base-2"),
    "ext4 and XFS": ("debian-13-base", "debian-13-xfs"),
    "aligned and misaligned": ("debian-12-base", "debian-12-misaligned"),
}


@dataclass(frozen=True)
class Captured:
    """What an archive holds once all images of a set are in it."""

    images: list
    # All objects of the archive.
    total_bytes: int
    cpu_seconds: float

    def sum(self, key):
        return sum(image[key] for image in self.images)


def parse():
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", help="sets of bench/corpus (default: all, and pairs)")
    parser.add_argument("--quick", action="store_true", default=quick, help="the demo's set, two kinds (or QUICK=1)")
    parser.add_argument("--dir", type=Path, default=launch.default_folder(), help="where archives are made (or BENCH_DIR)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all figures go")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the tables between their markers")
    arguments = parser.parse_args()
    if arguments.update and (arguments.quick or arguments.sets):
        parser.error("--update takes a whole run: no --quick and no sets")
    return arguments


def main(arguments):
    onefold = programs.find_onefold()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    kinds = QUICK_KINDS if arguments.quick else KINDS
    groups = groups_of(arguments)
    figures = {name: {kind: capture(onefold, arguments.dir, name, kind, images) for kind in kinds}
               for name, images in groups.items()}  # fmt: skip
    if arguments.json:
        report.write_whole(arguments.json, json.dumps(document(figures), indent=1))
    text = f"{stored(figures)}\n\n{last_images(figures)}"
    print(text)
    if arguments.update:
        facts = f"- when: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC\n- command: `bench/units.py --update FILE`\n\n"
        report.update(arguments.update, facts + text, BEGIN)
    return launch.DONE


def groups_of(arguments):
    """Returns the images of each set and pair that is built whole. Raises BenchError where none is."""
    groups = {}
    for name in arguments.sets or (QUICK_SETS if arguments.quick else SETS):
        add_built(groups, f"`{name}`", corpus.images_of(name))
    if not arguments.sets and not arguments.quick:
        known = {image.stem: image for name in (*SETS, "builds") for image in corpus.images_of(name)}
        for name, pair in PAIRS.items():
            add_built(groups, name, [known[stem] for stem in pair])
    if not groups:
        raise BenchError("no set is built whole: run `make corpus`")
    return groups


def add_built(groups, name, images):
    missing = [image.stem for image in images if not image.exists()]
    if missing:
        say(f"{name}: left out, not built: {', '.join(missing)}")
    else:
        groups[name] = images


def capture(onefold, folder, name, kind, images):
    """Captures images one after the other into a new archive, which is removed again."""
    say(f"{name}: {len(images)} images, {kind.title}")
    with tempfile.TemporaryDirectory(dir=folder, prefix="units-") as place:
        archive = Path(place) / "archive"
        run(onefold, "archive", "create", archive, "--unit", kind.unit, "--unit-size", kind.size)
        before = cpu_of_children()
        done = [run(onefold, "image", "capture", archive, image)["images"][0] for image in images]
        cpu_seconds = cpu_of_children() - before
        total = run(onefold, "archive", "stat", archive)["stored_bytes"]
    return Captured(done, total, cpu_seconds)


def run(onefold, *words):
    done = subprocess.run([onefold, *words, "--quiet", "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`onefold {' '.join(map(str, words[:2]))}` failed with {done.returncode}")
    return json.loads(done.stdout)


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stored(figures):
    """What all images of a set take."""
    heads = ["images", "units", "data", "units, each once", "stored", "tables, index and the like", "archive",
             "of the data", "CPU for each GiB of data"]  # fmt: skip
    lines = [report.row_of(heads), "|" + "---|" * len(heads)]
    for name, of_kinds in figures.items():
        for kind, captured in of_kinds.items():
            data, units = captured.sum("data_bytes"), captured.sum("stored_bytes")
            lines.append(report.row_of([
                f"{name}, {len(captured.images)} images",
                kind.title,
                size(data),
                size(captured.sum("new_bytes")),
                size(units),
                size(captured.total_bytes - units),
                size(captured.total_bytes),
                sets.percent(captured.total_bytes, data),
                f"{captured.cpu_seconds * GIB / data:.2f} s" if data else "",
            ]))  # fmt: skip
    return "What archives take (*stored*: compressed units and headers of chunks):\n\n" + "\n".join(lines)


def last_images(figures):
    """What the last image of a set adds to those before it."""
    heads = ["images", "units", "last image", "its data", "new units", "of its data", "stored"]
    lines = [report.row_of(heads), "|" + "---|" * len(heads)]
    for name, of_kinds in figures.items():
        for kind, captured in of_kinds.items():
            last = captured.images[-1]
            data, new = last["data_bytes"], last["new_bytes"]
            cells = [name, kind.title, last["name"], size(data), size(new), sets.percent(new, data)]
            lines.append(report.row_of([*cells, size(last["stored_bytes"])]))
    return "What the last image adds:\n\n" + "\n".join(lines)


def document(figures):
    """Returns all figures for programs."""
    return {
        name: {
            kind.title: {"images": captured.images, "bytes": captured.total_bytes, "cpu_seconds": captured.cpu_seconds}
            for kind, captured in of_kinds.items()
        }
        for name, of_kinds in figures.items()
    }


def size(value):
    return f"{value / MIB:,.1f} MiB"


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, main))

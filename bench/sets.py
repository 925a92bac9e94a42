#!/usr/bin/env python3
"""Analyses the corpus's sets of images and shows the savings beside those that the papers tell of their own images.

Images that are not built yet are left out with their set; `make corpus` builds them. Nothing is timed. See
bench/README.md.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

# No folders of compiled modules in the source tree.
sys.dont_write_bytecode = True

from lib import corpus, launch, programs, report  # noqa: E402
from lib.measure import Spread  # noqa: E402
from lib.runner import say  # noqa: E402
from lib.system import BenchError  # noqa: E402
from paper_figures import svg  # noqa: E402

PAGE = "sets.md"
BEGIN = f"{report.ANY_BEGIN}written by bench/sets.py --update -->"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# LiveDFS's distributions: here, what images of one release, desktop or service have in common.
GROUPS = (
    "Debian 12=debian-12-*", "Debian 13=debian-13-*", "desktops=desktop*", "services=services-*", "NTFS=windows-*",
)  # fmt: skip
# What the README's chart calls the sets.
CHART_LABELS = {
    "distros": "8 Debian systems",
    "vdi": "desktop and 5 clones",
    "fbs": "server and 5 clones",
    "ntfs": "2 NTFS disks",
}
# Kept in the document: the sizes between them tell nothing new.
SIZES_SHOWN = (4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB)


@dataclass(frozen=True)
class Paper:
    """What a paper tells of its own images; None where it does not."""

    name: str
    images: str
    nonzero: str
    # Share saved of what is not zero, by block size; linked clones; how often blocks are referenced.
    saved: dict
    linked: str = ""
    realigned: str = ""
    ten_times: str = ""
    most_times: str = ""


# Figures of the text; bars and curves without numbers are not read off.
PAPERS = (
    Paper(
        "DeDe, Figures 5 and 6",
        "113 desktops of Windows XP, used for 6 to 12 months",
        "1.3 TB",
        {4 * KIB: "about 80 %", MIB: "about 35 %"},
        linked="44 % at most",
        realigned="little effect",
        ten_times="94 % at most 10",
        most_times="over 100,000",
    ),
    Paper("LiveDFS, Figure 10", "42 servers of six Linux distributions", "", {4 * KIB: "at least 40 %"}),
    Paper("Frisbee on Venti", "430 Linux images of a testbed", "", {32 * KIB: "69.3 %"}),
)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=["distros", "vdi", "fbs", "ntfs"], help="sets of bench/corpus")
    launch.add_update(parser, PAGE)
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="where each set's analysis goes, whole")
    arguments = parser.parse_args()
    launch.check_update(parser, arguments)
    return arguments


def main(arguments):
    onefold = programs.find_onefold()
    analyses = {}
    for name in arguments.sets:
        images = corpus.images_of(name)
        missing = [image.stem for image in images if not image.exists()]
        if missing:
            say(f"{name}: left out, not built: {', '.join(missing)}")
            continue
        say(f"{name}: analysing {len(images)} images")
        analyses[name] = analyse(onefold, images)
        if arguments.json:
            (arguments.json / f"{name}.json").write_text(json.dumps(analyses[name], indent=1), encoding="utf-8")
    if not analyses:
        raise BenchError("no set is built whole: run `make corpus`")
    text = tables(analyses)
    print(text)
    if arguments.update:
        if set(analyses) != set(arguments.sets):
            raise BenchError("--update takes whole sets only: run `make corpus`")
        facts = f"- when: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC\n- command: `bench/sets.py --update`\n\n"
        report.update(arguments.update, facts + text, BEGIN)
        report.write_whole(arguments.update.parent / "figures" / "savings.svg", chart(analyses))
    return launch.DONE


def analyse(onefold, images):
    groups = [word for group in GROUPS for word in ("--group", group)]
    command = [onefold, "analyze", "--quiet", "--json", "--shifts", *groups, *images]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`onefold analyze` failed with {done.returncode}")
    return json.loads(done.stdout)


def tables(analyses):
    """Returns the tables of all sets as Markdown."""
    parts = [savings(analyses), repeats(analyses), growth(analyses), groups(analyses)]
    return "\n\n".join(parts)


def savings(analyses):
    """DeDe's Figure 5: saved of what is not zero, by block size."""
    heads = ["images", "not zero", *(size_text(size) for size in SIZES_SHOWN), "linked clones",
             "shifted by 512 B to 3.5 KiB", "partitions realigned"]
    rows = []
    for name, analysis in analyses.items():
        smallest = size_of(analysis["block_sizes"], 4 * KIB)
        nonzero = smallest["nonzero_bytes"]
        cells = [f"`{name}`, {len(analysis['images'])} images", f"{nonzero / GIB:.2f} GiB"]
        for shown in SIZES_SHOWN:
            size = size_of(analysis["block_sizes"], shown)
            cells.append(percent(size["saved_bytes"], size["nonzero_bytes"]))
        cells.append(percent(nonzero - smallest["linked_clone_bytes"], nonzero))
        shifted = [size_of(shift["block_sizes"], 4 * KIB) for shift in analysis["shifts"]]
        cells.append(span([100 * size["saved_bytes"] / size["nonzero_bytes"] for size in shifted]))
        realigned = analysis["realignment"]
        cells.append(percent(realigned["nonzero_bytes"] - realigned["distinct_bytes"], realigned["nonzero_bytes"]))
        rows.append(cells)
    for paper in PAPERS:
        cells = [f"{paper.name}: {paper.images}", paper.nonzero, *(paper.saved.get(size, "") for size in SIZES_SHOWN)]
        rows.append([*cells, paper.linked, paper.realigned, paper.realigned])
    return titled("Saved of what is not zero, by block size (DeDe, Figure 5):", heads, rows)


def chart(analyses):
    """Returns the README's chart: what each set holds, and what is left of it with each block of 4 KiB stored once."""
    groups = []
    for name, analysis in analyses.items():
        size = size_of(analysis["block_sizes"], 4 * KIB)
        nonzero, saved = size["nonzero_bytes"], size["saved_bytes"]
        held, left = (Spread.of([value / GIB]) for value in (nonzero, nonzero - saved))
        bars = [svg.Bar(held), svg.Bar(left, f"({percent(saved, nonzero)} saved)")]
        groups.append((CHART_LABELS.get(name, name), bars))
    series = ["as plain files, without zero blocks", "each block of 4 KiB stored once"]
    note = "Counted by onefold analyze; docs/benchmarks/sets.md describes the sets."
    return svg.document([svg.BarPanel("Data in sets of disk images", "GiB", series, groups, note)])


def repeats(analyses):
    """DeDe's Figure 6: how often blocks of 4 KiB are referenced."""
    bounds = (1, 2, 4, 8, 16, 64)
    heads = ["images", "once", *(f"at most {bound} times" for bound in bounds[1:]), "most often"]
    rows = []
    for name, analysis in analyses.items():
        size = size_of(analysis["block_sizes"], 4 * KIB)
        blocks = {step["times"]: step["blocks"] for step in size["repeats"]}
        total = max(blocks.values())
        # Beyond the last step are none.
        cells = [percent(blocks.get(bound, total), total) for bound in bounds]
        rows.append([f"`{name}`", *cells, f"{size['repeats_max']:,}"])
    for paper in PAPERS:
        if paper.most_times:
            rows.append([paper.name, "", "", "", "", paper.ten_times, "", paper.most_times])
    return titled("Distinct blocks of 4 KiB by how often they are there (DeDe, Figure 6):", heads, rows)


def growth(analyses):
    """LiveDFS's Figure 10: storage as images are added in the set's order."""
    heads = ["images", "image", "plain, so far", "deduplicated, so far", "saved"]
    rows = []
    for name, analysis in analyses.items():
        for step in analysis["growth"]:
            plain, distinct = step["nonzero_bytes"], step["distinct_bytes"]
            cells = [f"`{name}`", Path(step["name"]).stem, f"{plain / GIB:.2f} GiB", f"{distinct / GIB:.2f} GiB"]
            rows.append([*cells, percent(plain - distinct, plain)])
    return titled("Storage as the images are added (LiveDFS, Figure 10a):", heads, rows)


def groups(analyses):
    """LiveDFS's Figure 10b: what an image of a group takes on average."""
    heads = ["images", "group", "of them", "plain, each", "deduplicated within the group, each", "saved"]
    rows = []
    for name, analysis in analyses.items():
        for group in filter(lambda group: group["images"], analysis["groups"]):
            count, plain, distinct = group["images"], group["nonzero_bytes"], group["distinct_bytes"]
            each = [f"{total / count / MIB:,.0f} MiB" for total in (plain, distinct)]
            rows.append([f"`{name}`", group["name"], str(count), *each, percent(plain - distinct, plain)])
    rows.append(["LiveDFS", "six Linux distributions", "", "", "", "33 to 60 %"])
    return titled("The average image (LiveDFS, Figure 10b):", heads, rows)


def titled(title, heads, rows):
    """Returns a table below its title."""
    return "\n".join([title, "", *report.table(heads, rows)])


def percent(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else ""


def span(values):
    """Returns the lowest and the highest of percentages."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def size_of(sizes, block_bytes):
    return next(size for size in sizes if size["block_bytes"] == block_bytes)


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


if __name__ == "__main__":
    sys.exit(launch.run_program(parse, main))

"""The charts, one SVG file for each figure of the paper."""

from lib.measure import Spread
from lib.report import write_whole

from . import published, results, svg
from .results import PLAIN

# Paired with the paper's figures by the same keys; ext4 stands for the paper's Ext3FS.
THROUGHPUTS = (
    (7, results.WRITE, "sequential write of unique blocks", published.WRITE),
    (8, results.READ, "sequential read", published.READ),
    (9, results.DUPLICATE, "sequential write of duplicates", published.DUPLICATE),
)
WHISKERS = "Bars are medians, whiskers reach from the lowest to the highest round."


def write(measured, folder):
    """Writes each chart that has something to show; returns the names of the files."""
    charts = {f"figure-{no}.svg": throughput(measured, *rest) for no, *rest in THROUGHPUTS}
    charts["recovery.svg"] = recovery(measured)
    charts["figure-11.svg"] = insert(measured)
    charts["figure-12.svg"] = fetch(measured)
    names = []
    for name, panels in charts.items():
        if panels:
            write_whole(folder / name, svg.document(panels))
            names.append(name)
    return names


def bar_groups(measured, series):
    spreads = ((title, measured.spread(series, key)) for key, title in measured.sides.items())
    return [(title, [svg.Bar(spread)]) for title, spread in spreads if spread]


def throughput(measured, series, what, paper):
    absolute = bar_groups(measured, series)
    if not absolute:
        return []
    panels = [svg.BarPanel(f"Throughput of {what}", "MB/s", ["here"], absolute, WHISKERS)]
    relative = []
    for key, title in measured.sides.items():
        own, theirs = measured.ratio(series, key), published.of_ext3(paper, key)
        bars = [svg.Bar(own, "x ext4") if own else None, None]
        if theirs is not None:
            bars[1] = svg.Bar(Spread(theirs, theirs, theirs), "x Ext3FS")
        elif key in paper and key != PLAIN:
            bars[1] = svg.Bar(None, f"paper: {paper[key].words}")
        if any(bars):
            relative.append((title, bars))
    if relative:
        note = "The paper's are told by, or follow from, differences in its text."
        names = ["here, beside ext4", "in the paper, beside Ext3FS"]
        panels.append(svg.BarPanel("The same beside the plain file system", "times as fast", names, relative, note))
    return panels


def recovery(measured):
    groups = []
    for key, title in measured.sides.items():
        bars = [measured.spread(series, key) for series in (results.RECOVERY, results.RECOVERED)]
        if any(bars):
            groups.append((title, [svg.Bar(spread) if spread else None for spread in bars]))
    if not groups:
        return []
    note = "In the paper: 14.94 s for LiveDFS, under 1 s for Ext3FS; it ran fsck, here a mount recovers."
    return [svg.BarPanel("Recovery after a crash", "s", ["until mounted", "until a change is on disk"], groups, note)]


def insert(measured):
    average = bar_groups(measured, results.INSERT)
    if not average:
        return []
    panels = [svg.BarPanel("Time to insert an image, mean of all", "s", ["here"], average, WHISKERS)]
    keys = [key for key in ("all", "defaults", PLAIN) if measured.spread(results.INSERT, key)]
    groups = []
    for number, image in enumerate(measured.images):
        spreads = [measured.spread(results.image_series(number), key) for key in keys]
        groups.append((short(image), [svg.Bar(spread) if spread else None for spread in spreads]))
    names = [measured.sides[key] for key in keys]
    return [*panels, svg.BarPanel("Time to insert each image, in this order", "s", names, groups)]


def fetch(measured):
    lines = []
    for key, title in measured.sides.items():
        points = {}
        for count in range(1, len(measured.images) + 1):
            spread = measured.spread(results.fetch_series(count), key)
            if spread:
                points[count] = spread
        if points:
            lines.append((title, points))
    if not lines:
        return []
    note = "In the paper a start takes around 30 % longer than on Ext3FS, one to four at once."
    return [svg.LinePanel("Time to fetch whole images, cold", "s", "images fetched at once", lines, note)]


def short(name, length_max=22):
    """Returns a file's name that fits beside a bar."""
    return name if len(name) <= length_max else name[: length_max - 1] + "…"

"""The tables that stand between the markers of docs/benchmarks/paper-figures.md."""

from lib.report import number, table, with_unit

from . import figures, published, results
from .results import PLAIN
from .variants import VARIANTS

BEGIN = "<!-- begin: written by bench/paper.py --update -->"


def markdown(measured, charts=(), charts_at="figures"):
    """Returns the run as Markdown: how it was made, and a section for each experiment that it has values of."""
    lines = [f"- {name}: {value}" for name, value in measured.facts.items()]
    lines += [f"- failed: {failure}" for failure in measured.failures]
    parts = [
        (series, f"Figure {no}: {what}", f"figure-{no}.svg", throughput_table(measured, series, paper))
        for no, series, what, paper in figures.THROUGHPUTS
    ]
    parts += [
        (results.RECOVERY, "Experiment A4: recovery", "recovery.svg", recovery_table(measured)),
        (results.INSERT, "Figure 11: inserting images", "figure-11.svg", insert_table(measured)),
        (results.fetch_series(1), "Figure 12: fetching images", "figure-12.svg", fetch_table(measured)),
    ]
    for series, title, chart, table_lines in parts:
        if measured.values.get(series):
            lines += [*section(title, chart, charts, charts_at), *table_lines]
    return "\n".join(lines)


def section(title, chart, charts, charts_at):
    link = [f"![{title}]({charts_at}/{chart})", ""] if chart in charts else []
    return ["", f"### {title}", "", *link]


def throughput_table(measured, series, paper):
    rows = []
    for key, title in measured.sides.items():
        # In the paper the plain file system is Ext3FS.
        theirs = paper.get(published.EXT3 if key == PLAIN else key)
        multiple = None if key == PLAIN else published.of_ext3(paper, key)
        rows.append(
            [
                title,
                with_unit(measured.spread(series, key), "MB/s"),
                with_unit(measured.ratio(series, key), "x"),
                theirs_text(theirs, "MB/s"),
                f"{number(multiple)}x" if multiple is not None else "",
            ]
        )
    return table(["variant", "here", "of ext4", "the paper's", "of Ext3FS"], rows)


def theirs_text(theirs, unit):
    """Returns a figure of the paper with where it is from, or only the words where the text has no number."""
    if theirs is None:
        return ""
    return theirs.words if theirs.value is None else f"{number(theirs.value)} {unit} ({theirs.words})"


def recovery_table(measured):
    rows = []
    for key, title in measured.sides.items():
        spreads = [measured.spread(series, key) for series in (results.RECOVERY, results.RECOVERED)]
        cells = [with_unit(spread, "s") for spread in spreads]
        if any(variant.key == key and variant.journal == "off" for variant in VARIANTS):
            cells = ["no journal, so no promise", ""]
        theirs = published.RECOVERY.get(published.EXT3 if key == PLAIN else key)
        rows.append([title, *cells, theirs.words if theirs else ""])
    return table(["variant", "until mounted", "until a change is on disk", "the paper's"], rows)


def insert_table(measured):
    rows = []
    for key, title in measured.sides.items():
        each = [with_unit(measured.spread(results.image_series(no), key), "s") for no in range(len(measured.images))]
        mean = with_unit(measured.spread(results.INSERT, key), "s")
        ratio = with_unit(measured.ratio(results.INSERT, key), "x")
        rows.append([title, *each, mean, ratio, theirs_text(published.INSERT.get(key), "s")])
    images = [f"`{name}`" for name in measured.images]
    return table(["variant", *images, "mean", "time of ext4's", "the paper's"], rows)


def fetch_table(measured):
    counts = range(1, len(measured.images) + 1)
    rows = []
    for key, title in measured.sides.items():
        cells = []
        for count in counts:
            series = results.fetch_series(count)
            ratio = measured.ratio(series, key)
            times = f", {number(ratio.median)}x ext4's" if ratio else ""
            spread = with_unit(measured.spread(series, key), "s")
            cells.append(spread + times)
        # The paper launches with everything enabled only.
        rows.append([title, *cells, published.FETCH_OF_EXT3.words if key == "all" else ""])
    return table(["variant", *(f"{count} at once" for count in counts), "the paper's"], rows)

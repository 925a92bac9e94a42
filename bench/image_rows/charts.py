"""Charts of the table of archives."""

from lib import report
from lib.measure import NotMeasured
from lib.rows.beside import ONEFOLD
from paper_figures import svg

from .paper import PAPER
from .stages import OTHER, STAGES, key_of

# What the paper says of its own images: by blocks, and with metadata. It does not name the whole.
PUBLISHED = {"": "paper: 69.3 %", "-metadata": "paper: 67.8 %"}
SETS = ("fbs", "distros")


def write(run, folder):
    """Writes those charts of which a run has figures; returns their names."""
    results = {result.line.key: result for _, series in run.measured for result in lines_of(series)}
    charts = {"archive-stages.svg": stages(results), "archive-savings.svg": savings(results)}
    charts["archive-stored.svg"] = stored(results)
    written = {name: panels for name, panels in charts.items() if panels}
    for name, panels in written.items():
        report.write_whole(folder / name, svg.document(panels))
    return list(written)


def lines_of(series):
    return [] if isinstance(series, NotMeasured) else [result for result in series.lines if result.samples]


def stages(results):
    """Processor time of captures by stage."""
    groups = [(stage, [svg.Bar(results[key_of(stage)].spread(ONEFOLD))]) for stage in (*STAGES, OTHER)
              if key_of(stage) in results]  # fmt: skip
    note = "All images of the derived set, captured one after the other into a new archive."
    return [svg.BarPanel("Processor time of captures by stage", "s", ["capture"], groups, note)] if groups else []


def savings(results):
    """The paper's savings and ours, of both wholes."""
    panels = []
    for base, whole in (("units", "the sum of all compressed units"), ("images", "one compressed image each")):
        groups = []
        for name in SETS:
            for suffix, published in PUBLISHED.items():
                key = f"paper-{name}-{base}{suffix}"
                if key in results:
                    bars = [svg.Bar(results[key].spread(side), published) for side in (PAPER, ONEFOLD)]
                    groups.append((f"{name}, {'with metadata' if suffix else 'by blocks'}", bars))
        if groups:
            note = "The words beside a bar are the figure of the paper's own images."
            panels.append(svg.BarPanel(f"Saved of {whole}", "%", [PAPER, "units along files"], groups, note))
    return panels


def stored(results):
    """What each side stores of the sets."""
    panels = []
    titles = {"derived": "derived set as it is", "derived-equal": "derived set, equal content",
              "distros": "distros, equal content", "builds": "two independent builds, equal content"}  # fmt: skip
    for key, title in titles.items():
        if key in results:
            result = results[key]
            spreads = sorted(((result.spread(side), side) for side in result.samples), key=lambda pair: pair[0].median)
            groups = [(side, [svg.Bar(spread)]) for spread, side in spreads]
            panels.append(svg.BarPanel(f"Bytes stored: {title}", "MiB", ["stored"], groups))
    return panels

"""Charts of the table of served images."""

from lib import report
from lib.measure import NotMeasured
from lib.rows.beside import ONEFOLD
from paper_figures import svg

from .limits import StagesRow
from .many import HTTP, PREBUILT
from .multicast import LOSSES, LossRow, ManyLossRow, percent


def write(run, folder):
    """Writes those charts of which a run has figures; returns their names."""
    results = {result.line.key: result for _, series in run.measured for result in lines_of(series)}
    charts = {
        "serve-clients.svg": clients(results, run.settings),
        "serve-loss.svg": loss(results) + many_loss(results, run.settings),
        "serve-stages.svg": stages(results),
    }
    written = {name: panels for name, panels in charts.items() if panels}
    for name, panels in written.items():
        report.write_whole(folder / name, svg.document(panels))
    return list(written)


def lines_of(series):
    return [] if isinstance(series, NotMeasured) else [result for result in series.lines if result.samples]


def clients(results, settings):
    """Time of installations over the number of machines."""
    lines = []
    for name, side, key in (
        ("multicast, on demand", ONEFOLD, "clients-{}"),
        ("multicast, prebuilt", PREBUILT, "clients-{}"),
        ("HTTP", HTTP, "clients-http-{}"),
    ):
        found = {count: results.get(key.format(count)) for count in settings.client_counts}
        points = {count: result.spread(side) for count, result in found.items() if result and result.spread(side)}
        if points:
            lines.append((name, points))
    note = "From the start to the last disk flushed; all machines begin at once."
    return [svg.LinePanel("Installation over the number of machines", "s", "machines", lines, note)] if lines else []


def loss(results):
    """What is sent, and requested, over the loss at each machine."""
    panels = []
    for title, unit, key in (
        ("Bytes sent / content, over loss", "x", "loss-{}"),
        ("Requests at the server, over loss", "per s", "requests-{}"),
    ):
        lines = []
        for side in LossRow.sides:
            found = {lost: results.get(key.format(percent(lost))) for lost in LOSSES}
            there = {lost: result for lost, result in found.items() if result and result.spread(side)}
            points = {int(percent(lost)): result.spread(side) for lost, result in there.items()}
            if points:
                lines.append((side, points))
        if lines:
            panels.append(svg.LinePanel(title, unit, "percent of the packets lost", lines))
    return panels


def many_loss(results, settings):
    """What is sent, and requested, over the number of machines."""
    names = {count: f"machines-{count}" for count in ManyLossRow.counts(settings)}
    names[settings.clients] = percent(ManyLossRow.LOSS)
    panels = []
    for title, unit, key in (("Bytes sent / content", "x", "loss"), ("Requests at the server", "per s", "requests")):
        lines = []
        for side in LossRow.sides:
            found = {count: results.get(f"{key}-{name}") for count, name in names.items()}
            points = {count: result.spread(side) for count, result in found.items() if result and result.spread(side)}
            if points:
                lines.append((side, points))
        if lines:
            title = f"{title}, over machines that lose {percent(ManyLossRow.LOSS)} %"
            panels.append(svg.LinePanel(title, unit, "machines", lines))
    return panels


def stages(results):
    """Each stage alone, and the pipeline."""
    names = {stage: stage for stage in StagesRow.STAGES}
    names |= {f"pipeline-{stage}": f"{stage}, in the pipeline" for stage in StagesRow.IN_PIPELINE}
    names |= {"pipeline": "the whole pipeline"}
    there = {name: results[f"stage-{stage}"] for stage, name in names.items() if f"stage-{stage}" in results}
    groups = [(name, [svg.Bar(result.spread(ONEFOLD))]) for name, result in there.items()]
    note = "Bytes of chunks a second: each stage alone, and all of them in one installation over HTTP."
    return [svg.BarPanel("Stages of an installation", "MB/s", ["rate"], groups, note)] if groups else []

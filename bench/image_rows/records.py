"""Rows of an earlier run, which a run of a few rows puts beside its own: no run has to measure all of them at once."""

import json
import re

from lib.measure import Cost, NotMeasured, Sample, Series, Turn, Work
from lib.system import BenchError

# Begins the name of the fact that says of which rows another run's head speaks.
KEPT = "kept from "


def keep(path, rows, measured, run):
    """Adds the rows that a record has and this run does not measure to a run that has not begun.

    Rows that the record lacks are left out, and those that have other lines now. Raises BenchError where the record is
    that of a run of another size.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    mode = document["settings"]["mode"]
    if mode != run.settings.mode:
        raise BenchError(f"{path} is the record of a run of the size `{mode}`, this one is `{run.settings.mode}`")
    names = {row.name for row in measured}
    for row in rows:
        entry = document["rows"].get(row.name)
        if entry is None or row.name in names:
            continue
        series = NotMeasured(**entry) if "what" in entry else series_of(row, entry)
        if series is not None:
            run.measured.append((row, series))
            run.seconds[row.name] = document["seconds"].get(row.name, 0.0)
    kept = {row.name for row, _ in run.measured}
    for head, texts in heads(document).items():
        of_head = [name for name in texts if name in kept]
        if of_head:
            run.facts[KEPT + head] = ", ".join(f"`{name}`" for name in of_head)


def heads(document):
    """Returns the rows of a record by the run that measured them: the record's own, or one that it had kept."""
    facts = document["facts"]
    found = {name[len(KEPT) :]: re.findall("`(.*?)`", text) for name, text in facts.items() if name.startswith(KEPT)}
    before = {name for names in found.values() for name in names}
    own = f"{facts.get('when', 'another run')}, {facts.get('command', '')}, load {facts.get('load at the start', '?')}"
    return {own: [name for name in document["rows"] if name not in before], **found}


def series_of(row, entry):
    """Returns the Series that a record has of a row; None where the row has other lines now."""
    series = Series(row)
    if {result.line.key for result in series.lines} != set(entry["lines"]):
        return None
    for result in series.lines:
        for side, samples in entry["lines"][result.line.key]["samples"].items():
            for sample in samples:
                result.add(side, sample_of(sample))
    series.turns = {side: [Turn(**turn) for turn in turns] for side, turns in entry["turns"].items()}
    if "set_aside" in entry:
        series.set_aside = series_of(row, entry["set_aside"])
    return series


def sample_of(sample):
    cost, work = sample["cost"], sample["work"]
    return Sample(sample["value"], cost and Cost(**cost), work and Work(**work), sample["more"])


def in_order(run, rows):
    """Sorts what a run has as the table does: by the order of all rows."""
    places = {row.name: place for place, row in enumerate(rows)}
    run.measured.sort(key=lambda pair: places[pair[0].name])

"""The table that people read and the JSON that machines read."""

import json
import os
from dataclasses import asdict

from .measure import NotMeasured
from .system import BenchError

BEGIN = "<!-- begin: written by bench/run.py --update -->"
END = "<!-- end -->"

HEAD = (
    "| what | pool | ext4 | pool better by | at least / aim | CPU of the pool | CPU of ext4 | repeat with |",
    "|---|---|---|---|---|---|---|---|",
)


def markdown(run):
    """Returns the run as Markdown: how it was made, the table, notes."""
    facts = [f"- {name}: {value}" for name, value in run.facts.items()]
    lines = [*facts, "", *HEAD]
    notes = []
    for row, results in run.measured:
        command = f"`bench/run.py --only {row.name}`"
        if isinstance(results, NotMeasured):
            lines += [f"| {line.title} | {results.what} | | | {line.goal} | | | {command} |" for line in row.lines]
            notes.append(f"- {row.name}: {results.what}: {results.why}.")
            continue
        done, wanted = min(result.rounds() for result in results), row.rounds(run.settings)
        if done < wanted:
            notes.append(f"- {row.name}: {done} of {wanted} rounds, then its time was up.")
        for result in results:
            lines.append(table_line(result, command))
            shared = result.shared_part()
            if "duplicate" in result.line.key and shared is not None:
                notes.append(f"- {result.line.title}: at least {shared:.1%} of the blocks were shared in each round.")
    return "\n".join(lines + ([""] + notes if notes else []))


def table_line(result, command):
    line = result.line
    pool, ext4 = (with_unit(result.spread(side), line.unit) for side in ("pool", "ext4"))
    ratio = with_unit(result.ratio(), "x")
    cpu = [cpu_text(result.cpu_seconds(side)) for side in ("pool", "ext4")]
    return f"| {line.title} | {pool} | {ext4} | {ratio} | {line.goal} | {cpu[0]} | {cpu[1]} | {command} |"


def with_unit(spread, unit):
    """Returns `median unit (lowest-highest)`."""
    if spread is None:
        return ""
    return f"{number(spread.median)}{'' if unit == 'x' else ' '}{unit} ({number(spread.low)}-{number(spread.high)})"


def cpu_text(cpu):
    """Returns `client and daemon (whole machine)` for a unit of work."""
    if cpu is None:
        return ""
    own, whole, unit = cpu
    scale, name = (1, "s") if unit == "GiB" else (1_000_000, "us")
    return f"{number(own * scale)} ({number(whole * scale)}) {name}/{unit}"


def number(value):
    """Returns three digits that count, never an exponent."""
    for limit, digits in ((0.1, 4), (1, 3), (10, 2), (100, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def timetable(run):
    """Returns how long each row took, for people who want to know where the time of a run went."""
    lines = [f"{seconds:6.0f} s  {name}" for name, seconds in run.seconds.items()]
    return "\n".join(["how long each row took:", *lines, f"{sum(run.seconds.values()):6.0f} s  together"])


def write_json(run, path):
    """Writes every sample of a run."""
    rows = {}
    for row, results in run.measured:
        if isinstance(results, NotMeasured):
            rows[row.name] = asdict(results)
            continue
        rows[row.name] = {
            result.line.key: {
                "title": result.line.title,
                "unit": result.line.unit,
                "higher_is_better": result.line.higher_is_better,
                "samples": {side: [asdict(sample) for sample in samples] for side, samples in result.samples.items()},
            }
            for result in results
        }
    document = {
        "facts": run.facts,
        "settings": asdict(run.settings),
        "complete": run.complete,
        "seconds": run.seconds,
        "rows": rows,
    }
    # The image's path is the one value that JSON has no form of its own for.
    write_whole(path, json.dumps(document, indent=1, default=os.fspath) + "\n")


def update(path, text, begin=BEGIN):
    """Replaces what stands between the two markers of a document; `begin` is the first of them.

    Raises BenchError where the document has not exactly one pair of them; it is left as it is then.
    """
    old = path.read_text(encoding="utf-8")
    if old.count(begin) != 1 or old.count(END) != 1 or old.index(begin) > old.index(END):
        raise BenchError(f"{path} needs one line `{begin}` and after it one line `{END}`")
    before, after = old[: old.index(begin)], old[old.index(END) :]
    write_whole(path, f"{before}{begin}\n{text}\n{after}")


def write_whole(path, text):
    """Writes a file so that there is the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)

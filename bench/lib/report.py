"""The table that people read and the JSON that machines read."""

import json
import os
import statistics
from dataclasses import asdict, dataclass

from .measure import NotMeasured, Series
from .system import BenchError

# Marks a row whose rounds differ too much.
UNSTEADY = "(unsteady)"
ANY_BEGIN = "<!-- begin: "
END = "<!-- end -->"


@dataclass(frozen=True)
class Form:
    """How a program shows its lines."""

    # As it is called from the repository's root.
    script: str
    # After "what": heads, and what stands below for a Measured. The first is that of the figure.
    columns: tuple
    # Which of its tables, where it has several.
    part: str = ""

    @property
    def begin(self):
        """Returns the line of a document after which the program's table stands."""
        words = [self.script, *(["--part", self.part] if self.part else []), "--update"]
        return f"{ANY_BEGIN}written by {' '.join(words)} -->"

    def head(self):
        heads = ["what", *(head for head, _ in self.columns), "page faults and steal time of a turn", "repeat with"]
        return table(heads)

    def table_lines(self, series, row, instead=None):
        """Returns a row's lines of the table; with a word in place of each figure where there are none."""
        # They are the row's, not the line's.
        turns, mark = turns_text(series.turns), f" {UNSTEADY}" if series.is_unsteady() else ""
        for result in series.lines:
            cells = [text(result) for _, text in self.columns]
            if instead is not None:
                cells[0] = instead
            yield row_of([result.line.title + mark, *cells, turns, f"`{self.script} --only {row.name}`"])
            turns = ""


def table(heads, rows=()):
    """Returns the lines of a table, one for each row after those of the heads."""
    return [row_of(heads), "|" + "---|" * len(heads), *map(row_of, rows)]


def row_of(cells):
    return f"| {' | '.join(map(str, cells))} |"


def figure_of(side):
    return lambda result: with_unit(result.spread(side), result.line.unit)


def cpu_of(side):
    return lambda result: cpu_text(result.cpu_seconds(side))


def better_than(side, one="pool"):
    return lambda result: with_unit(result.ratio(one, side), "x")


def goal(result):
    return result.line.goal


# How the sides of bench/run.py are called.
SIDES = {"pool": "pool", "ext4": "ext4 on a loop device", "disk": "ext4 on the disk"}
SIDE_BY_SIDE = Form(
    "bench/run.py",
    (
        *((side, figure_of(key)) for key, side in SIDES.items()),
        *((f"pool better by: {side}", better_than(key)) for key, side in SIDES.items() if key != "pool"),
        ("at least / aim", goal),
        *((f"CPU: {side}", cpu_of(key)) for key, side in SIDES.items()),
    ),
)
BEGIN = SIDE_BY_SIDE.begin


def markdown(run, form=SIDE_BY_SIDE):
    """Returns the run as Markdown: how it was made, the table, notes."""
    facts = [f"- {name}: {value}" for name, value in run.facts.items()]
    lines = [*facts, "", *form.head()]
    notes = []
    for row, series in run.measured:
        if isinstance(series, NotMeasured):
            lines += form.table_lines(Series(row), row, instead=series.what)
            notes.append(f"- {row.name}: {series.what}: {series.why}.")
            continue
        lines += form.table_lines(series, row)
        notes += notes_of(row, series, run.settings)
    return "\n".join(lines + ([""] + notes if notes else []))


def notes_of(row, series, settings):
    """Returns what has to be said of a row below the table."""
    done, wanted, notes = series.rounds(), row.rounds(settings), []
    if done < wanted:
        notes.append(f"{row.name}: {done} of {wanted} rounds, then its time was up.")
    if series.set_aside is not None:
        before, now = (number(one.difference()) for one in (series.set_aside, series))
        what = "still unsteady" if series.is_unsteady() else "steady now"
        notes.append(f"{row.name}: run again, as its rounds had differed by {before}x; {what}, at {now}x.")
    for result in series.lines:
        shared = result.shared_part()
        if "duplicate" in result.line.key and shared is not None:
            notes.append(f"{result.line.title}: at least {shared:.1%} of the blocks were shared in each round.")
    return [f"- {note}" for note in notes]


def turns_text(turns):
    """Returns the medians of what happened on the machine during the turns of each side."""
    texts = []
    for side, counted in turns.items():
        faults = statistics.median(turn.page_faults for turn in counted)
        steal = statistics.median(turn.steal_seconds for turn in counted)
        texts.append(f"{side} {faults:,.0f}, {steal:.2f} s".strip())
    return "; ".join(texts)


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
    for row, series in run.measured:
        rows[row.name] = asdict(series) if isinstance(series, NotMeasured) else series_document(series)
    document = {
        "facts": run.facts,
        "settings": asdict(run.settings),
        "complete": run.complete,
        "seconds": run.seconds,
        "rows": rows,
    }
    write_document(path, document)


def write_document(path, document):
    """Writes what a run measured as JSON."""
    # Paths are the only values that JSON has no form of its own for.
    write_whole(path, json.dumps(document, indent=1, default=os.fspath) + "\n")


def series_document(series):
    """Returns a row's samples by the keys of its lines, and what was counted of its turns."""
    lines = {
        result.line.key: {
            "title": result.line.title,
            "unit": result.line.unit,
            "higher_is_better": result.line.higher_is_better,
            "samples": each(result.samples),
        }
        for result in series.lines
    }
    set_aside = {} if series.set_aside is None else {"set_aside": series_document(series.set_aside)}
    return {"lines": lines, "turns": each(series.turns), "difference": series.difference(), **set_aside}


def each(by_side):
    return {side: [asdict(one) for one in ones] for side, ones in by_side.items()}


def update(path, text, begin=BEGIN):
    """Replaces what stands between the two markers of a document; `begin` is the first of them.

    Raises BenchError where the document has not exactly one pair of them; it is left as it is then.
    """
    old = path.read_text(encoding="utf-8")
    start = old.find(begin)
    end = old.find(END, start)
    if old.count(begin) != 1 or end < 0 or old.count(ANY_BEGIN, start, end) != 1:
        raise BenchError(f"{path} needs one line `{begin}` and after it one line `{END}`")
    before, after = old[:start], old[end:]
    write_whole(path, f"{before}{begin}\n{text}\n{after}")


def write_whole(path, text):
    """Writes a file so that there is the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)

"""Lines of the table of archives: Onefold's figure, the best other program's, their ratio, and what is wanted of it."""

from dataclasses import dataclass

from lib import report
from lib.measure import Line, Spread
from lib.rows.beside import ONEFOLD

AIM, BOUND, MISSED, REPORT, NOT_MEASURED = "aim", "bound", "missed", "report", "not measured"


@dataclass(frozen=True)
class ImageLine(Line):
    """A line whose ratio is written Onefold / other, as the goals are."""

    # What is wanted at least, and what we aim at: of the ratio, or of Onefold's figure where no other program is named.
    bound: float | None = None
    aim: float | None = None
    # What the other programs of the line are, such as "smallest peer"; empty where Onefold stands alone.
    beside: str = ""

    def reached(self, value):
        """Returns which goal a value reaches."""
        if self.bound is None:
            return REPORT

        def is_reached(goal):
            return value >= goal if self.higher_is_better else value <= goal

        if self.aim is not None and is_reached(self.aim):
            return AIM
        return BOUND if is_reached(self.bound) else MISSED

    def goals(self):
        """Returns "bound / aim" as the table shows them."""
        if self.bound is None:
            return REPORT
        unit = "x" if self.beside or self.unit == "x" else f" {self.unit}" if self.unit else ""
        goals = [goal for goal in (self.bound, self.aim) if goal is not None]
        sign = "≥" if self.higher_is_better else "≤"
        return f"{sign} {' / '.join(f'{goal:,g}{unit}' for goal in goals)}"


def best_other(result):
    """Returns the side, other than Onefold, with the best median of a line; None where there is no other side."""
    spreads = {side: result.spread(side) for side in result.samples if side != ONEFOLD}
    if not spreads:
        return None
    choose = max if result.line.higher_is_better else min
    return choose(spreads, key=lambda side: spreads[side].median)


def ratio(result):
    """Returns the Spread of Onefold / best other side over the rounds; None where one of them is missing."""
    other = best_other(result)
    if other is None:
        return None
    pairs = zip(result.samples.get(ONEFOLD, []), result.samples[other])
    return Spread.of(sample.value / others.value for sample, others in pairs if others.value)


def judged(result):
    """Returns the value that the goals are of; None where it was not measured."""
    spread = ratio(result) if result.line.beside else result.spread(ONEFOLD)
    return spread.median if spread else None


def verdict(result):
    """Returns the goal that a line reaches, in the words of the table. What was not measured never passes."""
    value = judged(result)
    return NOT_MEASURED if value is None else result.line.reached(value)


def other_text(result):
    other = best_other(result)
    if other is None:
        return ""
    beside = f" ({result.line.beside})" if result.line.beside else ""
    return f"{report.with_unit(result.spread(other), result.line.unit)}, `{other}`{beside}"


# Columns of the table after "what".
COLUMNS = (
    ("Onefold", report.figure_of(ONEFOLD)),
    ("beside it", other_text),
    ("Onefold / it", lambda result: report.with_unit(ratio(result), "x")),
    ("bound / aim", lambda result: result.line.goals()),
    ("reached", verdict),
)

"""Charts as SVG: bars with whiskers, and lines; they follow the reader's light or dark scheme.

Bars lie on their side, so that a label of any sensible length has its place: labels on the left, figures on the right,
bars between them. No text is where a bar or another text can come.
"""

from dataclasses import dataclass
from html import escape

from lib.report import number

WIDTH = 840
MARGIN = 20
LABEL_WIDTH = 190
FIGURE_WIDTH = 200
PLOT_LEFT = MARGIN + LABEL_WIDTH
PLOT_RIGHT = WIDTH - MARGIN - FIGURE_WIDTH
BAR = 18
GROUP_GAP = 12
LEGEND_STEP = 22
TICKS = 5
# Times a power of ten.
TICK_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
LINE_PLOT_HEIGHT = 320
# Of the colours below.
SERIES_MAX = 6

STYLE = """
text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-size: 17px; font-weight: 600; }
.note, .tick { fill: #57606a; font-size: 13px; }
.back { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.whisker { stroke: #1f2328; stroke-width: 1.5; fill: none; }
.line { fill: none; stroke-width: 2.5; }
.f0 { fill: #2f6fb5; } .s0 { stroke: #2f6fb5; } .f1 { fill: #d98032; } .s1 { stroke: #d98032; }
.f2 { fill: #3f9a57; } .s2 { stroke: #3f9a57; } .f3 { fill: #8a63b8; } .s3 { stroke: #8a63b8; }
.f4 { fill: #b8446a; } .s4 { stroke: #b8446a; } .f5 { fill: #7d8590; } .s5 { stroke: #7d8590; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note, .tick { fill: #9da7b3; }
  .back { fill: #0d1117; }
  .grid { stroke: #30363d; }
  .whisker { stroke: #e6edf3; }
}
"""


@dataclass
class Bar:
    """One bar: its Spread, or None where there is nothing to show but the words."""

    spread: object
    words: str = ""


@dataclass
class BarPanel:
    """Groups of bars: in each group one bar for each of the series, whose names are the legend."""

    title: str
    unit: str
    series: list
    # Pairs of a label and its Bars, one for each series (None leaves its place out).
    groups: list
    note: str = ""


@dataclass
class LinePanel:
    """Lines over whole numbers: `lines` are pairs of a name and {x: Spread}."""

    title: str
    unit: str
    x_title: str
    lines: list
    note: str = ""


def document(panels):
    """Returns a whole SVG document, the panels one below the other."""
    parts, top = [], MARGIN
    for panel in panels:
        draw = bar_panel if isinstance(panel, BarPanel) else line_panel
        drawn, height = draw(panel, top)
        parts += drawn
        top += height + MARGIN
    title = escape("; ".join(panel.title for panel in panels))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}"'
    body = [f'<rect class="back" width="{WIDTH}" height="{top}"/>', *parts]
    return "\n".join([f'{head} role="img">', f"<title>{title}</title>", f"<style>{STYLE}</style>", *body, "</svg>", ""])


def bar_panel(panel, top):
    parts, y = heading(panel, top)
    if len(panel.series) > 1:
        for index, name in enumerate(panel.series):
            parts.append(f'<rect class="f{index}" x="{PLOT_LEFT}" y="{y}" width="14" height="14"/>')
            parts.append(text(PLOT_LEFT + 22, y + 12, name))
            y += LEGEND_STEP
    bars = [bar for _, group in panel.groups for bar in group if bar and bar.spread]
    end = axis_end(max((bar.spread.high for bar in bars), default=0))
    first, rows = y, []
    for label, group in panel.groups:
        shown = [(index, bar) for index, bar in enumerate(group) if bar]
        y += GROUP_GAP // 2
        rows.append(text(PLOT_LEFT - 10, y + len(shown) * BAR / 2 + 5, label, anchor="end"))
        for index, bar in shown:
            rows += one_bar(bar, index, y, end)
            y += BAR
        y += GROUP_GAP // 2
    for tick in ticks(end):
        x = PLOT_LEFT + tick / end * (PLOT_RIGHT - PLOT_LEFT)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{first}" x2="{x:.1f}" y2="{y}"/>')
        parts.append(text(x, y + 17, tick_text(tick), "tick", "middle"))
    return parts + rows, y + 24 - top


def one_bar(bar, index, y, end):
    scale = (PLOT_RIGHT - PLOT_LEFT) / end
    figure_x = PLOT_RIGHT + 14
    if bar.spread is None:
        return [text(figure_x, y + BAR / 2 + 5, bar.words, "note")]
    width, middle = bar.spread.median * scale, y + BAR / 2
    parts = [f'<rect class="f{index}" x="{PLOT_LEFT}" y="{y + 1}" width="{width:.1f}" height="{BAR - 2}"/>']
    if bar.spread.low < bar.spread.high:
        low, high = (PLOT_LEFT + value * scale for value in (bar.spread.low, bar.spread.high))
        ends = "".join(f"M{x:.1f} {middle - 4}v8" for x in (low, high))
        parts.append(f'<path class="whisker" d="M{low:.1f} {middle}H{high:.1f}{ends}"/>')
    return [*parts, text(figure_x, middle + 5, f"{number(bar.spread.median)} {bar.words}".strip())]


def line_panel(panel, top):
    parts, y = heading(panel, top)
    values = [spread for _, points in panel.lines for spread in points.values()]
    places = sorted({x for _, points in panel.lines for x in points})
    end = axis_end(max((spread.high for spread in values), default=0))
    left, right = MARGIN + 60, PLOT_RIGHT
    # The uppermost tick's label reaches half its height above the plot.
    y += 8
    bottom = y + LINE_PLOT_HEIGHT

    def at(place, value):
        x = left + (places.index(place) + 0.5) / len(places) * (right - left)
        return x, bottom - value / end * LINE_PLOT_HEIGHT

    for tick in ticks(end):
        height = bottom - tick / end * LINE_PLOT_HEIGHT
        parts.append(f'<line class="grid" x1="{left}" y1="{height:.1f}" x2="{right}" y2="{height:.1f}"/>')
        parts.append(text(left - 8, height + 5, tick_text(tick), "tick", "end"))
    for place in places:
        parts.append(text(at(place, 0)[0], bottom + 18, str(place), "tick", "middle"))
    parts.append(text((left + right) / 2, bottom + 40, panel.x_title, "note", "middle"))
    for index, (name, points) in enumerate(panel.lines):
        # Whiskers of two lines at one place stand side by side.
        aside = (index - (len(panel.lines) - 1) / 2) * 7
        corners = []
        for place, spread in sorted(points.items()):
            x, height = at(place, spread.median)
            x += aside
            corners.append(f"{x:.1f},{height:.1f}")
            low, high = at(place, spread.low)[1], at(place, spread.high)[1]
            if low > high:
                ends = "".join(f"M{x - 3:.1f} {level:.1f}h6" for level in (low, high))
                parts.append(f'<path class="whisker" d="M{x:.1f} {low:.1f}V{high:.1f}{ends}"/>')
            parts.append(f'<circle class="f{index}" cx="{x:.1f}" cy="{height:.1f}" r="4"/>')
        parts.append(f'<polyline class="line s{index}" points="{" ".join(corners)}"/>')
        legend = y + index * LEGEND_STEP
        parts.append(f'<rect class="f{index}" x="{right + 24}" y="{legend}" width="14" height="14"/>')
        parts.append(text(right + 46, legend + 12, name))
    return parts, bottom + 48 - top


def heading(panel, top):
    """Returns the title, the unit and the note, and where the next thing may begin."""
    parts = [text(MARGIN, top + 16, f"{panel.title}, {panel.unit}", "title")]
    y = top + 30
    if panel.note:
        parts.append(text(MARGIN, y + 10, panel.note, "note"))
        y += 22
    return parts, y


def axis_end(highest):
    """Returns the end of an axis: ticks at round numbers, as far as it takes to hold the highest value."""
    if highest <= 0:
        return 1.0
    step = 1e-6
    while True:
        for factor in TICK_STEPS:
            if step * factor * TICKS >= highest:
                return step * factor * TICKS
        step *= 10


def ticks(end):
    return [end * index / TICKS for index in range(TICKS + 1)]


def tick_text(value):
    return f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"


def text(x, y, words, css="", anchor="start"):
    style = f' class="{css}"' if css else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'

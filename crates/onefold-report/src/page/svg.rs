//! Pieces of SVG for all figures. Text is escaped here and nowhere else.

use std::fmt::{Display, Write};

use onefold_block::shown::{ShownText, is_hidden};

/// Width of every figure, in its own units. It is small, so that text is readable on a phone.
pub(super) const WIDTH: f64 = 480.0;

/// Returns text escaped for a page.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Some browsers stop at control characters, and others change the direction of the text beside them.
            character if is_hidden(character) => {
                // Writing into a string does not fail.
                let _ = write!(escaped, "{}", ShownText::line(character.encode_utf8(&mut [0; 4])));
            }
            character => escaped.push(character),
        }
    }
    escaped
}

/// Returns a text shortened to `count` characters. The end stays, because it distinguishes names in one folder. Escapes
/// count with their displayed length.
pub(super) fn shortened(text: &str, count: usize) -> String {
    let text = ShownText::line(text).to_string();
    let length = text.chars().count();
    if length <= count {
        return text;
    }
    let end: String = text.chars().skip(length + 1 - count).collect();
    format!("\u{2026}{end}")
}

/// Alignment of a text relative to its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A drawing whose height grows as elements are added.
pub(super) struct Drawing {
    body: String,
    /// Names the figure for screen readers.
    title: String,
    id: &'static str,
    class: &'static str,
    width: f64,
}

impl Drawing {
    pub(super) fn new(id: &'static str, title: &str) -> Drawing {
        Drawing::sized(id, "", title, WIDTH)
    }

    /// Returns a drawing with a different width, in its own units.
    pub(super) fn sized(id: &'static str, class: &'static str, title: &str, width: f64) -> Drawing {
        Drawing { body: String::new(), title: title.to_owned(), id, class, width }
    }

    fn add(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing into a string does not fail.
        let _ = self.body.write_fmt(piece);
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let (text, anchor) = (escape(text), anchor.name());
        self.add(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(r#"<line class="grid" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }

    /// Draws a bar that represents `value`. A pointer shows `tip`.
    pub(super) fn bar(&mut self, place: [f64; 4], class: &str, value: impl Display, tip: &str) {
        let ([x, y, width, height], tip) = (place, escape(tip));
        self.add(format_args!(
            r#"<rect class="{class}" x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" data-value="{value}"><title>{tip}</title></rect>"#
        ));
    }

    /// Draws a cell whose darkness represents `part`, from 0 to 1.
    pub(super) fn cell(&mut self, place: [f64; 4], part: f64, tip: &str) {
        let ([x, y, width, height], tip) = (place, escape(tip));
        self.add(format_args!(
            r#"<rect class="cell" x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill-opacity="{:.4}" data-value="{part:.6}"><title>{tip}</title></rect>"#,
            0.04 + 0.96 * part
        ));
    }

    /// Draws a rectangle filled according to `class`. Its area represents `value`.
    pub(super) fn tile(&mut self, place: [f64; 4], class: &str, value: impl Display, tip: &str) {
        let ([x, y, width, height], tip) = (place, escape(tip));
        self.add(format_args!(
            r#"<rect class="{class}" x="{x:.4}" y="{y:.4}" width="{width:.4}" height="{height:.4}" data-value="{value}"><title>{tip}</title></rect>"#
        ));
    }

    /// Draws the edges of tiles that belong together. The area inside represents `value`.
    pub(super) fn outline(&mut self, place: [f64; 4], class: &str, value: impl Display) {
        let [x, y, width, height] = place;
        self.add(format_args!(
            r#"<rect class="{class}" x="{x:.4}" y="{y:.4}" width="{width:.4}" height="{height:.4}" data-value="{value}"/>"#
        ));
    }

    /// Draws the background of a text.
    pub(super) fn plate(&mut self, place: [f64; 4]) {
        let [x, y, width, height] = place;
        self.add(format_args!(
            r#"<rect class="plate" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    /// Draws a curve through points, each with the value that it represents.
    pub(super) fn curve(&mut self, series: usize, points: &[(f64, f64, String)]) {
        let corners: Vec<String> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(r#"<polyline class="curve s{series}" points="{}"/>"#, corners.join(" ")));
        for (x, y, value) in points {
            let (value, tip) = (escape(value), escape(value));
            self.add(format_args!(
                r#"<circle class="f{series}" cx="{x:.1}" cy="{y:.1}" r="3" data-value="{value}"><title>{tip}</title></circle>"#
            ));
        }
    }

    /// Draws the legend of colours, one below the other. Returns where the next element may begin.
    pub(super) fn legend(&mut self, mut y: f64, names: &[&str]) -> f64 {
        for (series, name) in names.iter().enumerate() {
            self.add(format_args!(r#"<rect class="f{series}" x="8" y="{y:.1}" width="12" height="12"/>"#));
            self.text(26.0, y + 11.0, Anchor::Start, "", name);
            y += 20.0;
        }
        y
    }

    /// Returns the whole figure with this height.
    pub(super) fn finish(self, height: f64) -> String {
        let (title, id, width) = (escape(&self.title), self.id, self.width);
        let class = if self.class.is_empty() { String::new() } else { format!(" class=\"{}\"", self.class) };
        format!(
            "<svg id=\"{id}\"{class} viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{}</svg>",
            self.body
        )
    }
}

/// Returns round numbers from 0 to at least `highest`, five at most.
pub(super) fn ticks(highest: f64) -> Vec<f64> {
    if highest.is_nan() || highest <= 0.0 {
        return vec![0.0, 1.0];
    }
    let power = 10_f64.powf((highest / 4.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| step * 4.0 >= highest);
    let step = step.unwrap_or(power * 10.0);
    (0..=4).map(|tick| f64::from(tick) * step).take_while(|tick| *tick < highest + step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_page() {
        assert_eq!(escape("<b a=\"1\">&\u{7}"), "&lt;b a=&quot;1&quot;&gt;&amp;\\x07");
        let mut drawing = Drawing::new("x", "a<b");
        drawing.text(0.0, 0.0, Anchor::Start, "", "</svg><script>");
        drawing.bar([0.0; 4], "f0", 1, "\"><script>");
        let svg = drawing.finish(10.0);
        assert!(!svg.contains("<script") && svg.matches("</svg>").count() == 1, "{svg}");
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("/images/debian-12.raw", 10), "\u{2026}an-12.raw");
        assert_eq!(shortened("äöü", 2), "\u{2026}ü");
        assert_eq!(shortened(&"\u{1b}".repeat(10), 5), "\u{2026}\\x1b");
    }

    #[test]
    fn ticks_are_round_and_reach_the_highest_value() {
        assert_eq!(ticks(100.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(ticks(7.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        for highest in [0.001, 1.0, 3.3, 999.0, 1e15] {
            let ticks = ticks(highest);
            assert!(ticks.len() <= 5 && ticks.last().is_some_and(|last| *last >= highest), "{highest}: {ticks:?}");
        }
    }
}

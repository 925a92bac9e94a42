//! The figures of a report.

use onefold_block::size::human;

use crate::analysis::{Analysis, BlockSize, GroupReport, ImageReport};
use crate::page::svg::{Anchor, Drawing, WIDTH, shortened, ticks};
use crate::sampled_analysis::{Range, SampledBlockSize, SampledWays};

const LEFT: f64 = 54.0;
const RIGHT: f64 = WIDTH - 14.0;
const PLOT_HEIGHT: f64 = 220.0;
/// Maximum number of images that are drawn individually. The table has the whole list.
const BARS_MAX: usize = 100;

/// Returns `part` as a percentage of `whole`.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A plot with axes, which converts values to places on both of them.
struct Plot {
    top: f64,
    x_count: usize,
    y_max: f64,
}

impl Plot {
    /// Draws axes below `top`: `places` from left to right, and round numbers on the vertical axis.
    fn draw(drawing: &mut Drawing, top: f64, places: &[String], highest: f64, unit: &dyn Fn(f64) -> String) -> Plot {
        let ticks = ticks(highest);
        let plot = Plot { top, x_count: places.len(), y_max: ticks.last().copied().unwrap_or(1.0) };
        for tick in ticks {
            drawing.line((LEFT, plot.y(tick)), (RIGHT, plot.y(tick)));
            drawing.text(LEFT - 6.0, plot.y(tick) + 4.0, Anchor::End, "tick", &unit(tick));
        }
        // Only as many names as there is room for.
        let step = places.len().div_ceil(9).max(1);
        for (at, place) in places.iter().enumerate().step_by(step) {
            drawing.text(plot.x(at), plot.bottom() + 17.0, Anchor::Middle, "tick", place);
        }
        plot
    }

    fn bottom(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }

    fn x(&self, at: usize) -> f64 {
        LEFT + (at as f64 + 0.5) / self.x_count.max(1) as f64 * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - value / self.y_max * PLOT_HEIGHT
    }
}

fn percent_tick(value: f64) -> String {
    format!("{value:.0} %")
}

/// Returns a size in a short form for an axis.
fn size_tick(value: f64) -> String {
    let units = ["B", "K", "M", "G", "T", "P"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value >= 10.0 || value.fract() < 0.05 {
        format!("{value:.0}{}", units[unit])
    } else {
        format!("{value:.1}{}", units[unit])
    }
}

/// Savings by block size, beside what linked clones could save (DeDe's Figure 5).
pub(super) fn block_sizes(sizes: &[BlockSize]) -> String {
    let mut drawing = Drawing::new("figure-block-sizes", "Savings by block size");
    let top =
        drawing.legend(6.0, &["saved by sharing equal blocks", "the same, metadata counted", "linked clones, at most"]);
    let places: Vec<String> = sizes.iter().map(|size| size_tick(size.block_bytes as f64)).collect();
    let plot = Plot::draw(&mut drawing, top + 12.0, &places, 100.0, &percent_tick);
    let lines: [&dyn Fn(&BlockSize) -> u64; 3] =
        [&|size| size.saved_bytes, &|size| size.saved_bytes.saturating_sub(size.metadata_bytes), &|size| {
            size.nonzero_bytes.saturating_sub(size.linked_clone_bytes)
        }];
    for (series, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64, String)> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| {
                let value = percent(line(size), size.nonzero_bytes);
                (plot.x(at), plot.y(value), format!("{value:.2}"))
            })
            .collect();
        drawing.curve(series, &points);
    }
    drawing.finish(plot.bottom() + 26.0)
}

/// How often blocks repeat (DeDe's Figure 6), for four of the sizes.
pub(super) fn repeats(sizes: &[BlockSize]) -> String {
    let mut drawing = Drawing::new("figure-repeats", "How often blocks are there");
    let shown: Vec<&BlockSize> =
        sizes.iter().filter(|size| [4, 16, 64, 1024].contains(&(size.block_bytes >> 10))).collect();
    let names: Vec<String> = shown.iter().map(|size| format!("blocks of {}", human(size.block_bytes))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let top = drawing.legend(6.0, &names);
    let longest = shown.iter().map(|size| size.repeats.len()).max().unwrap_or(0);
    let places: Vec<String> = (0..longest).map(|class| class_name(1_u64 << class.min(63))).collect();
    let plot = Plot::draw(&mut drawing, top + 12.0, &places, 100.0, &percent_tick);
    for (series, size) in shown.iter().enumerate() {
        let all = size.repeats.last().map_or(0, |point| point.blocks);
        let points: Vec<(f64, f64, String)> = size
            .repeats
            .iter()
            .enumerate()
            .map(|(at, point)| {
                let value = percent(point.blocks, all);
                (plot.x(at), plot.y(value), format!("{value:.2}"))
            })
            .collect();
        drawing.curve(series, &points);
    }
    drawing.text((LEFT + RIGHT) / 2.0, plot.bottom() + 36.0, Anchor::Middle, "tick", "occurrences, at most");
    drawing.finish(plot.bottom() + 46.0)
}

fn class_name(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1000),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// Composition of each image.
pub(super) fn images(images: &[ImageReport]) -> String {
    let mut drawing = Drawing::new("figure-images", "What each image consists of");
    let mut y = drawing.legend(6.0, &["only here", "shared with others", "repeated within", "zeros"]);
    let longest = images.iter().map(|image| image.apparent_bytes).max().unwrap_or(0);
    for image in images.iter().take(BARS_MAX) {
        y += 20.0;
        drawing.text(8.0, y, Anchor::Start, "", &shortened(&image.name, 36));
        drawing.text(RIGHT, y, Anchor::End, "tick", &human(image.apparent_bytes));
        y += 6.0;
        let mut x = 8.0;
        let parts =
            [image.only_here_bytes, image.shared_with_others_bytes, image.repeated_within_bytes, image.zero_bytes];
        for (series, bytes) in parts.into_iter().enumerate() {
            let width = percent(bytes, longest) / 100.0 * (RIGHT - 8.0);
            let class = if series == 3 { "zero".to_owned() } else { format!("f{series}") };
            drawing.bar([x, y, width, 12.0], &class, bytes, &human(bytes));
            x += width;
        }
        y += 14.0;
    }
    if images.len() > BARS_MAX {
        y += 20.0;
        drawing.text(8.0, y, Anchor::Start, "tick", &format!("and {} more", images.len() - BARS_MAX));
    }
    drawing.finish(y + 8.0)
}

/// How storage grows as images are added (LiveDFS, Figure 10a).
pub(super) fn growth(found: &Analysis) -> String {
    let mut drawing = Drawing::new("figure-growth", "Storage as images are added");
    let top = drawing.legend(6.0, &["without sharing, zeros left out", "with sharing"]);
    let places: Vec<String> = (1..=found.growth.len()).map(|number| number.to_string()).collect();
    let highest = found.growth.last().map_or(0, |step| step.nonzero_bytes);
    // Round numbers in the matching unit, not in bytes.
    let unit = 1024_f64.powf((highest.max(1) as f64).log(1024.0).floor());
    let label = |value: f64| size_tick(value * unit);
    let plot = Plot::draw(&mut drawing, top + 12.0, &places, highest as f64 / unit, &label);
    let line = |drawing: &mut Drawing, series: usize, of: &dyn Fn(usize) -> u64| {
        let points: Vec<(f64, f64, String)> =
            (0..found.growth.len()).map(|at| (plot.x(at), plot.y(of(at) as f64 / unit), of(at).to_string())).collect();
        drawing.curve(series, &points);
    };
    line(&mut drawing, 0, &|at| found.growth[at].nonzero_bytes);
    line(&mut drawing, 1, &|at| found.growth[at].distinct_bytes);
    drawing.text((LEFT + RIGHT) / 2.0, plot.bottom() + 36.0, Anchor::Middle, "tick", "images, in the given order");
    drawing.finish(plot.bottom() + 46.0)
}

/// An average image of each group (LiveDFS, Figure 10b).
pub(super) fn groups(groups: &[GroupReport]) -> String {
    let mut drawing = Drawing::new("figure-groups", "An average image of each group");
    let mut y = drawing.legend(6.0, &["without sharing, zeros left out", "with sharing within the group"]);
    let average = |bytes: u64, group: &GroupReport| bytes.checked_div(group.images).unwrap_or(0);
    let longest = groups.iter().map(|group| average(group.nonzero_bytes, group)).max().unwrap_or(0);
    for group in groups {
        y += 20.0;
        drawing.text(8.0, y, Anchor::Start, "", &shortened(&group.name, 36));
        y += 6.0;
        for (series, bytes) in [group.nonzero_bytes, group.distinct_bytes].into_iter().enumerate() {
            let bytes = average(bytes, group);
            let width = percent(bytes, longest) / 100.0 * (RIGHT - 100.0);
            drawing.bar([8.0, y, width, 12.0], &format!("f{series}"), bytes, &human(bytes));
            drawing.text(width + 16.0, y + 11.0, Anchor::Start, "tick", &human(bytes));
            y += 15.0;
        }
    }
    drawing.finish(y + 8.0)
}

/// Similarity of images to each other.
pub(super) fn similarity(found: &Analysis) -> String {
    let mut drawing = Drawing::new("figure-similarity", "Which images resemble which");
    let similarity = &found.similarity;
    let count = similarity.order.len().max(1);
    let (left, top) = (30.0, 24.0);
    let side = (RIGHT - left) / count as f64;
    // Names would not fit: the numbers are those in the table of images.
    let step = count.div_ceil(20);
    for (row, &one) in similarity.order.iter().enumerate() {
        let at = top + row as f64 * side;
        if row % step == 0 {
            let number = (one + 1).to_string();
            drawing.text(left - 5.0, at + side / 2.0 + 4.0, Anchor::End, "tick", &number);
            drawing.text(left + (row as f64 + 0.5) * side, top - 7.0, Anchor::Middle, "tick", &number);
        }
        for (column, &other) in similarity.order.iter().enumerate() {
            let part = similarity.likeness[row][column];
            let tip = format!(
                "{} and {}: {:.1} %, {} in common",
                found.images[one].name,
                found.images[other].name,
                part * 100.0,
                human(similarity.common_bytes[row][column])
            );
            drawing.cell([left + column as f64 * side, at, side - 1.0, side - 1.0], part, &tip);
        }
    }
    drawing.finish(top + count as f64 * side + 6.0)
}

/// Lengths of the runs of shared blocks.
pub(super) fn runs(found: &Analysis) -> String {
    let mut drawing = Drawing::new("figure-runs", "Shared data by the length of its runs");
    let lengths = &found.runs.lengths;
    let places: Vec<String> = lengths.iter().map(|class| size_tick(class.at_most_bytes as f64)).collect();
    let part = |bytes: u64| percent(bytes, found.runs.shared_bytes);
    let highest = lengths.iter().map(|class| part(class.shared_bytes)).fold(1.0, f64::max);
    let plot = Plot::draw(&mut drawing, 14.0, &places, highest, &percent_tick);
    let width = (RIGHT - LEFT) / lengths.len().max(1) as f64 * 0.7;
    for (at, class) in lengths.iter().enumerate() {
        let value = part(class.shared_bytes);
        let place = [plot.x(at) - width / 2.0, plot.y(value), width, plot.bottom() - plot.y(value)];
        let tip = format!("{value:.1} %, {} in {} runs", human(class.shared_bytes), class.runs);
        drawing.bar(place, "f0", class.shared_bytes, &tip);
    }
    drawing.text((LEFT + RIGHT) / 2.0, plot.bottom() + 36.0, Anchor::Middle, "tick", "length of the run, at most");
    drawing.finish(plot.bottom() + 46.0)
}

/// Space that each way of storing the images would take.
pub(super) fn ways(found: &Analysis) -> String {
    let mut drawing = Drawing::new("figure-ways", "What each way of storing takes");
    let ways = &found.ways;
    let rows = [
        ("as they are now", ways.now_bytes),
        ("in a pool, metadata included", ways.pool_bytes),
        ("shared in place, plain files only", ways.sharing_bytes),
        ("as linked clones, at the least", ways.linked_clone_bytes),
    ];
    let longest = rows.iter().map(|row| row.1).max().unwrap_or(0);
    let mut y = 0.0;
    for (series, (name, bytes)) in rows.into_iter().enumerate() {
        y += 20.0;
        drawing.text(8.0, y, Anchor::Start, "", name);
        drawing.text(RIGHT, y, Anchor::End, "", &human(bytes));
        y += 6.0;
        let width = percent(bytes, longest) / 100.0 * (RIGHT - 8.0);
        let class = if series == 1 { "f1" } else { "f0" };
        drawing.bar([8.0, y, width, 16.0], class, bytes, &human(bytes));
        y += 20.0;
    }
    drawing.finish(y + 6.0)
}

/// Space that each way of storing would take according to a sample: the certain minimum, then the uncertain part.
pub(super) fn sampled_ways(ways: &SampledWays) -> String {
    let mut drawing = Drawing::new("figure-ways", "What each way of storing takes");
    let now = Range { low: ways.now_bytes, best: ways.now_bytes, high: ways.now_bytes };
    let mut rows = vec![("as they are now", now), ("in a pool, metadata included", ways.pool_bytes)];
    rows.extend(ways.sharing_bytes.map(|sharing| ("shared in place", sharing)));
    rows.push(("as linked clones, at the least", ways.linked_clone_bytes));
    let longest = rows.iter().map(|row| row.1.high).max().unwrap_or(0);
    let mut y = 0.0;
    for (series, (name, range)) in rows.into_iter().enumerate() {
        y += 20.0;
        drawing.text(8.0, y, Anchor::Start, "", name);
        drawing.text(RIGHT, y, Anchor::End, "", &range_text(range));
        y += 6.0;
        let width = |bytes: u64| percent(bytes, longest) / 100.0 * (RIGHT - 8.0);
        let class = if series == 1 { "f1" } else { "f0" };
        drawing.bar([8.0, y, width(range.low), 16.0], class, range.low, &human(range.low));
        let open = range.high - range.low;
        let place = [8.0 + width(range.low), y, width(open), 16.0];
        drawing.bar(place, &format!("{class} open"), open, &format!("up to {}", human(range.high)));
        y += 20.0;
    }
    drawing.finish(y + 6.0)
}

/// Returns a range as text.
pub(super) fn range_text(range: Range) -> String {
    if range.low == range.high { human(range.low) } else { format!("{} to {}", human(range.low), human(range.high)) }
}

/// Savings by block size, estimated from a sample.
pub(super) fn sampled_block_sizes(sizes: &[SampledBlockSize]) -> String {
    let mut drawing = Drawing::new("figure-block-sizes", "Savings by block size");
    let top = drawing.legend(6.0, &["saved, the best guess", "at the least", "at the most"]);
    let places: Vec<String> = sizes.iter().map(|size| size_tick(size.block_bytes as f64)).collect();
    let plot = Plot::draw(&mut drawing, top + 12.0, &places, 100.0, &percent_tick);
    let lines: [&dyn Fn(&SampledBlockSize) -> f64; 3] =
        [&|size| size.saved_share.best, &|size| size.saved_share.low, &|size| size.saved_share.high];
    for (series, line) in lines.iter().enumerate() {
        let points: Vec<(f64, f64, String)> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| (plot.x(at), plot.y(line(size) * 100.0), format!("{:.2}", line(size) * 100.0)))
            .collect();
        drawing.curve(series, &points);
    }
    drawing.finish(plot.bottom() + 26.0)
}

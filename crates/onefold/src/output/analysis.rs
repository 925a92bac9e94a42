//! Result of an analysis, as tables and as JSON.

use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_block::size::percent;
use onefold_report::{Analysis, BlockSize, Effort, SkippedImage};
use serde_json::{Value, json};

use super::TextTable;
use crate::progress::duration;
use crate::size::{grouped, human};

/// Time and memory of an analysis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// The most memory that was in use, where the kernel tells.
    pub(crate) memory_peak_bytes: Option<u64>,
}

/// Returns all findings for machines.
pub(crate) fn json(found: &Analysis, cost: &Cost) -> Value {
    with_cost(json!(found), cost)
}

/// Adds what only the process knows of its effort.
pub(super) fn with_cost(mut value: Value, cost: &Cost) -> Value {
    value["effort"]["seconds"] = json!(cost.seconds);
    value["effort"]["memory_peak_bytes"] = json!(cost.memory_peak_bytes);
    value
}

/// How much of the findings the text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Details {
    /// The answer, and what was asked for by an option of its own.
    LeftOut,
    /// All of them.
    Shown,
}

/// Returns the findings for people, the answer first. The other findings follow with `details`.
pub(crate) fn text(found: &Analysis, cost: &Cost, details: Details) -> String {
    let mut parts = vec![ways(found)];
    if details == Details::Shown {
        parts.push(images(found));
        parts.push(block_sizes(&found.block_sizes, found.total.apparent_bytes));
    } else {
        parts.extend(changed_warnings(changed(found)));
    }
    parts.extend(shifts(found));
    if details == Details::Shown {
        parts.extend(realignment(found));
    }
    parts.extend(groups(found));
    if details == Details::Shown {
        parts.extend(repeats(found));
        parts.extend(alike(found));
        parts.extend(runs(found));
    }
    parts.extend(found.files.as_ref().map(super::files::text));
    parts.extend(left_out(&found.left_out));
    parts.push(ending(&found.effort, cost, details));
    parts.join("\n\n")
}

/// Returns the names of images that were written while they were read.
fn changed(found: &Analysis) -> impl Iterator<Item = &str> {
    found.images.iter().filter(|image| image.changed_meanwhile).map(|image| image.name.as_str())
}

/// Returns a warning for each image that was written while it was read.
pub(super) fn changed_warnings<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let warning =
        |name: &str| format!("warning: {} was written meanwhile; its numbers are of no single moment", name.shown());
    let lines: Vec<String> = names.map(warning).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Returns the last part: what the analysis took, and where the rest is.
pub(super) fn ending(took: &Effort, cost: &Cost, details: Details) -> String {
    let rest = match details {
        Details::Shown => "",
        Details::LeftOut => {
            "\n`--details` shows the findings for each image; `--report FILE` writes a page with figures"
        }
    };
    format!("{}{rest}", effort(took, cost))
}

fn images(found: &Analysis) -> String {
    let mut table = TextTable::new(["image", "apparent", "zero", "repeated", "shared", "only here", "to keep it"]);
    for image in &found.images {
        table.row([
            image.name.shown().to_string(),
            human(image.apparent_bytes),
            human(image.zero_bytes),
            human(image.repeated_within_bytes),
            human(image.shared_with_others_bytes),
            human(image.only_here_bytes),
            human(image.marginal_bytes),
        ]);
    }
    let total = &found.total;
    let mut text = format!(
        "{table}\napparent = zero + repeated within the image + shared with others + only here; what it takes a pool to \
         keep the\nimage besides all others includes metadata, and nearly all of it comes back when the image is deleted\
         \n\nall: apparent {} = zero {} + distinct {} + saved {} ({} of what is not zero)",
        human(total.apparent_bytes),
        human(total.zero_bytes),
        human(total.distinct_bytes),
        human(total.saved_bytes),
        percent(total.saved_bytes, total.distinct_bytes + total.saved_bytes),
    );
    if let Some(warnings) = changed_warnings(changed(found)) {
        text.push('\n');
        text.push_str(&warnings);
    }
    text
}

fn block_sizes(sizes: &[BlockSize], apparent_bytes: u64) -> String {
    let mut table =
        TextTable::new(["blocks of", "stored", "saved", "zeros too", "with metadata", "linked clones", "saved"]);
    for size in sizes {
        table.row([
            human(size.block_bytes),
            human(size.distinct_bytes),
            percent(size.saved_bytes, size.nonzero_bytes),
            percent(apparent_bytes.saturating_sub(size.distinct_bytes), apparent_bytes),
            human(size.distinct_bytes + size.metadata_bytes),
            human(size.linked_clone_bytes),
            percent(size.nonzero_bytes.saturating_sub(size.linked_clone_bytes), size.nonzero_bytes),
        ]);
    }
    format!(
        "{table}\nsaved: of what is not zero, and with zeros counted; linked clones share equal blocks at equal offsets, and need no less"
    )
}

fn shifts(found: &Analysis) -> Option<String> {
    let own = found.block_sizes.first()?;
    if found.shifts.is_empty() {
        return None;
    }
    let mut table = TextTable::new(["all images moved by", "stored at 4 KiB", "saved"]);
    let mut row = |moved: u64, size: &BlockSize| {
        table.row([format!("{moved} B"), human(size.distinct_bytes), percent(size.saved_bytes, size.nonzero_bytes)]);
    };
    row(0, own);
    for shift in &found.shifts {
        if let Some(size) = shift.block_sizes.first() {
            row(shift.shift_bytes, size);
        }
    }
    Some(table.to_string())
}

fn realignment(found: &Analysis) -> Option<String> {
    let moved = &found.realignment;
    let first = moved.misaligned.first()?;
    let what = match moved.gained_bytes {
        0 => "moving them to whole blocks would save nothing more".to_owned(),
        bytes => format!("moving them to whole blocks would save {} more", human(bytes)),
    };
    Some(format!(
        "partitions that begin inside a block of 4 KiB: {} (the first at byte {} of {}); {what}",
        grouped(moved.misaligned.len() as u64),
        grouped(first.start_bytes),
        first.image.shown()
    ))
}

fn groups(found: &Analysis) -> Option<String> {
    if found.groups.is_empty() {
        return None;
    }
    let mut table = TextTable::new(["group", "images", "average image", "average stored", "saved within"]);
    for group in &found.groups {
        let average = |bytes: u64| human(bytes.checked_div(group.images).unwrap_or(0));
        table.row([
            group.name.shown().to_string(),
            grouped(group.images),
            average(group.nonzero_bytes),
            average(group.distinct_bytes),
            percent(group.nonzero_bytes - group.distinct_bytes, group.nonzero_bytes),
        ]);
    }
    Some(table.to_string())
}

fn repeats(found: &Analysis) -> Option<String> {
    let own = found.block_sizes.first()?;
    let top = found.top_blocks.first()?;
    let blocks = own.distinct_bytes / own.block_bytes;
    let once = own.repeats.first().map_or(0, |point| point.blocks);
    Some(format!(
        "{} of the distinct blocks occur only once; the most repeated one occurs {} times, first at byte {} of {}",
        percent(once, blocks),
        grouped(top.times),
        grouped(top.offset_bytes),
        top.image.shown()
    ))
}

/// Names for each of the first images the one that it resembles most.
fn alike(found: &Analysis) -> Option<String> {
    let similarity = &found.similarity;
    if similarity.order.len() < 2 {
        return None;
    }
    let mut table = TextTable::new(["image", "most like it", "alike", "in common"]);
    for (row, &one) in similarity.order.iter().enumerate() {
        let others = (0..similarity.order.len()).filter(|&column| column != row);
        let nearest = others.max_by(|&a, &b| similarity.likeness[row][a].total_cmp(&similarity.likeness[row][b]))?;
        table.row([
            found.images[one].name.shown().to_string(),
            found.images[similarity.order[nearest]].name.shown().to_string(),
            format!("{:.1} %", similarity.likeness[row][nearest] * 100.0),
            human(similarity.common_bytes[row][nearest]),
        ]);
    }
    Some(table.to_string())
}

fn runs(found: &Analysis) -> Option<String> {
    let runs = &found.runs;
    if runs.runs == 0 {
        return None;
    }
    let long: u64 =
        runs.lengths.iter().filter(|class| class.at_most_bytes > 64 << 10).map(|class| class.shared_bytes).sum();
    Some(format!(
        "shared blocks lie in {} runs of {} on average; {} of them in runs of more than 64 KiB",
        grouped(runs.runs),
        human(runs.mean_bytes),
        percent(long, runs.shared_bytes)
    ))
}

pub(super) fn left_out(left: &[SkippedImage]) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let lines = left.iter().map(|left| format!("\n  {}: {}", left.name.shown(), ShownText::line(&left.why)));
    Some(format!("{} left out, in no number above:{}", grouped(left.len() as u64), lines.collect::<String>()))
}

/// Returns the last line of a report's page: what made it, and what that took.
pub(crate) fn made(took: &Effort, cost: &Cost) -> String {
    format!("Made by onefold {}, which {}.", env!("CARGO_PKG_VERSION"), effort(took, cost))
}

pub(super) fn effort(took: &Effort, cost: &Cost) -> String {
    let milliseconds = std::time::Duration::try_from_secs_f64(cost.seconds).map_or(0, |time| time.as_millis().max(1));
    let rate = u128::from(took.read_bytes) * 1000 / milliseconds.max(1);
    let mut text = format!(
        "read {} in {} ({}/s)",
        human(took.read_bytes),
        duration(u64::try_from(milliseconds / 1000).unwrap_or(u64::MAX)),
        human(u64::try_from(rate).unwrap_or(u64::MAX))
    );
    if let Some(bytes) = cost.memory_peak_bytes {
        text.push_str(&format!(", at most {} of memory", human(bytes)));
    }
    if took.spilled_bytes > 0 {
        text.push_str(&format!(", {} in temporary files", human(took.spilled_bytes)));
    }
    text
}

fn ways(found: &Analysis) -> String {
    let ways = &found.ways;
    let mut table = TextTable::new(["", "takes", "less than now"]);
    let mut row = |name: &str, bytes: u64| {
        table.row([
            name.to_owned(),
            human(bytes),
            if bytes > ways.now_bytes { "-".to_owned() } else { percent(ways.now_bytes - bytes, ways.now_bytes) },
        ]);
    };
    row("as they are now", ways.now_bytes);
    row("in a pool, metadata included", ways.pool_bytes);
    row("shared in place, plain files only", ways.sharing_bytes);
    row("as linked clones, at the least", ways.linked_clone_bytes);
    format!("{}\n\n{table}", ways.recommendation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_report::{ImageReport, Similarity, SkippedImage, Total, Ways};

    fn found() -> Analysis {
        let image = |name: &str, changed_meanwhile| ImageReport {
            name: name.to_owned(),
            changed_meanwhile,
            apparent_bytes: 100 << 20,
            ..ImageReport::default()
        };
        Analysis {
            total: Total {
                apparent_bytes: 200 << 20,
                distinct_bytes: 30 << 20,
                saved_bytes: 10 << 20,
                ..Total::default()
            },
            images: vec![image("a.raw", false), image("b.raw", true)],
            left_out: vec![SkippedImage { name: "c.raw".into(), why: "it is gone".into() }],
            block_sizes: vec![BlockSize {
                block_bytes: 4096,
                nonzero_bytes: 40 << 20,
                distinct_bytes: 30 << 20,
                saved_bytes: 10 << 20,
                ..BlockSize::default()
            }],
            similarity: Similarity {
                order: vec![0, 1],
                likeness: vec![vec![1.0, 0.25], vec![0.25, 1.0]],
                common_bytes: vec![vec![4096, 1024], vec![1024, 4096]],
            },
            ways: Ways { now_bytes: 100, pool_bytes: 25, recommendation: "Use a pool.".into(), ..Ways::default() },
            ..Analysis::default()
        }
    }

    const COST: Cost = Cost { seconds: 2.0, memory_peak_bytes: Some(5 << 20) };

    #[test]
    fn the_text_begins_with_the_answer_and_says_what_was_not_right() {
        let short = text(&found(), &COST, Details::LeftOut);
        assert!(short.contains("warning: b.raw was written meanwhile") && short.contains("--details"), "{short}");
        assert!(!short.contains("apparent"), "{short}");
        let text = text(&found(), &COST, Details::Shown);
        assert!(text.contains("saved 10.00 MiB (25.0 % of what is not zero)"), "{text}");
        assert!(text.contains("warning: b.raw was written meanwhile"), "{text}");
        assert!(text.contains("1 left out, in no number above:\n  c.raw: it is gone"), "{text}");
        assert!(text.contains("75.0 %"), "{text}");
        assert!(text.starts_with("Use a pool.\n\n"), "{text}");
        assert!(!text.contains("--details"), "{text}");
    }

    #[test]
    fn each_image_has_the_one_that_it_resembles_most() {
        let alike = alike(&found()).unwrap();
        assert_eq!(alike.lines().nth(1), Some("a.raw         b.raw  25.0 %   1.00 KiB"));
    }

    #[test]
    fn the_document_holds_all_findings_and_what_they_took() {
        let json = json(&found(), &COST);
        assert_eq!(json["images"][1]["changed_meanwhile"], true);
        assert_eq!(json["effort"]["seconds"], 2.0);
        assert_eq!(json["effort"]["memory_peak_bytes"], 5 << 20);
        assert_eq!(json["ways"]["pool_bytes"], 25);
    }
}

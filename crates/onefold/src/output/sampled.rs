//! Result of an analysis of a sample, as tables and as JSON. Every estimated figure is a range.

use onefold_block::Show;
use onefold_report::{Range, SampledAnalysis, SampledBlockSize, ShareRange};
use serde_json::{Value, json};

use super::TextTable;
use super::analysis::{Cost, Details, changed_warnings, ending, left_out, with_cost};
use crate::size::{grouped, human};

/// Returns all findings for machines.
pub(crate) fn json(found: &SampledAnalysis, cost: &Cost) -> Value {
    with_cost(json!(found), cost)
}

/// Returns the findings for people, the answer first. The rest of the findings follow with `details`.
pub(crate) fn text(found: &SampledAnalysis, cost: &Cost, details: Details) -> String {
    let mut parts = vec![ways(found), sample(found)];
    if details == Details::Shown {
        parts.extend([images(found), total(found), block_sizes(&found.block_sizes)]);
        parts.extend(misaligned(found));
    } else {
        let changed = found.images.iter().filter(|image| image.changed_meanwhile);
        parts.extend(changed_warnings(changed.map(|image| image.name.as_str())));
    }
    parts.extend(left_out(&found.left_out));
    parts.push(ending(&found.effort, cost, details));
    parts.join("\n\n")
}

fn sample(found: &SampledAnalysis) -> String {
    let mut text = format!("{}\n{}", found.sample, SampledAnalysis::NOT_TOLD);
    if found.sample.is_small {
        text.push_str("\nwarning: these images are too small to be sampled; the ranges say little, and reading all of them is quick");
    }
    text
}

/// Returns the two ends of a range.
fn ends(range: Range) -> [String; 2] {
    [human(range.low), human(range.high)]
}

fn range(range: Range) -> String {
    let [low, high] = ends(range);
    if low == high { low } else { format!("{low} to {high}") }
}

/// Returns a range of parts of a whole.
fn percents(share: ShareRange) -> String {
    format!("{:.1} to {:.1} %", share.low * 100.0, share.high * 100.0)
}

fn images(found: &SampledAnalysis) -> String {
    let mut table = TextTable::new(["image", "apparent", "no hole", "read", "zero"]);
    for image in &found.images {
        table.row([
            image.name.shown().to_string(),
            human(image.apparent_bytes),
            human(image.data_bytes),
            human(image.read_bytes),
            range(image.zero_bytes),
        ]);
    }
    let changed = found.images.iter().filter(|image| image.changed_meanwhile);
    let warnings = changed_warnings(changed.map(|image| image.name.as_str()));
    format!("{table}{}", warnings.map(|lines| format!("\n{lines}")).unwrap_or_default())
}

fn total(found: &SampledAnalysis) -> String {
    let total = &found.total;
    let mut table = TextTable::new(["all", "at least", "best guess", "at most"]);
    let whole = |bytes: u64| Range { low: bytes, best: bytes, high: bytes };
    for (name, range) in [
        ("apparent", whole(total.apparent_bytes)),
        ("zero", total.zero_bytes),
        ("distinct", total.distinct_bytes),
        ("saved", total.saved_bytes),
    ] {
        table.row([name.to_owned(), human(range.low), human(range.best), human(range.high)]);
    }
    let share = total.saved_share;
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    table.row(["saved, of what is not zero".to_owned(), percent(share.low), percent(share.best), percent(share.high)]);
    format!("{table}\napparent = zero + distinct + saved, in the best guess")
}

fn block_sizes(sizes: &[SampledBlockSize]) -> String {
    let mut table = TextTable::new(["blocks of", "stored", "best guess", "saved", "best guess", "linked clones"]);
    for size in sizes {
        table.row([
            human(size.block_bytes),
            range(size.distinct_bytes),
            human(size.distinct_bytes.best),
            percents(size.saved_share),
            format!("{:.1} %", size.saved_share.best * 100.0),
            range(size.linked_clone_bytes),
        ]);
    }
    format!("{table}\nsaved: of what is not zero; linked clones share equal blocks at equal offsets, and need no less")
}

fn misaligned(found: &SampledAnalysis) -> Option<String> {
    let first = found.misaligned.first()?;
    Some(format!(
        "partitions that begin inside a block of 4 KiB: {} (the first at byte {} of {}); what moving them would save is told \
         when all is read",
        grouped(found.misaligned.len() as u64),
        grouped(first.start_bytes),
        first.image
    ))
}

fn ways(found: &SampledAnalysis) -> String {
    let ways = &found.ways;
    let mut table = TextTable::new(["", "takes", "less than now"]);
    let mut row = |name: &str, bytes: Range| {
        let part = |bytes: u64| 100.0 * ways.now_bytes.saturating_sub(bytes) as f64 / ways.now_bytes.max(1) as f64;
        let less = match (part(bytes.high), part(bytes.low)) {
            (low, high) if high <= 0.0 && low <= 0.0 => "-".to_owned(),
            (low, high) => format!("{low:.1} to {high:.1} %"),
        };
        table.row([name.to_owned(), range(bytes), less]);
    };
    row("as they are now", Range { low: ways.now_bytes, best: ways.now_bytes, high: ways.now_bytes });
    row("in a pool, metadata included", ways.pool_bytes);
    if let Some(sharing) = ways.sharing_bytes {
        row("shared in place", sharing);
    }
    row("as linked clones, at the least", ways.linked_clone_bytes);
    format!("{}\n\n{table}", ways.recommendation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_report::{SampleReport, SampledImage, SampledTotal, SampledWays};

    fn found() -> SampledAnalysis {
        let pool_bytes = Range { low: 30, best: 40, high: 50 };
        SampledAnalysis {
            sample: SampleReport {
                regions: 5000,
                regions_read: 204,
                confidence: 0.95,
                is_small: true,
                ..Default::default()
            },
            total: SampledTotal {
                distinct_bytes: Range { low: 1 << 20, best: 3 << 19, high: 2 << 20 },
                saved_share: ShareRange { low: 0.25, best: 0.5, high: 0.625 },
                ..SampledTotal::default()
            },
            images: vec![SampledImage { name: "a.raw".into(), changed_meanwhile: true, ..SampledImage::default() }],
            ways: SampledWays {
                now_bytes: 100,
                pool_bytes,
                recommendation: "Use a pool.".into(),
                ..Default::default()
            },
            ..SampledAnalysis::default()
        }
    }

    const COST: Cost = Cost { seconds: 2.0, memory_peak_bytes: Some(5 << 20) };

    #[test]
    fn the_text_begins_with_the_answer() {
        let text = text(&found(), &COST, Details::Shown);
        assert!(text.contains("\n\nA sample: 204 of 5000 regions"), "{text}");
        assert!(text.contains("In at least 95 of 100 such samples, the ranges contain the true values"), "{text}");
        assert!(text.contains("too small to be sampled") && text.contains("a.raw was written meanwhile"), "{text}");
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("distinct").ends_with("1.00 MiB    1.50 MiB  2.00 MiB"), "{text}");
        assert!(row("saved, of what").ends_with("25.0 %      50.0 %    62.5 %"), "{text}");
        assert!(row("in a pool").ends_with("30 B to 50 B    50.0 to 70.0 %"), "{text}");
        assert!(!text.contains("shared in place"), "there is no figure: {text}");
        assert!(text.starts_with("Use a pool.\n\n"), "{text}");
    }

    #[test]
    fn the_document_has_the_sample_and_its_ranges() {
        let json = json(&found(), &COST);
        assert_eq!(json["sample"]["regions_read"], 204);
        assert_eq!(json["total"]["distinct_bytes"]["high"], 2 << 20);
        assert_eq!(json["ways"]["sharing_bytes"], Value::Null);
        assert_eq!(json["effort"]["seconds"], 2.0);
    }
}

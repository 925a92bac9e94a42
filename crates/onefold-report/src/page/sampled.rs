//! The page about a sample: every estimated figure is a range.

use onefold_block::size::human;

use super::figures::{range_text, sampled_block_sizes, sampled_ways};
use super::{ROWS_MAX, document, figures_of, list_of, table, warning_of};
use crate::page::svg::escape;
use crate::sampled_analysis::{Range, SampledAnalysis, SampledBlockSize, SampledImage, ShareRange};

/// Returns the page about `found`. `made` states time and program in the page's last line.
#[must_use]
pub fn sampled_page(found: &SampledAnalysis, made: &str) -> String {
    let title = format!("Savings of {} disk images, from a sample", found.images.len());
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    body.push_str(&format!("<p class=\"answer\">{}</p>\n", escape(&found.ways.recommendation)));
    body.push_str(&format!("<p>{}</p>\n", escape(&found.sample.to_string())));
    body.push_str(&facts(found));
    body.push_str(&warnings(found));
    let sections = vec![
        (
            "What each way of storing takes",
            "What the files occupy now, and what they would take otherwise; what is pale is not known.".to_owned(),
            sampled_ways(&found.ways),
        ),
        (
            "Block size",
            "Part of the data, zeros left out, that sharing equal blocks of each size saves.".to_owned(),
            sampled_block_sizes(&found.block_sizes),
        ),
    ];
    body.push_str(&figures_of(sections));
    body.push_str(&image_table(&found.images));
    body.push_str(&size_table(&found.block_sizes));
    body.push_str(&format!("<p class=\"soft\">{}</p>\n", escape(SampledAnalysis::NOT_TOLD)));
    body.push_str(&format!("<p class=\"soft\">{}</p>\n", escape(made)));
    document(&title, &body)
}

/// Returns a range in percent.
fn percent_text(share: ShareRange) -> String {
    format!("{:.1} to {:.1} %", share.low * 100.0, share.high * 100.0)
}

fn facts(found: &SampledAnalysis) -> String {
    let total = &found.total;
    list_of(&[
        ("images hold", human(total.apparent_bytes)),
        ("of that zeros", range_text(total.zero_bytes)),
        ("distinct", range_text(total.distinct_bytes)),
        ("saved", percent_text(total.saved_share)),
        ("the best guess", format!("{:.1} %", total.saved_share.best * 100.0)),
    ])
}

fn warnings(found: &SampledAnalysis) -> String {
    let mut lines: Vec<String> = Vec::new();
    if found.sample.is_small {
        lines.push(
            "These images are too small to be sampled: the ranges say little. Reading all of them is quick.".into(),
        );
    }
    for image in found.images.iter().filter(|image| image.changed_meanwhile) {
        lines.push(format!("{} was written meanwhile: its numbers are of no single moment.", image.name));
    }
    lines.extend(found.left_out.iter().map(|left| format!("{} is left out: {}", left.name, left.why)));
    if !found.misaligned.is_empty() {
        lines.push(format!(
            "Partitions that begin inside a block of 4 KiB: {}. What moving them would save is told when all is read.",
            found.misaligned.len()
        ));
    }
    warning_of(&lines)
}

fn image_table(images: &[SampledImage]) -> String {
    let row = |(at, image): (usize, &SampledImage)| {
        vec![
            format!("{}. {}", at + 1, image.name),
            human(image.apparent_bytes),
            human(image.allocated_bytes),
            human(image.data_bytes),
            human(image.read_bytes),
            range_text(image.zero_bytes),
        ]
    };
    let mut rows: Vec<Vec<String>> = images.iter().enumerate().take(ROWS_MAX).map(row).collect();
    if images.len() > ROWS_MAX {
        rows.push(vec![format!("and {} more", images.len() - ROWS_MAX)]);
    }
    table("Images", &["image", "apparent", "on disk", "no hole", "read", "zeros"], &rows)
}

fn size_table(sizes: &[SampledBlockSize]) -> String {
    let both = |range: Range| [range_text(range), human(range.best)];
    let row = |size: &SampledBlockSize| {
        let [distinct, guess] = both(size.distinct_bytes);
        let share = size.saved_share;
        vec![
            human(size.block_bytes),
            distinct,
            guess,
            percent_text(share),
            format!("{:.1} %", share.best * 100.0),
            range_text(size.linked_clone_bytes),
        ]
    };
    let rows: Vec<Vec<String>> = sizes.iter().map(row).collect();
    table("Block sizes", &["block size", "distinct", "best guess", "saved", "best guess", "linked clones"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampled_analysis::SampleReport;

    #[test]
    fn the_page_says_that_it_is_a_sample_and_how_sure_it_is() {
        let found = SampledAnalysis {
            sample: SampleReport {
                share: 0.04,
                regions: 5000,
                regions_read: 204,
                confidence: 0.95,
                ..SampleReport::default()
            },
            ..SampledAnalysis::default()
        };
        let page = sampled_page(&found, "made by a test");
        for words in [
            "from a sample",
            "204 of 5000",
            "In at least 95 of 100 such samples",
            "made by a test",
            "A sample does not show",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(!page.contains("NaN") && !page.contains("too small"), "{page}");
    }

    #[test]
    fn hostile_names_stay_text() {
        let name = "<script>alert(1)</script>".to_owned();
        let image = SampledImage { name, changed_meanwhile: true, ..SampledImage::default() };
        let page = sampled_page(&SampledAnalysis { images: vec![image], ..SampledAnalysis::default() }, "<script>");
        assert!(!page.contains("<script"), "{page}");
    }
}

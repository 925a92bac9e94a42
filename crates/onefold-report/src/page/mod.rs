//! The report as one self-contained page of HTML, without network access or scripts.

mod figures;
mod sampled;
mod svg;
mod treemap;

use onefold_block::size::{self, human};

use crate::analysis::{Analysis, BlockSize, ImageReport, TopBlockReport};

pub use sampled::sampled_page;
use svg::escape;

const STYLE: &str = include_str!("style.css");
/// Prevents scripts and external content, even if a name escaped its place in the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// Rows of the table of images. A longer page would be hard to open.
const ROWS_MAX: usize = 1000;

/// Returns the page about `found`. `made` states time and program in the page's last line.
#[must_use]
pub fn page(found: &Analysis, made: &str) -> String {
    let title = format!("Savings of {} disk images", found.images.len());
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    body.push_str(&format!("<p class=\"answer\">{}</p>\n", escape(&found.ways.recommendation)));
    body.push_str(&facts(found));
    body.push_str(&warnings(found));
    body.push_str(&figures_of(sections(found)));
    body.push_str(&found.files.as_ref().map(treemap::section).unwrap_or_default());
    body.push_str(&image_table(&found.images));
    body.push_str(&size_table(found));
    body.push_str(&shift_table(found));
    body.push_str(&top_table(found));
    body.push_str(&format!("<p class=\"soft\">{}</p>\n", escape(made)));
    document(&title, &body)
}

/// Returns a whole page; `body` is already escaped.
fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// Returns figures next to each other: the heading, a sentence and the drawing of each.
fn figures_of(sections: Vec<(&str, String, String)>) -> String {
    let section = |(heading, words, figure): (&str, String, String)| {
        let (heading, words) = (escape(heading), escape(&words));
        format!("<section><h2>{heading}</h2>\n<p class=\"soft\">{words}</p>\n{figure}</section>\n")
    };
    let sections: String = sections.into_iter().map(section).collect();
    format!("<div class=\"figures\">\n{sections}</div>\n")
}

/// The figures for which there is data: heading, a sentence, drawing.
fn sections(found: &Analysis) -> Vec<(&'static str, String, String)> {
    let base = found.block_sizes.first();
    let mut sections = vec![
        (
            "What each way of storing takes",
            "What the files occupy now, and what they would take otherwise.".to_owned(),
            figures::ways(found),
        ),
        (
            "Block size",
            "Part of the data, zeros left out, that sharing equal blocks of each size saves.".to_owned(),
            figures::block_sizes(&found.block_sizes),
        ),
        (
            "What each image consists of",
            "In blocks of 4 KiB. What is only here is what the image costs.".to_owned(),
            figures::images(&found.images),
        ),
    ];
    if base.is_some_and(|base| base.repeats_max > 1) {
        let max = base.map_or(0, |base| base.repeats_max);
        sections.push((
            "How often blocks repeat",
            format!(
                "Part of the distinct blocks that occur at most this often. The most repeated one occurs {max} times."
            ),
            figures::repeats(&found.block_sizes),
        ));
    }
    if found.growth.len() > 1 {
        sections.push((
            "Growth",
            "Storage as the images are added one after the other.".to_owned(),
            figures::growth(found),
        ));
    }
    if found.similarity.order.len() > 1 {
        sections.push((
            "Likeness",
            "Blocks that both images have, of those that one of them has; the like stand together. \
             Numbers are those of the table."
                .to_owned(),
            figures::similarity(found),
        ));
    }
    if found.runs.runs > 0 {
        sections.push((
            "Runs",
            format!(
                "Shared data by how much of it lies in one piece, {} on average: long runs read as fast as a plain file.",
                human(found.runs.mean_bytes)
            ),
            figures::runs(found),
        ));
    }
    if !found.groups.is_empty() {
        sections.push((
            "Groups",
            "An average image of each group, without and with sharing within the group.".to_owned(),
            figures::groups(&found.groups),
        ));
    }
    sections
}

fn facts(found: &Analysis) -> String {
    let total = &found.total;
    let nonzero = total.distinct_bytes + total.saved_bytes;
    let facts = [
        ("images hold", human(total.apparent_bytes)),
        ("of that zeros", human(total.zero_bytes)),
        ("distinct", human(total.distinct_bytes)),
        ("saved", size::percent(total.saved_bytes, nonzero)),
        ("saved, zeros counted", size::percent(total.saved_bytes + total.zero_bytes, total.apparent_bytes)),
    ];
    list_of(&facts)
}

/// Returns the key figures. None of their text comes from an image.
fn list_of(facts: &[(&str, String)]) -> String {
    let items: String =
        facts.iter().map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n")).collect();
    format!("<dl class=\"facts\">\n{items}</dl>\n")
}

fn warnings(found: &Analysis) -> String {
    let mut lines: Vec<String> = Vec::new();
    for image in found.images.iter().filter(|image| image.changed_meanwhile) {
        lines.push(format!("{} was written meanwhile: its numbers are of no single moment.", image.name));
    }
    for left in &found.left_out {
        lines.push(format!("{} is left out: {}", left.name, left.why));
    }
    let moved = &found.realignment;
    if !moved.misaligned.is_empty() {
        lines.push(format!(
            "Partitions that begin inside a block of 4 KiB: {}. With them moved to whole blocks, {} more would be saved.",
            moved.misaligned.len(),
            human(moved.gained_bytes)
        ));
    }
    warning_of(&lines)
}

fn warning_of(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<p class=\"warning\">{}</p>\n", escape(line))).collect()
}

/// Returns a table whose first column is text.
fn table(heading: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |tag: &str, at: usize, text: &str| {
        let class = if at == 0 { " class=\"name\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escape(text))
    };
    let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
        let cells: String = cells.enumerate().map(|(at, text)| cell(tag, at, text)).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = line("th", &mut columns.iter().copied());
    let body: String = rows.iter().map(|row| line("td", &mut row.iter().map(String::as_str))).collect();
    format!(
        "<section class=\"wide\"><h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead>{head}</thead>\n\
         <tbody>\n{body}</tbody></table></div></section>\n",
        escape(heading)
    )
}

fn image_table(images: &[ImageReport]) -> String {
    let row = |(at, image): (usize, &ImageReport)| {
        vec![
            format!("{}. {}", at + 1, image.name),
            human(image.apparent_bytes),
            human(image.allocated_bytes),
            human(image.zero_bytes),
            human(image.repeated_within_bytes),
            human(image.shared_with_others_bytes),
            human(image.only_here_bytes),
            human(image.marginal_bytes),
            human(image.freed_bytes),
        ]
    };
    let mut rows: Vec<Vec<String>> = images.iter().enumerate().take(ROWS_MAX).map(row).collect();
    if images.len() > ROWS_MAX {
        rows.push(vec![format!("and {} more", images.len() - ROWS_MAX)]);
    }
    let columns =
        ["image", "apparent", "on disk", "zeros", "repeated", "shared", "only here", "costs a pool", "deleting frees"];
    table("Images", &columns, &rows)
}

fn size_table(found: &Analysis) -> String {
    let total = &found.total;
    let row = |size: &BlockSize| {
        let part = |part: u64| size::percent(part, size.nonzero_bytes);
        let zeros = total.apparent_bytes.saturating_sub(size.distinct_bytes);
        vec![
            human(size.block_bytes),
            human(size.distinct_bytes),
            part(size.saved_bytes),
            size::percent(zeros, total.apparent_bytes),
            human(size.metadata_bytes),
            human(size.linked_clone_bytes),
        ]
    };
    let rows: Vec<Vec<String>> = found.block_sizes.iter().map(row).collect();
    let columns = ["block size", "distinct", "saved", "saved, zeros counted", "metadata", "linked clones"];
    table("Block sizes", &columns, &rows)
}

/// Returns the table of savings with shifted images, if requested.
fn shift_table(found: &Analysis) -> String {
    if found.shifts.is_empty() {
        return String::new();
    }
    let row = |moved: u64, sizes: &[BlockSize]| {
        let parts = sizes.iter().map(|size| size::percent(size.saved_bytes, size.nonzero_bytes));
        [format!("{moved} B")].into_iter().chain(parts).collect()
    };
    let mut rows: Vec<Vec<String>> = vec![row(0, &found.block_sizes)];
    rows.extend(found.shifts.iter().map(|shift| row(shift.shift_bytes, &shift.block_sizes)));
    let sizes: Vec<String> = found.block_sizes.iter().map(|size| human(size.block_bytes)).collect();
    let columns: Vec<&str> = ["all images moved by"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    table("Saved with all images moved", &columns, &rows)
}

fn top_table(found: &Analysis) -> String {
    if found.top_blocks.is_empty() {
        return String::new();
    }
    let row = |top: &TopBlockReport| {
        vec![top.image.clone(), top.offset_bytes.to_string(), top.times.to_string(), human(top.repeated_bytes)]
    };
    let rows: Vec<Vec<String>> = found.top_blocks.iter().map(row).collect();
    table("The most repeated blocks of 4 KiB", &["first in", "at byte", "times", "repetitions take"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{GroupReport, Similarity, SkippedImage, Total};
    use onefold_block::shown::is_hidden;

    #[test]
    fn a_page_of_nothing_is_a_page() {
        let page = page(&Analysis::default(), "made by a test");
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("made by a test"));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }

    #[test]
    fn hostile_names_stay_text() {
        let evil = "<script>alert(1)</script>\"'&";
        let image = ImageReport { name: evil.into(), changed_meanwhile: true, ..ImageReport::default() };
        let found = Analysis {
            total: Total { apparent_bytes: 1 << 40, ..Total::default() },
            images: vec![image.clone(), image],
            left_out: vec![SkippedImage { name: evil.into(), why: evil.into() }],
            ..Analysis::default()
        };
        let page = page(&found, evil);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;"));
    }

    /// Regression: a bidirectional control in the name of an image changed the direction of the text beside it.
    #[test]
    fn names_turn_around_and_hide_no_text() {
        let evil = "\"><script>\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{1b}[31m\u{9b}\n'";
        let shown = r#"&quot;&gt;&lt;script&gt;\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\x1b[31m\u{9b}\n"#;
        let image = ImageReport { name: evil.into(), changed_meanwhile: true, ..ImageReport::default() };
        let group = GroupReport { name: evil.into(), images: 1, nonzero_bytes: 1, distinct_bytes: 1 };
        let found = Analysis {
            total: Total { apparent_bytes: 1 << 40, ..Total::default() },
            images: vec![image.clone(), image],
            left_out: vec![SkippedImage { name: evil.into(), why: evil.into() }],
            groups: vec![group],
            similarity: Similarity {
                order: vec![0, 1],
                likeness: vec![vec![1.0, 0.5], vec![0.5, 1.0]],
                common_bytes: vec![vec![1, 1], vec![1, 1]],
            },
            ..Analysis::default()
        };
        let page = page(&found, evil);
        let hidden = page.chars().find(|&character| is_hidden(character) && character != '\n');
        assert_eq!(hidden, None, "{page}");
        assert!(page.contains(shown) && !page.contains("<script"), "{page}");
    }

    #[test]
    fn a_page_asks_for_nothing_from_elsewhere() {
        let page = page(&Analysis::default(), "");
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

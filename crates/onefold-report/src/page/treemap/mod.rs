//! Owners of the bytes of images, as a treemap and as a table with the same numbers.

mod draw;
mod label;
mod squarify;
mod table;
mod tree;

use onefold_block::size::human;

use crate::files::{BytesUse, FilesAnalysis};
use crate::page::figures::percent;
use crate::page::svg::escape;

use draw::{Shape, TONES, treemap};
use tree::{Limit, drawn, groups, sum};

/// The drawings and their levels of detail. A page shows the drawing for its width.
const SHAPES: [(Shape, Limit); 3] = [
    (
        Shape { id: "figure-files-wide", class: "wide", width: 1000.0, height: 580.0 },
        Limit { one_of: 3000, count: 240 },
    ),
    (
        Shape { id: "figure-files-middle", class: "middle", width: 560.0, height: 560.0 },
        Limit { one_of: 1800, count: 150 },
    ),
    (
        Shape { id: "figure-files-narrow", class: "narrow", width: 360.0, height: 560.0 },
        Limit { one_of: 1000, count: 90 },
    ),
];

/// Returns the section. It is empty if all bytes are zero.
pub(super) fn section(files: &FilesAnalysis) -> String {
    let bytes = &files.total;
    let [(_, most), ..] = SHAPES;
    let all = groups(bytes, most);
    if all.is_empty() {
        return String::new();
    }
    let title = description(bytes);
    let figures: String = SHAPES
        .iter()
        .map(|(shape, limit)| treemap(&drawn(groups(bytes, *limit), limit.one_of), *shape, &title) + "\n")
        .collect();
    format!(
        "<section class=\"wide treemap\"><h2>What the bytes belong to</h2>\n\
         <p class=\"soft\">Area is bytes of all images, zeros left out. Colour and percentage are the part that other \
         images have. The table has the same numbers.</p>\n{}{figures}</section>\n{}",
        legend(),
        table::table(&all)
    )
}

/// Returns the colours with their meaning in words, so that readers need not distinguish colours.
fn legend() -> String {
    let step = 100 / TONES;
    let tones: String = (0..TONES)
        .map(|tone| format!("<span class=\"back{tone}\">{}\u{2013}{} %</span>", tone * step, (tone + 1) * step))
        .collect();
    format!("<p class=\"scale\"><span class=\"soft\">other images have</span>{tones}</p>\n")
}

/// Returns a description of the drawing: its title, and the numbers of the groups.
fn description(bytes: &BytesUse) -> String {
    let all = sum(bytes.groups.iter().map(|group| group.share)).bytes;
    let group = |group: &crate::files::GroupShare| {
        format!(
            "{} {}, of which other images have {:.0} %",
            group.name.title(),
            human(group.share.bytes),
            percent(group.share.shared_with_others_bytes, group.share.bytes)
        )
    };
    let groups: Vec<String> = bytes.groups.iter().filter(|group| group.share.bytes > 0).map(group).collect();
    format!("Treemap of {}: {}. The table below has all numbers.", human(all), groups.join("; "))
}

#[cfg(test)]
mod tests;

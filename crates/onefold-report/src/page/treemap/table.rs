//! The numbers of the treemap.

use onefold_block::size::human;

use super::draw::tone;
use super::tree::{Node, sum};
use super::{escape, percent};

const COLUMNS: [&str; 6] = ["what", "bytes", "other images have", "only in one image", "repeated within", "of all"];

/// Returns the table of groups, parts and folders, with one level of indentation for each.
pub(super) fn table(groups: &[Node]) -> String {
    let all = sum(groups.iter().map(|group| group.share)).bytes;
    let mut rows = String::new();
    for group in groups {
        add_rows(&mut rows, group, 0, all);
    }
    let head = |(at, column): (usize, &&str)| {
        let class = if at == 0 { " class=\"name\"" } else { "" };
        format!("<th scope=\"col\"{class}>{column}</th>")
    };
    let head: String = COLUMNS.iter().enumerate().map(head).collect();
    format!(
        "<section class=\"wide\"><h2>Groups, packages and folders</h2>\n\
         <div class=\"scroll\"><table class=\"tree\">\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody></table></div></section>\n"
    )
}

fn add_rows(rows: &mut String, node: &Node, level: usize, all: u64) {
    let share = node.share;
    let part = |part: u64, whole: u64| format!("{:.1} %", percent(part, whole));
    let cells = [
        human(share.bytes),
        format!("<i class=\"back{}\"></i>{}", tone(share), part(share.shared_with_others_bytes, share.bytes)),
        human(share.only_here_bytes),
        human(share.repeated_within_bytes),
        part(share.bytes, all),
    ];
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    let name = escape(&node.name);
    rows.push_str(&format!(
        "<tr class=\"level{level}\" data-value=\"{}\"><th scope=\"row\" class=\"name\">{name}</th>{cells}</tr>\n",
        share.bytes
    ));
    node.parts.iter().for_each(|part| add_rows(rows, part, level + 1, all));
}

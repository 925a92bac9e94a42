//! The treemap of a report in a real browser: each rectangle is as large as its bytes, and each label is within its
//! own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::path::Path;

use common::browser::{browser, check_layout, check_layout_of_text, figure, measured, number, printed};
use common::{analyzed, image, options, random_images};
use onefold_report::{
    Analysis, BytesUse, FilesAnalysis, GroupName, GroupShare, Image, OTHERS, PartShare, ShareBytes, page,
};
use serde_json::Value;

/// Widths of a page, and the drawing that belongs to each.
const WIDTHS: [(u32, &str); 6] = [
    (360, "figure-files-narrow"),
    (375, "figure-files-narrow"),
    (390, "figure-files-narrow"),
    (768, "figure-files-middle"),
    (1200, "figure-files-wide"),
    (1280, "figure-files-wide"),
];

fn share(bytes: u64, shared_percent: u64) -> ShareBytes {
    let shared_with_others_bytes = bytes / 100 * shared_percent;
    let repeated_within_bytes = (bytes - shared_with_others_bytes) / 10;
    let only_here_bytes = bytes - shared_with_others_bytes - repeated_within_bytes;
    ShareBytes { bytes, shared_with_others_bytes, only_here_bytes, repeated_within_bytes }
}

fn sum(parts: &[PartShare]) -> ShareBytes {
    let mut sum = ShareBytes::default();
    for part in parts {
        sum.bytes += part.share.bytes;
        sum.shared_with_others_bytes += part.share.shared_with_others_bytes;
        sum.only_here_bytes += part.share.only_here_bytes;
        sum.repeated_within_bytes += part.share.repeated_within_bytes;
    }
    sum
}

fn of_parts(name: &str, mut parts: Vec<PartShare>) -> PartShare {
    parts.sort_by_key(|part| std::cmp::Reverse(part.share.bytes));
    PartShare { name: name.to_owned(), share: sum(&parts), parts }
}

/// Returns a part whose parts have so many KiB, each with the percentage that other images have.
fn part(name: &str, parts: &[(&str, u64, u64)]) -> PartShare {
    let part = |&(name, kib, percent): &(&str, u64, u64)| PartShare {
        name: name.to_owned(),
        share: share(kib << 10, percent),
        parts: Vec::new(),
    };
    of_parts(name, parts.iter().map(part).collect())
}

/// Returns packages as two dozen Debian systems have them: a few large ones, and hundreds that are ever smaller.
fn packages() -> Vec<PartShare> {
    let mut parts = vec![
        part("linux-image-6.1.0-31-amd64", &[("/usr/lib", 390_000, 92), ("/boot", 41_000, 97), ("/usr/share", 12, 99)]),
        part("libc6", &[("/usr/lib", 13_000, 99), ("/usr/share", 900, 99), ("/etc", 8, 99)]),
        part("postgresql-15", &[("/usr/lib", 48_000, 63), ("/usr/share", 16_000, 63)]),
        part("openjdk-17-jre-headless", &[("/usr/lib", 190_000, 45), ("/etc", 1400, 45), ("/usr/share", 300, 40)]),
        part("libllvm15", &[("/usr/lib", 112_000, 31)]),
        part("git", &[("/usr/lib", 38_000, 78), ("/usr/bin", 6000, 78), ("/usr/share", 1200, 78)]),
        part("python3.11-minimal", &[("/usr/bin", 6600, 98), ("/usr/lib", 4500, 98)]),
        part("vim-runtime", &[("/usr/share", 34_000, 96)]),
        part("localisation-of-everything-in-one-package", &[("/usr/share/locale", 61_000, 88), ("/usr/lib", 2900, 88)]),
        part("\u{202e}<b>&\"quotes\"'", &[("/usr/磁盘イメージ", 9000, 12), ("/usr/דיסק", 8000, 55)]),
    ];
    for number in 0..400 {
        let kib = 26_000 / (number + 2);
        let percent = 99 - number * 37 % 90;
        let folders = [("/usr/bin", kib / 3, percent), ("/usr/lib", kib, percent), ("/usr/share", kib / 2, percent)];
        parts.push(part(&format!("libexample{number}-{}", number * 7919 % 100), &folders));
    }
    parts.push(part(OTHERS, &[("", 5000, 50)]));
    parts
}

fn found() -> FilesAnalysis {
    let folders = vec![
        part("/var", &[("/var/lib", 260_000, 8), ("/var/log", 64_000, 1), ("/var/cache", 170_000, 71)]),
        part("/home", &[("/home/ada", 120_000, 3), ("/home/grace", 71_000, 14), ("/home/others", 900, 0)]),
        part("/srv", &[("/srv/www", 88_000, 24)]),
        part("/", &[("/", 11_000, 2)]),
    ];
    let metadata = vec![
        part("inode tables", &[("ext4", 28_000, 41), ("XFS", 9000, 6)]),
        part("journal", &[("ext4", 49_000, 2)]),
        part("directories", &[("ext4", 14_000, 82)]),
        part("bitmaps", &[("ext4", 700, 55)]),
    ];
    let groups = [
        (GroupName::Packages, packages()),
        (GroupName::Files, folders),
        (GroupName::Metadata, metadata),
        (GroupName::Swap, vec![part("swap area", &[("", 4, 50)])]),
        (GroupName::Gaps, vec![part("before the first volume", &[("", 1000, 96)]), part("the end", &[("", 36, 4)])]),
        (GroupName::Stale, vec![part("ext4", &[("", 230_000, 58)]), part("swap area", &[("", 3500, 9)])]),
        (GroupName::NotRead, vec![part("LUKS", &[("", 52_000, 0)])]),
    ];
    let groups = groups.map(|(name, parts)| {
        let all = of_parts("", parts);
        GroupShare { name, share: all.share, parts: all.parts }
    });
    FilesAnalysis { total: BytesUse { groups: groups.to_vec(), ..BytesUse::default() }, ..FilesAnalysis::default() }
}

fn report(files: FilesAnalysis) -> Analysis {
    let images: Vec<Image> = random_images(5, 3, 300).iter().map(|bytes| image("disk.raw", bytes)).collect();
    Analysis { files: Some(files), ..analyzed(&images, &options()) }
}

/// Asserts that each rectangle has the area of its bytes: of the groups, of their parts, and of what fills them.
fn check_areas(marks: &[Value], files: &FilesAnalysis) {
    let all: u64 = files.total.groups.iter().map(|group| group.share.bytes).sum();
    let of_class =
        |class: &'static str| marks.iter().filter(move |mark| mark["class"].as_str().unwrap().starts_with(class));
    let area = |class| of_class(class).map(|mark| number(mark, "area_px")).sum::<f64>();
    let bytes = |class| of_class(class).map(|mark| number(mark, "value")).sum::<f64>();
    assert_eq!(bytes("groups"), all as f64);
    assert!(bytes("tone") <= all as f64 && bytes("tone") > all as f64 * 0.999);
    let scale = area("groups") / all as f64;
    assert!(scale > 0.0);
    for mark in marks {
        let expected = number(mark, "value") * scale;
        assert!((number(mark, "area_px") / expected - 1.0).abs() < 0.01, "{mark} should have {expected} square pixels");
    }
    for class in ["tone", "parts", "groups"] {
        let marks: Vec<&Value> = of_class(class).collect();
        assert!(!marks.is_empty(), "{class}");
        for (at, one) in marks.iter().enumerate() {
            assert!(!marks[..at].iter().any(|other| overlap(one, other)), "{one} overlaps one before");
        }
    }
}

/// Returns whether two boxes have more in common than rounding gives.
fn overlap(one: &Value, other: &Value) -> bool {
    let is_before = |one: &Value, other: &Value, at: &str, length: &str| {
        number(one, at) + number(one, length) <= number(other, at) + 0.01
    };
    let apart = |one, other| is_before(one, other, "x", "width") || is_before(one, other, "y", "height");
    !apart(one, other) && !apart(other, one)
}

/// Asserts that each label lies within one rectangle, or on the tab of a group, and upon no other label.
fn check_labels(figure: &Value) {
    let words = figure["words"].as_array().unwrap();
    let tiles = figure["marks"].as_array().unwrap();
    for (at, word) in words.iter().enumerate() {
        let is_group = word["class"] == "group";
        let is_within = |mark: &&Value| {
            let within = |at: &str, length: &str| {
                number(mark, at) <= number(word, at)
                    && number(word, at) + number(word, length) <= number(mark, at) + number(mark, length)
            };
            let class = mark["class"].as_str().unwrap();
            (if is_group { class == "groups" } else { class.starts_with("tone") })
                && within("x", "width")
                && within("y", "height")
        };
        assert!(tiles.iter().any(|mark| is_within(&mark)), "{word} sticks out of its rectangle");
        let below = words[..at].iter().find(|other| overlap(word, other));
        assert!(below.is_none_or(|below| number(word, "y") - number(below, "y") > 10.0), "{word} lies upon {below:?}");
    }
    let parts = words.iter().filter(|word| word["class"].as_str().unwrap().starts_with("part"));
    assert!(parts.count() >= 8, "there are hardly any labels: {words:?}");
}

#[test]
fn rectangles_are_as_large_as_their_bytes_at_every_width() {
    let Some(browser) = browser() else { return };
    let files = found();
    let page = page(&report(files.clone()), "made by a test");
    // To be looked at: the folder that tests may leave things in.
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("treemap.html"), &page).unwrap();
    for (width, id) in WIDTHS {
        let measured = measured(browser, &page, width);
        check_layout(&measured, width);
        check_areas(figure(&measured, id), &files);
        let figures = measured["figures"].as_array().unwrap();
        let shown: Vec<&Value> =
            figures.iter().filter(|figure| figure["id"].as_str().unwrap().starts_with("figure-files")).collect();
        assert_eq!(shown.len(), 1, "one of the drawings is shown");
        check_labels(shown[0]);
        let rows: Vec<&str> = measured["rows"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
        for group in &files.total.groups {
            assert!(rows.contains(&group.share.bytes.to_string().as_str()), "{:?}", group.name);
        }
    }
}

/// Printable width of a sheet of A4 with the margins of the browser, in its pixels of 1/96 inch.
const PAPER: u32 = 718;
/// Height of the smallest text that can be read on paper, which is sharper than a screen: 5 points.
const PAPER_TEXT_PX: f64 = 6.7;
/// Number of sheets that this report takes at least, and at most if no section leaves most of a sheet empty.
const SHEETS: std::ops::RangeInclusive<usize> = 2..=20;

#[test]
fn on_paper_the_widest_drawing_is_whole_and_nothing_is_cut_off() {
    let Some(browser) = browser() else { return };
    let files = found();
    let page = page(&report(files.clone()), "made by a test");
    let pdf = printed(browser, &page);
    let count = |words: &[u8]| pdf.windows(words.len()).filter(|window| *window == words).count();
    let sheets = count(b"/Type /Page\n");
    assert!(pdf.starts_with(b"%PDF-") && SHEETS.contains(&sheets), "{sheets} sheets");
    // What paper shows, in a frame as wide as paper.
    assert!(page.contains("@media print {"));
    let measured = measured(browser, &page.replace("@media print {", "@media all {"), PAPER);
    check_layout_of_text(&measured, PAPER, PAPER_TEXT_PX);
    assert_eq!(measured["clipped"], Value::Array(Vec::new()), "paper cannot be scrolled");
    check_areas(figure(&measured, "figure-files-wide"), &files);
}

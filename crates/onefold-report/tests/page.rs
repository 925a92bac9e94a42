//! The page in a real browser, as wide as a desktop and as a phone: no error, nothing sticks out, every figure is drawn
//! and shows the report's numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::path::Path;

use common::browser::{browser, check_layout, figure, measured, number};
use common::{SilentProgress, analyzed, image, options, random_images};
use onefold_report::{Analysis, Image, Options, Share, Shifts, analyze_sample, page, sampled_page};
use serde_json::Value;

const PHONE: u32 = 390;
const DESKTOP: u32 = 1200;

/// A report with something in every figure, and names that are hard to show.
fn found() -> Analysis {
    let images = random_images(5, 6, 900);
    let names = [
        "debian-12.raw",
        "<b>&\"quotes\"'",
        "a name of ever so many letters and no end in sight 0123456789 0123456789.qcow2",
    ];
    let long = "/very-long-folder-name-without-any-place-to-break-a-line-in-it/and/another/one/disk.raw";
    let mut analysed: Vec<Image> = Vec::new();
    for (at, bytes) in images.iter().enumerate() {
        let group = Some(at % 2);
        analysed.push(Image { group, ..image(names.get(at).unwrap_or(&long), bytes) });
    }
    let groups = vec!["debian".into(), "desktops of the second floor".into()];
    analyzed(&analysed, &Options { groups, shifts: Shifts::All, ..options() })
}

/// Asserts that marks bear these values and that `side` of each is in proportion to its value.
fn assert_bars(marks: &[Value], expected: &[u64], side: &str) {
    let values: Vec<f64> = marks.iter().map(|mark| number(mark, "value")).collect();
    assert_eq!(values, expected.iter().map(|&value| value as f64).collect::<Vec<_>>());
    let largest = marks.iter().max_by(|a, b| number(a, "value").total_cmp(&number(b, "value"))).unwrap();
    let scale = number(largest, side) / number(largest, "value");
    for mark in marks {
        assert!((number(mark, side) - number(mark, "value") * scale).abs() < 0.6, "{mark} is not to scale {scale}");
    }
}

/// Asserts that the points of each curve bear these values, and lie as high as they should: equal steps for equal
/// steps.
fn assert_curves(marks: &[Value], expected: &[Vec<f64>]) {
    let mut places: Vec<(f64, f64)> = Vec::new();
    for (series, expected) in expected.iter().enumerate() {
        let class = format!("f{series}");
        let points: Vec<&Value> = marks.iter().filter(|mark| mark["class"] == class.as_str()).collect();
        assert_eq!(points.len(), expected.len(), "{class}");
        for (point, expected) in points.iter().zip(expected) {
            assert!((number(point, "value") - expected).abs() <= 0.006_f64.max(expected * 1e-9), "{point}: {expected}");
            places.push((number(point, "value"), number(point, "middle")));
        }
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (low, high) = (places[0], places[places.len() - 1]);
    assert!(high.0 > low.0 && high.1 < low.1, "{places:?}");
    for (value, middle) in places {
        let expected = low.1 + (value - low.0) / (high.0 - low.0) * (high.1 - low.1);
        assert!((middle - expected).abs() < 0.6, "{value} is at {middle}, not {expected}");
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

fn check(found: &Analysis, measured: &Value, width: u32) {
    check_layout(measured, width);

    let ways = &found.ways;
    let all = [ways.now_bytes, ways.pool_bytes, ways.sharing_bytes, ways.linked_clone_bytes];
    assert_bars(figure(measured, "figure-ways"), &all, "width");

    let parts = found.images.iter().flat_map(|image| {
        [image.only_here_bytes, image.shared_with_others_bytes, image.repeated_within_bytes, image.zero_bytes]
    });
    assert_bars(figure(measured, "figure-images"), &parts.collect::<Vec<_>>(), "width");

    let groups =
        found.groups.iter().flat_map(|group| [group.nonzero_bytes / group.images, group.distinct_bytes / group.images]);
    assert_bars(figure(measured, "figure-groups"), &groups.collect::<Vec<_>>(), "width");

    let runs: Vec<u64> = found.runs.lengths.iter().map(|class| class.shared_bytes).collect();
    assert_bars(figure(measured, "figure-runs"), &runs, "height");

    let curve = |of: &dyn Fn(&onefold_report::BlockSize) -> u64| -> Vec<f64> {
        found.block_sizes.iter().map(|size| percent(of(size), size.nonzero_bytes)).collect()
    };
    let sizes = [
        curve(&|size| size.saved_bytes),
        curve(&|size| size.saved_bytes.saturating_sub(size.metadata_bytes)),
        curve(&|size| size.nonzero_bytes - size.linked_clone_bytes),
    ];
    assert_curves(figure(measured, "figure-block-sizes"), &sizes);

    let repeats: Vec<Vec<f64>> = [0, 2, 4, 8]
        .map(|level| {
            let points = &found.block_sizes[level].repeats;
            points.iter().map(|point| percent(point.blocks, points.last().unwrap().blocks)).collect()
        })
        .to_vec();
    assert_curves(figure(measured, "figure-repeats"), &repeats);

    let growth = [
        found.growth.iter().map(|step| step.nonzero_bytes as f64).collect(),
        found.growth.iter().map(|step| step.distinct_bytes as f64).collect(),
    ];
    assert_curves(figure(measured, "figure-growth"), &growth);

    let cells = figure(measured, "figure-similarity");
    let likeness: Vec<f64> = found.similarity.likeness.iter().flatten().copied().collect();
    assert_eq!(cells.len(), likeness.len());
    for (cell, likeness) in cells.iter().zip(likeness) {
        assert!((number(cell, "value") - likeness).abs() < 1e-5);
        assert!((number(cell, "shade") - (0.04 + 0.96 * likeness)).abs() < 1e-3, "{cell}");
    }
}

#[test]
fn every_figure_shows_the_right_numbers_at_desktop_and_phone_width() {
    let Some(browser) = browser() else { return };
    let found = found();
    let page = page(&found, "made by a test");
    // To be looked at: the folder that tests may leave things in.
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html");
    fs::write(&kept, &page).unwrap();
    for width in [DESKTOP, PHONE] {
        check(&found, &measured(browser, &page, width), width);
    }
}

#[test]
fn the_page_of_a_sample_shows_its_ranges() {
    let Some(browser) = browser() else { return };
    let images: Vec<Image> = random_images(5, 4, 9000).iter().map(|bytes| image("disk.raw", bytes)).collect();
    let found = analyze_sample(&images, &options(), Share::MAX, &SilentProgress).unwrap();
    let page = sampled_page(&found, "made by a test");
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("sampled.html"), &page).unwrap();
    for width in [DESKTOP, PHONE] {
        let measured = measured(browser, &page, width);
        check_layout(&measured, width);
        let ways = &found.ways;
        let now = onefold_report::Range { low: ways.now_bytes, best: ways.now_bytes, high: ways.now_bytes };
        let ranges = [now, ways.pool_bytes, ways.sharing_bytes.unwrap(), ways.linked_clone_bytes];
        let bars: Vec<u64> = ranges.iter().flat_map(|range| [range.low, range.high - range.low]).collect();
        assert_bars(figure(&measured, "figure-ways"), &bars, "width");
        let curve = |of: &dyn Fn(&onefold_report::ShareRange) -> f64| -> Vec<f64> {
            found.block_sizes.iter().map(|size| of(&size.saved_share) * 100.0).collect()
        };
        let curves = [curve(&|share| share.best), curve(&|share| share.low), curve(&|share| share.high)];
        assert_curves(figure(&measured, "figure-block-sizes"), &curves);
    }
}

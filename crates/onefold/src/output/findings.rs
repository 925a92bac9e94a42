//! Problems of a pool, as `check` and `scrub` print them.

use std::fmt::Write;

use onefold_block::{BLOCK_BYTES_U64, Show};
use serde_json::{Value, json};

use crate::size::grouped;
use crate::store::{PoolProblems, ProblemPlace};

/// The structure of problems with data that no structure of the pool describes.
pub(crate) const DATA: &str = "data";
/// Maximum number of lost ranges in the text; the JSON has all places.
const RANGES_MAX: usize = 20;

/// Returns all findings for people, with the affected files below each. Without findings, the text is empty.
pub(crate) fn text(findings: &PoolProblems) -> String {
    let mut text = String::new();
    for problem in &findings.problems {
        // Writing into a string does not fail.
        let _ = match problem.block {
            Some(block) => writeln!(text, "{} at block {block}: {}", problem.structure, problem.what),
            None => writeln!(text, "{}: {}", problem.structure, problem.what),
        };
        for file in &problem.files {
            let _ = writeln!(text, "  in {}", file.shown());
        }
    }
    let untold = findings.problems_total.saturating_sub(findings.problems.len() as u64);
    if untold > 0 {
        let _ = writeln!(text, "and {} more", grouped(untold));
    }
    text
}

/// Returns what is to be done about data that no repair can bring back; `None` if no problem is of that kind.
pub(crate) fn lost(findings: &PoolProblems) -> Option<String> {
    let data = findings.problems.iter().filter(|problem| problem.structure == DATA);
    let (mut count, mut places, mut has_more) = (0_u64, Vec::new(), false);
    for problem in data {
        count += 1;
        places.extend(&problem.places);
        has_more |= problem.has_more_places;
    }
    let is_counted = is_complete(findings);
    let blocks = match count {
        0 => return None,
        1 if is_counted => "1 block of data is lost".to_owned(),
        1 => "At least 1 block of data is lost".to_owned(),
        _ if is_counted => format!("{} blocks of data are lost", grouped(count)),
        _ => format!("At least {} blocks of data are lost", grouped(count)),
    };
    places.sort();
    let ranges = ranges(&places);
    let what = match ranges.as_slice() {
        [] => ". No file is known to have it".to_owned(),
        [range] => format!(": {range}"),
        [.., _] => ranges
            .iter()
            .take(RANGES_MAX)
            .map(|range| format!("\n  {range}"))
            .fold(":".to_owned(), |all, one| all + &one),
    };
    let more = ranges.len().saturating_sub(RANGES_MAX);
    let more = if more > 0 { format!("\n  and {} more ranges", grouped(more as u64)) } else { String::new() };
    let end = if ranges.len() > 1 { "\n" } else { ". " };
    let cut = cut(findings, has_more).map(|cut| cut + " ").unwrap_or_default();
    Some(format!("{blocks}{what}{more}{end}{cut}Write that content again from a backup, or delete the file."))
}

/// Returns whether the findings have all problems, and not only the first ones.
pub(crate) fn is_complete(findings: &PoolProblems) -> bool {
    findings.problems_total <= findings.problems.len() as u64
}

/// Returns why the named places of lost data may not be all; `None` if they are.
fn cut(findings: &PoolProblems, has_more_places: bool) -> Option<String> {
    let listed = grouped(findings.problems.len() as u64);
    match (is_complete(findings), has_more_places) {
        (true, false) => None,
        (true, true) => Some("Some of these blocks have more places than are named here.".to_owned()),
        (false, false) => Some(format!("Only the first {listed} problems were looked at for this.")),
        (false, true) => Some(format!(
            "Only the first {listed} problems were looked at for this, and some of the blocks have more places."
        )),
    }
}

/// Returns places as ranges of bytes, with adjacent blocks joined. The places are in order.
fn ranges(places: &[&ProblemPlace]) -> Vec<String> {
    let mut joined: Vec<(&str, u64, u64)> = Vec::new();
    for place in places {
        let end = place.offset.saturating_add(BLOCK_BYTES_U64);
        match joined.last_mut() {
            Some((file, _, last)) if *file == place.file && *last >= place.offset => *last = end,
            _ => joined.push((&place.file, place.offset, end)),
        }
    }
    let range = |(file, begin, end): &(&str, u64, u64)| {
        format!("{}, bytes {} to {}", file.shown(), grouped(*begin), grouped(end - 1))
    };
    joined.iter().map(range).collect()
}

/// Returns all findings for machines.
pub(crate) fn json(findings: &PoolProblems) -> Value {
    json!({
        "clean": findings.problems_total == 0 && !findings.stopped,
        "stopped": findings.stopped,
        "problems_total": findings.problems_total,
        "data_blocks_hashed": findings.data_blocks_hashed,
        "problems": findings.problems,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::PoolProblem;

    fn findings() -> PoolProblems {
        let problem = PoolProblem {
            structure: "data".into(),
            block: Some(7),
            files: vec!["/a\nb.raw".into()],
            places: Vec::new(),
            has_more_places: false,
            is_settled: false,
            what: "content does not match its fingerprint".into(),
        };
        PoolProblems { problems: vec![problem], problems_total: 3, data_blocks_hashed: 10, stopped: false }
    }

    #[test]
    fn findings_name_the_place_and_the_files() {
        let expected = "data at block 7: content does not match its fingerprint\n  in /a\\nb.raw\nand 2 more\n";
        assert_eq!(text(&findings()), expected);
        assert_eq!(text(&PoolProblems::default()), "");
    }

    #[test]
    fn lost_data_is_named_by_ranges_of_bytes() {
        let lost_at = |places: &[(&str, u64)]| {
            let place = |(file, block): &(&str, u64)| ProblemPlace { file: (*file).into(), offset: block * 4096 };
            let problem = |at| PoolProblem { places: vec![place(at)], ..findings().problems.remove(0) };
            let problems_total = places.len() as u64;
            lost(&PoolProblems { problems: places.iter().map(problem).collect(), problems_total, ..Default::default() })
        };
        assert_eq!(
            lost_at(&[("/a.raw", 2), ("/a.raw", 1)]).unwrap(),
            "2 blocks of data are lost: /a.raw, bytes 4,096 to 12,287. Write that content again from a backup, or delete \
             the file."
        );
        assert_eq!(
            lost_at(&[("/a.raw", 0), ("/b\n.raw", 1)]).unwrap(),
            "2 blocks of data are lost:\n  /a.raw, bytes 0 to 4,095\n  /b\\n.raw, bytes 4,096 to 8,191\nWrite that content \
             again from a backup, or delete the file."
        );
        assert_eq!(lost_at(&[]), None);
    }

    #[test]
    fn lost_data_beyond_what_is_listed_is_admitted() {
        let place = ProblemPlace { file: "/a.raw".into(), offset: 4096 };
        let problem = |has_more_places| PoolProblem {
            places: vec![place.clone()],
            has_more_places,
            ..findings().problems.remove(0)
        };
        let said = |has_more_places, problems_total| {
            let problems = vec![problem(has_more_places)];
            lost(&PoolProblems { problems, problems_total, ..PoolProblems::default() }).unwrap()
        };
        assert!(said(false, 1).starts_with("1 block of data is lost: /a.raw, bytes 4,096 to 8,191. Write"));
        assert!(said(true, 1).contains("have more places than are named here. Write"), "{}", said(true, 1));
        let cut = said(false, 50_000);
        assert!(cut.starts_with("At least 1 block of data is lost: "), "{cut}");
        assert!(cut.contains("Only the first 1 problems were looked at for this. Write"), "{cut}");
        assert!(said(true, 2).contains("this, and some of the blocks have more places. Write"), "{}", said(true, 2));
    }

    #[test]
    fn work_that_was_stopped_vouches_for_nothing() {
        assert_eq!(json(&findings())["clean"], false);
        assert_eq!(json(&PoolProblems::default())["clean"], true);
        assert_eq!(json(&PoolProblems { stopped: true, ..PoolProblems::default() })["clean"], false);
    }
}

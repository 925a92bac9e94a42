//! Problems of a pool, as `check` and `scrub` print them.

use std::fmt::Write;

use onefold_block::Show;
use serde_json::{Value, json};

use crate::size::grouped;
use crate::store::PoolProblems;

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
    fn work_that_was_stopped_vouches_for_nothing() {
        assert_eq!(json(&findings())["clean"], false);
        assert_eq!(json(&PoolProblems::default())["clean"], true);
        assert_eq!(json(&PoolProblems { stopped: true, ..PoolProblems::default() })["clean"], false);
    }
}

//! `onefold pool check`

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::Show;
use onefold_block::device::OpenMode;
use onefold_pool::Environment;
use onefold_pool::check::{self, CheckOptions, UnprovenNames};
use serde_json::{Value, json};

use crate::cli::Talk;
use crate::cli::pool::CheckArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::interrupt::Interrupt;
use crate::locate::{self, PoolTarget};
use crate::output::findings::DATA;
use crate::output::{Report, findings, machine_name};
use crate::progress::Meter;
use crate::size::{counted, grouped};
use crate::store::{PoolProblems, open_device};

pub(super) fn run(arguments: &CheckArgs, talk: Talk) -> Outcome<Report> {
    let path = match locate::locate(&arguments.pool)? {
        PoolTarget::Offline(path) => path,
        PoolTarget::Served(path) => {
            return Err(locate::served(format!("cannot check the pool `{}`", path.shown()), &path));
        }
        PoolTarget::Mounted { mount, .. } => {
            let mountpoint = mount.mountpoint.shown();
            return Err(Failure::new(format!("cannot check the pool mounted at `{mountpoint}`"))
                .because_of("a check needs a pool that is not in use")
                .hint(format!("`onefold pool umount {mountpoint}` first, or let `onefold pool scrub` read its data")));
        }
        // No daemon serves it, and a check changes nothing that the next mount would miss.
        PoolTarget::Stale(mount) => std::fs::canonicalize(&mount.source)
            .map_err(|error| Failure::of_io(format!("cannot open `{}`", mount.source.shown()), &error))?,
    };
    let cannot = || format!("cannot check the pool `{}`", path.shown());
    let options = CheckOptions {
        memory_bytes: arguments.open.memory.0,
        verify_data: arguments.data,
        host: if arguments.repair { host::identity() } else { None },
        unproven_names: arguments.unproven_names.map_or(UnprovenNames::Refuse, Into::into),
    };
    let (mode, doing) =
        if arguments.repair { (OpenMode::ReadWrite, "repairing") } else { (OpenMode::ReadOnly, "checking") };
    let device: Arc<dyn BlockDevice> = Arc::new(open_device(&path, mode)?);
    let meter = Meter::new(doing, talk.quiet, Interrupt::watch());
    let report = if arguments.repair {
        check::repair(&device, &options, &Environment::system(), &meter)
    } else {
        check::check(&*device, &options, &meter)
    };
    meter.finish();
    let report = report.map_err(|error| Failure::of_pool(cannot(), &error))?;
    let counts = format!(
        "{} inodes and {} blocks checked, {} blocks of data read",
        grouped(report.inodes_checked),
        grouped(report.blocks_checked),
        grouped(report.data_blocks_hashed)
    );
    let mut json = json!({
        "path": machine_name(path),
        "inodes_checked": report.inodes_checked,
        "blocks_checked": report.blocks_checked,
        "repaired": arguments.repair,
        "problems_left": if arguments.repair { report.problems_left } else { report.problems_total },
    });
    let left = report.problems_left;
    let found = PoolProblems::from(report);
    merge(&mut json, findings::json(&found));
    let text = format!("{}{counts}\n{}", findings::text(&found), verdict(&found, arguments.repair.then_some(left)));
    let exit = match (found.problems_total, found.stopped) {
        (0, false) => Exit::Done,
        (0, true) => Exit::Interrupted,
        _ => Exit::Damage,
    };
    Ok(Report { text, json, exit })
}

/// Returns the last line. `left` is the number of problems after a repair.
fn verdict(found: &PoolProblems, left: Option<u64>) -> String {
    match (found.problems_total, found.stopped, left) {
        (0, false, _) => "the pool is clean".to_owned(),
        (0, true, _) => "stopped before the end; nothing wrong so far".to_owned(),
        (count, true, _) => format!("{} so far; stopped before the end", problems(count)),
        (count, false, None) => {
            let settled = found.problems.iter().filter(|problem| problem.is_settled).count() as u64;
            let of_data = found.problems.iter().filter(|problem| problem.structure == DATA).count() as u64;
            let hint = match count {
                _ if settled == count => String::new(),
                // The others may be of either kind.
                _ if !findings::is_complete(found) => {
                    "`check --data --repair` repairs what can be repaired, and marks damaged data".to_owned()
                }
                _ if of_data == count => {
                    "`check --data --repair` marks the blocks, so that no later write is shared with them".to_owned()
                }
                _ => "`check --repair` repairs what can be repaired".to_owned(),
            };
            let lines = [Some(problems(count)).filter(|_| settled < count), Some(hint), findings::lost(found)];
            joined(lines)
        }
        (count, false, Some(0)) => format!("{} found and repaired; the pool is clean now", problems(count)),
        (count, false, Some(left)) => {
            let repaired = count.saturating_sub(left);
            let told = if repaired == 0 {
                format!(
                    "{} left, which no repair can mend; damaged data is marked, and no later write is shared with it",
                    problems(left)
                )
            } else {
                format!("{} found, {} of them repaired", problems(count), grouped(repaired))
            };
            joined([Some(told), None, findings::lost(found)])
        }
    }
}

pub(super) fn problems(count: u64) -> String {
    counted(count, "problem")
}

/// Returns what there is to say, each on a line of its own.
fn joined(lines: [Option<String>; 3]) -> String {
    let lines: Vec<String> = lines.into_iter().flatten().filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// Adds the members of object `from` to object `into`.
pub(super) fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{PoolProblem, ProblemPlace};

    #[test]
    fn only_a_check_that_came_to_its_end_says_clean() {
        let clean = PoolProblems::default();
        assert_eq!(verdict(&clean, None), "the pool is clean");
        assert!(!verdict(&PoolProblems { stopped: true, ..clean.clone() }, None).contains("clean"));
        let damaged = PoolProblems { problems_total: 2, ..clean };
        assert!(verdict(&damaged, None).starts_with("2 problems"));
        assert!(verdict(&damaged, Some(0)).ends_with("clean now"));
        assert_eq!(verdict(&damaged, Some(1)), "2 problems found, 1 of them repaired");
    }

    #[test]
    fn a_repair_is_offered_only_for_what_it_can_change() {
        let data = |is_settled| PoolProblem {
            structure: DATA.into(),
            block: Some(7),
            files: vec!["/a.raw".into()],
            places: vec![ProblemPlace { file: "/a.raw".into(), offset: 4096 }],
            has_more_places: false,
            is_settled,
            what: "wrong".into(),
        };
        let found = |problems: Vec<PoolProblem>| {
            let problems_total = problems.len() as u64;
            PoolProblems { problems, problems_total, ..PoolProblems::default() }
        };
        let lost = "1 block of data is lost: /a.raw, bytes 4,096 to 8,191. Write that content again from a backup, or \
                    delete the file.";
        assert_eq!(verdict(&found(vec![data(true)]), None), lost);
        let fresh = verdict(&found(vec![data(false)]), None);
        assert!(fresh.contains("check --data --repair` marks") && fresh.ends_with(lost), "{fresh}");
        let first = PoolProblems { problems_total: 50_000, ..found(vec![data(false)]) };
        let cut = verdict(&first, None);
        assert!(cut.contains("`check --data --repair` repairs what can be repaired, and marks damaged data"), "{cut}");
        assert!(cut.contains("\nAt least 1 block of data is lost"), "{cut}");
        let repaired = verdict(&found(vec![data(false)]), Some(1));
        assert!(repaired.starts_with("1 problem left") && repaired.ends_with(lost), "{repaired}");
        let other = PoolProblem { structure: "bitmap".into(), ..data(false) };
        let both = verdict(&found(vec![data(true), other]), None);
        assert!(both.contains("`check --repair` repairs what can be repaired") && both.ends_with(lost), "{both}");
    }
}

//! `onefold share clone`

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_block::{BLOCK_BYTES_U64, Show};
use onefold_share::clone::{
    CloneError, CloneOptions, CloneReport, ExistingFilePolicy, Registration, ScanReason, clone,
};
use onefold_share::policy::SharePolicy;
use onefold_share::state::{Notice, State};
use onefold_substrate::{ShareError, Sharing};
use serde_json::{Value, json};

use super::open::{OpenFileSystem, append};
use crate::cli::share::ShareCloneArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::size::human;

/// Memory for sorting the known blocks of the source.
const MEMORY_BYTES: usize = 128 << 20;

pub(crate) fn run(arguments: &ShareCloneArgs) -> Outcome<Report> {
    let cannot = format!("cannot clone `{}`", arguments.source.shown());
    let (folder, name) = target(&cannot, arguments)?;
    let file_system = OpenFileSystem::open(&cannot, &[arguments.source.clone(), folder])?;
    let [source, folder] = file_system.paths.as_slice() else { return Err(Failure::new(cannot)) };
    let target = folder.join(name);
    let notices = RefCell::new(Vec::new());
    let take = |notice: Notice| notices.borrow_mut().push(file_system.notice_text(notice));
    // If nothing is known yet, there is nothing to record about the clone, so no state folder is made for it.
    let looked = State::look(&file_system.substrate, &SystemClock, &take);
    let state = match looked {
        Ok(Some(_)) => State::open(&file_system.substrate, &SystemClock, &SystemRandom, &take).map(Some),
        other => other.map(|_| None),
    };
    let options = CloneOptions {
        existing: if arguments.force { ExistingFilePolicy::Replace } else { ExistingFilePolicy::Keep },
        temporary_folder: &onefold_disk::temporary_folder(),
        memory_bytes: MEMORY_BYTES,
        clock: &SystemClock,
        random: &SystemRandom,
    };
    let (state, unusable) = match state {
        Ok(state) => (state, None),
        Err(error) => (None, Some(error)),
    };
    if let Some(error) = unusable.as_ref().filter(|_| SharePolicy::of(file_system.substrate.abilities()).is_declared())
    {
        return Err(Failure::new(cannot)
            .because_of(format!("whether a host has left holes in it cannot be looked up: {error}"))
            .hint("run `onefold share mend` as a user who may, and try again"));
    }
    let cloned = clone(&file_system.substrate, state.as_ref(), source, &target, &options);
    let mut cloned = cloned.map_err(|error| failure(&cannot, &error))?;
    if let Some(error) = unusable {
        cloned.known = Registration::LeftToScan(ScanReason::Failed(error));
    }
    let mut text = text(&cloned);
    let notices = notices.take();
    append(&mut text, &notices);
    let json = json!({
        "root": machine_name(&file_system.root),
        "source": machine_name(source),
        "target": machine_name(&target),
        "bytes": cloned.bytes,
        "known_blocks": match cloned.known {
            Registration::Blocks(blocks) => Some(blocks),
            Registration::LeftToScan(_) => None,
        },
        "left_to_scan": match &cloned.known {
            Registration::Blocks(_) => Value::Null,
            Registration::LeftToScan(why) => json!(reason(why)),
        },
        "template_recorded": cloned.unrecorded.is_none(),
        "notices": notices,
    });
    Ok(Report { text, json, exit: Exit::Done })
}

/// Returns the folder of the clone, and its name there. If the target is a folder, the clone goes into it.
fn target(cannot: &str, arguments: &ShareCloneArgs) -> Outcome<(PathBuf, PathBuf)> {
    let target = &arguments.target;
    let no_name = || Failure::usage(cannot).because_of(format!("`{}` is not a file name", target.shown()));
    if target.is_dir() {
        let name = arguments.source.file_name().ok_or_else(no_name)?;
        return Ok((target.clone(), name.into()));
    }
    let name = target.file_name().ok_or_else(no_name)?;
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((folder.to_owned(), name.into()))
}

fn failure(cannot: &str, error: &CloneError) -> Failure {
    match error {
        CloneError::Exists { .. } => Failure::new(cannot).because(error).hint("--force puts the clone in its place"),
        CloneError::Unmended => Failure::new(cannot).because(error).hint("run `onefold share mend`, and try again"),
        CloneError::Source { why, .. } | CloneError::Target { why, .. } => Failure::of_io(cannot, why),
        CloneError::Clone(ShareError::Io(why)) => Failure::of_io(cannot, why),
        CloneError::Clone(_) | CloneError::Same => Failure::new(cannot).because(error),
    }
}

fn text(cloned: &CloneReport) -> String {
    let bytes = human(cloned.bytes);
    let text = match &cloned.known {
        Registration::Blocks(blocks) => {
            let known = human(blocks * BLOCK_BYTES_U64);
            format!("cloned {bytes}, of which {known} are known: the next run need not read it")
        }
        Registration::LeftToScan(why) => format!("cloned {bytes}; the next run reads it, for {}", reason(why)),
    };
    match &cloned.unrecorded {
        None => text,
        Some(why) => format!("{text}\nits template is not recorded ({why}): give `share status` --since"),
    }
}

fn reason(why: &ScanReason) -> String {
    match why {
        ScanReason::NoState => "nothing is known of this file system yet".to_owned(),
        ScanReason::SourceUnread => "the source was not read yet".to_owned(),
        ScanReason::SourceChanged => "the source changed since it was read".to_owned(),
        ScanReason::OtherDomain => "it belongs to another sharing domain than the source".to_owned(),
        ScanReason::CloneInUse => "another process uses the clone already".to_owned(),
        ScanReason::NotWorthIt => "that takes less work than a look-up of the source's known blocks".to_owned(),
        ScanReason::Failed(error) => format!("the source's known blocks cannot be looked up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_as_target_keeps_the_name() {
        let target = |source: &str, to: &str| {
            let arguments = ShareCloneArgs { source: source.into(), target: to.into(), force: false };
            target("cannot", &arguments)
                .map(|(folder, name)| (folder.to_str().unwrap().to_owned(), name.to_str().unwrap().to_owned()))
        };
        let pair = |folder: &str, name: &str| (folder.to_owned(), name.to_owned());
        assert_eq!(target("vm/a.raw", "/tmp").unwrap(), pair("/tmp", "a.raw"));
        assert_eq!(target("vm/a.raw", "/tmp/none.raw").unwrap(), pair("/tmp", "none.raw"));
        assert_eq!(target("vm/a.raw", "none.raw").unwrap(), pair(".", "none.raw"));
        assert!(target("vm/..", "/tmp").is_err());
    }
}

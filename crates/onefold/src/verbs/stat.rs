//! `onefold pool stat`

use std::path::Path;

use onefold_pool::FileStat;
use serde_json::{Value, json};

use crate::cli::Talk;
use crate::cli::pool::StatArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::{Report, print_failure, space};
use crate::progress::Meter;
use crate::store::{self, HostRoom, Intent, OpenStore, PoolFileKind, PoolPath, Store};

pub(super) fn run(arguments: &StatArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Read)?;
    let mut files = Vec::new();
    let mut exit = Exit::Done;
    if arguments.files {
        exit = stat_all(store.as_mut(), &mut files, talk, &interrupt)?;
    }
    for name in &arguments.names {
        let path = store.path(name)?;
        files.push((path.machine_name(), stat_one(store.as_mut(), &path, talk, &interrupt)??));
    }
    // From here on, nothing asks whether the user wants the command to stop, and a daemon may be slow to answer.
    interrupt.release();
    let pool = store.stat()?;
    let is_of_files = arguments.files || !files.is_empty();
    let text = match (is_of_files, store.is_served()) {
        (true, _) => space::files_text(&files, &pool),
        (false, true) => format!("{}\n{}", space::pool_text(&pool), space::filter_text(&pool)),
        // A pool that was opened only for this command has hardly begun to read its filter.
        (false, false) => space::pool_text(&pool),
    };
    let below = HostRoom::of(store.pool());
    let text = match below.as_ref().filter(|_| !is_of_files) {
        Some(below) => format!("{text}\n{}", below.text(pool.free_bytes)),
        None => text,
    };
    let files: Vec<Value> = files.iter().map(|(name, stat)| space::file_json(name, stat)).collect();
    let below = below.as_ref().map(HostRoom::json);
    Ok(Report { text, json: json!({ "pool": space::pool_json(&pool), "files": files, "below": below }), exit })
}

/// Returns the numbers of a file, or why there are none. The outer error is an interrupt.
fn stat_one(store: &mut dyn Store, path: &PoolPath, talk: Talk, interrupt: &Interrupt) -> Outcome<Outcome<FileStat>> {
    let meter = Meter::new(format!("reading {path}"), talk.quiet, interrupt.clone());
    let stat = store.file_stat(path, &meter);
    meter.finish();
    match interrupt.is_asked() {
        true => Err(Failure::interrupted("reading the numbers of files")),
        false => Ok(stat),
    }
}

/// Adds the numbers of all files, folder by folder, each in the order of its names. Files and folders that this user
/// may not read are named on stderr, and left out.
fn stat_all(
    store: &mut dyn Store,
    files: &mut Vec<(String, FileStat)>,
    talk: Talk,
    interrupt: &Interrupt,
) -> Outcome<Exit> {
    let mut exit = Exit::Done;
    let mut ahead = vec![store.path(Path::new("."))?];
    while let Some(folder) = ahead.pop() {
        if interrupt.is_asked() {
            return Err(Failure::interrupted("listing the files"));
        }
        let entries = match store.list(&folder) {
            Ok(entries) => entries,
            Err(failure) => {
                exit = left_out(store, &folder, &failure, exit);
                continue;
            }
        };
        for entry in &entries {
            if entry.kind != PoolFileKind::Regular {
                continue;
            }
            let path = folder.join(&entry.name);
            match stat_one(store, &path, talk, interrupt)? {
                Ok(stat) => files.push((path.machine_name(), stat)),
                Err(failure) => exit = left_out(store, &path, &failure, exit),
            }
        }
        let folders = entries.iter().rev().filter(|entry| entry.kind == PoolFileKind::Directory);
        ahead.extend(folders.map(|entry| folder.join(&entry.name)));
    }
    Ok(exit)
}

/// Tells why a path is left out, unless a user of the mounted pool has removed it meanwhile. Returns how the command
/// ends.
fn left_out(store: &dyn Store, path: &PoolPath, failure: &Failure, exit: Exit) -> Exit {
    if matches!(store.kind(path), Ok(PoolFileKind::Missing)) {
        return exit;
    }
    print_failure(failure, false);
    exit.worse(failure.exit)
}

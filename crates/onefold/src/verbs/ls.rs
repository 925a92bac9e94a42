//! `onefold pool ls`

use std::path::Path;

use onefold_block::Show;
use onefold_pool::FileStat;
use serde_json::{Value, json};

use crate::calendar;
use crate::cli::Talk;
use crate::cli::pool::LsArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Report, TextTable, machine_name, print_failure};
use crate::progress::Meter;
use crate::size::human;
use crate::store::{self, Intent, OpenStore, PoolEntry, PoolFileKind};

pub(super) fn run(arguments: &LsArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Read)?;
    let directory = store.path(arguments.directory.as_deref().unwrap_or(Path::new(".")))?;
    match store.kind(&directory)? {
        PoolFileKind::Directory => {}
        PoolFileKind::Missing => {
            let failure =
                Failure::new(format!("cannot list `{directory}`")).because_of("the pool has no such directory");
            return Err(failure.hint(format!("`onefold pool ls {}` lists its root", arguments.target.shown())));
        }
        PoolFileKind::Regular | PoolFileKind::Other => {
            let failure = Failure::new(format!("cannot list `{directory}`")).because_of("it is not a directory");
            return Err(failure.hint(format!(
                "`onefold pool stat {} {directory}` shows the numbers of a file",
                arguments.target.shown()
            )));
        }
    }
    let mut rows = Vec::new();
    let mut exit = Exit::Done;
    for entry in store.list(&directory)? {
        if entry.kind != PoolFileKind::Regular {
            rows.push(PoolLsRow { entry, stat: None });
            continue;
        }
        let path = directory.join(&entry.name);
        let meter = Meter::new(format!("reading {path}"), talk.quiet, interrupt.clone());
        let stat = store.file_stat(&path, &meter);
        meter.finish();
        if interrupt.is_asked() {
            return Err(Failure::interrupted("reading the numbers of files"));
        }
        match stat {
            Ok(stat) => rows.push(PoolLsRow { entry, stat: Some(stat) }),
            // A user of a mounted pool may have removed the file meanwhile.
            Err(_) if store.kind(&path)? == PoolFileKind::Missing => {}
            // This user may not read that file. The others are listed all the same.
            Err(failure) => {
                print_failure(&failure, false);
                exit = exit.worse(failure.exit);
                rows.push(PoolLsRow { entry, stat: None });
            }
        }
    }
    let entries: Vec<Value> = rows.iter().map(PoolLsRow::json).collect();
    let json = json!({ "directory": directory.machine_name(), "entries": entries });
    Ok(Report { text: text(&rows), json, exit })
}

/// One line of the listing.
struct PoolLsRow {
    entry: PoolEntry,
    /// The numbers of a regular file.
    stat: Option<FileStat>,
}

impl PoolLsRow {
    fn name(&self) -> String {
        let slash = if self.entry.kind == PoolFileKind::Directory { "/" } else { "" };
        format!("{}{slash}", self.entry.name.shown())
    }

    fn json(&self) -> Value {
        json!({
            "name": machine_name(Path::new(&self.entry.name)),
            "kind": match self.entry.kind {
                PoolFileKind::Directory => "directory",
                PoolFileKind::Regular => "file",
                PoolFileKind::Missing | PoolFileKind::Other => "other",
            },
            "size_bytes": self.entry.size_bytes,
            "modified_seconds": self.entry.modified_seconds,
            "distinct_bytes": self.stat.as_ref().map(|stat| stat.distinct_bytes),
            "unique_bytes": self.stat.as_ref().map(|stat| stat.unique_bytes),
            "is_estimated": self.stat.as_ref().map(|stat| stat.is_estimated),
        })
    }
}

fn text(rows: &[PoolLsRow]) -> String {
    if rows.is_empty() {
        return "the directory is empty".to_owned();
    }
    let mut table = TextTable::new(["name", "length", "changed (UTC)", "distinct", "only here"]);
    for row in rows {
        let found = |bytes: fn(&FileStat) -> u64| match &row.stat {
            Some(stat) if stat.is_estimated => format!("about {}", human(bytes(stat))),
            Some(stat) => human(bytes(stat)),
            None => String::new(),
        };
        table.row([
            row.name(),
            match row.entry.kind {
                PoolFileKind::Regular => human(row.entry.size_bytes),
                _ => String::new(),
            },
            calendar::minute(row.entry.modified_seconds),
            found(|stat| stat.distinct_bytes),
            found(|stat| stat.unique_bytes),
        ]);
    }
    format!("{table}\nonly here: the space that deleting this file alone would free")
}

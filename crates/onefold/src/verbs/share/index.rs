//! `onefold share index`

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_linux::LinuxSubstrate;
use onefold_share::format::entry::{ContentEntry, ContentPlace};
use onefold_share::format::shard::EntryCounts;
use onefold_share::references::{self, References};
use onefold_share::state::ask::StoredFiles;
use onefold_share::state::files::Marks;
use onefold_share::state::{State, StateError};
use serde_json::{Value, json};

use super::open::{OpenFileSystem, append};
use super::states;
use super::status::{nothing_known, noun, ratio};
use crate::cli::Talk;
use crate::cli::share::ShareIndexArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, TextTable, machine_name};
use crate::size::{grouped, human};

const CANNOT: &str = "cannot read the index";

/// The content of the index.
struct Summary {
    entries: EntryCounts,
    stored: StoredFiles,
    references: Option<References>,
}

pub(crate) fn run(arguments: &ShareIndexArgs, talk: Talk) -> Outcome<Report> {
    if arguments.dump && talk.json {
        return Err(Failure::usage(CANNOT).because_of("--dump prints lines, not JSON"));
    }
    let file_system = OpenFileSystem::to_look(CANNOT, std::slice::from_ref(&arguments.path))?;
    if arguments.dump {
        let dumped = file_system.look(CANNOT, |state| state.map_or(Ok(()), |state| dump(&file_system, state)));
        let (_, notices) = dumped?;
        for notice in notices {
            eprintln!("warning: {}", ShownText::line(&notice));
        }
        return Ok(Report::done("", Value::Null));
    }
    let (found, notices) = file_system.look(CANNOT, |state| {
        state.map(|state| summarize(state).map_err(|error| file_system.state_failure(CANNOT, error))).transpose()
    })?;
    let root = file_system.root.shown().to_string();
    let mut text = found.as_ref().map_or_else(|| nothing_known(&root), text);
    append(&mut text, &notices);
    let json =
        json!({ "root": machine_name(&file_system.root), "index": found.as_ref().map(json), "notices": notices });
    Ok(Report::done(text, json))
}

fn summarize(state: &State<'_, LinuxSubstrate>) -> Result<Summary, StateError> {
    let files = Marks::load(state)?;
    Ok(Summary {
        entries: state.count_entries()?,
        stored: state.index_stored()?,
        references: references::count(state, &files)?,
    })
}

/// Prints all entries as they are read. The reader may stop reading at any time.
fn dump(file_system: &OpenFileSystem, state: &State<'_, LinuxSubstrate>) -> Outcome<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut failed = None;
    let read = state.each_entry(|entry| match writeln!(out, "{}", line(&entry)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    let flushed = failed.map_or_else(|| out.flush(), Err);
    match flushed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::of_io("cannot print the index", &error));
        }
        _ => {}
    }
    read.map_err(|error| file_system.state_failure(CANNOT, error))
}

fn line(entry: &ContentEntry) -> String {
    match entry.place {
        ContentPlace::Unique(file, block) => format!("{} unique {file}:{}", entry.digest, block.0),
        ContentPlace::Shared(slot) => format!("{} shared {}:{}", entry.digest, slot.arena(), slot.index()),
    }
}

fn text(found: &Summary) -> String {
    let Summary { entries, stored, references } = found;
    let all = entries.unique + entries.shared;
    let mut table = TextTable::new(["", "entries", "of bytes"]);
    for (name, count) in [("blocks at one place", entries.unique), ("shared blocks", entries.shared), ("all", all)] {
        table.row([name.to_owned(), grouped(count), human(count * BLOCK_BYTES_U64)]);
    }
    let mut text = table.to_string();
    if all > 0 {
        text.push_str(&format!(
            "\nthe index takes {}: {:.2} bytes an entry, {:.2} % of the blocks that it describes",
            human(stored.bytes),
            ratio(stored.bytes, all),
            ratio(stored.bytes * 100, all * BLOCK_BYTES_U64)
        ));
    }
    if let Some(references) = references.as_ref().filter(|references| !references.slots.is_empty()) {
        let mut table = TextTable::new(["shared blocks that files refer to", "blocks"]);
        for (times, blocks) in classes(references) {
            table.row([times, grouped(blocks)]);
        }
        text.push_str(&format!("\n\n{table}"));
        if references.unmapped > 0 {
            let files = noun(references.unmapped, "file");
            text.push_str(&format!("\nwithout {} {files} that cannot be mapped", grouped(references.unmapped)));
        }
        if references.absent > 0 {
            text.push_str(&format!("\n{}", states::absent_line(references.absent)));
        }
    }
    text
}

/// Returns the numbers of blocks by their number of references, in classes that double.
fn classes(references: &References) -> Vec<(String, u64)> {
    let mut classes: Vec<(u32, u32, u64)> = Vec::new();
    for (times, blocks) in &references.slots {
        let last = if *times < 3 { *times } else { times.checked_next_power_of_two().unwrap_or(u32::MAX) };
        match classes.last_mut() {
            Some(class) if class.1 == last => class.2 += blocks,
            _ => classes.push((if last < 3 { last } else { last / 2 + 1 }, last, *blocks)),
        }
    }
    let name = |first, last| match (first, last) {
        (0, 0) => "never".to_owned(),
        (1, 1) => "once".to_owned(),
        (2, 2) => "twice".to_owned(),
        (first, last) => format!("{first} to {last} times"),
    };
    classes.into_iter().map(|(first, last, blocks)| (name(first, last), blocks)).collect()
}

fn json(found: &Summary) -> Value {
    let Summary { entries, stored, references } = found;
    let all = entries.unique + entries.shared;
    json!({
        "unique_entries": entries.unique,
        "shared_entries": entries.shared,
        "described_bytes": all * BLOCK_BYTES_U64,
        "bytes": stored.bytes,
        "bytes_per_entry": (all > 0).then(|| ratio(stored.bytes, all)),
        "files": stored.files,
        "generation": stored.generation,
        "references": references.as_ref().map(|references| json!({
            "slots_by_references": references.slots.iter().map(|(times, slots)| json!([times, slots])).collect::<Vec<_>>(),
            "unmapped_files": references.unmapped,
            "absent_files": references.absent,
        })),
    })
}

#[cfg(test)]
mod tests {
    use onefold_share::format::{FileBlock, FileNo, FingerprintPrefix, Slot};

    use super::*;

    #[test]
    fn entries_are_lines() {
        let digest = FingerprintPrefix([0xab; 12]);
        let unique = ContentEntry { digest, place: ContentPlace::Unique(FileNo(3), FileBlock(70)) };
        assert_eq!(line(&unique), "abababababababababababab unique 3:70");
        let shared = ContentEntry { digest, place: ContentPlace::Shared(Slot::new(2, 9).unwrap()) };
        assert_eq!(line(&shared), "abababababababababababab shared 2:9");
    }

    #[test]
    fn references_are_told_in_classes_that_double() {
        let slots = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (8, 7), (9, 8)].into();
        let found = classes(&References { slots, ..References::default() });
        let expected = [("never", 1), ("once", 2), ("twice", 3), ("3 to 4 times", 9), ("5 to 8 times", 13)];
        assert_eq!(found[..5], expected.map(|(name, blocks)| (name.to_owned(), blocks)));
        assert_eq!(found[5], ("9 to 16 times".to_owned(), 8));
    }

    #[test]
    fn the_text_says_what_the_index_takes() {
        let summary = Summary {
            entries: EntryCounts { unique: 100, shared: 100 },
            stored: StoredFiles { files: 1, bytes: 4000, generation: 2 },
            references: None,
        };
        let text = text(&summary);
        assert!(text.contains("20.00 bytes an entry, 0.48 % of the blocks that it describes"), "{text}");
        assert_eq!(json(&summary)["described_bytes"], 200 * 4096);
    }
}

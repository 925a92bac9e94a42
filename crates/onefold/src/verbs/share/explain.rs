//! `onefold share explain`

use std::path::PathBuf;

use onefold_block::{BLOCK_BYTES_U64, Show};
use onefold_share::block_state::{BlockState, CountOptions};
use onefold_share::explain::{
    BlockContent, EqualRun, ExplainError, ExplainedBlock, IndexAnswer, Verdict, explain, explain_file as whole_file,
};
use serde_json::{Value, json};

use super::domain::{found_json, reason};
use super::explain_file;
use super::guest_stretches::GuestStretches;
use super::open::{OpenFileSystem, append, state_failure};
use super::result::domain_words;
use super::states;
use super::status::noun;
use super::user_paths::UserPaths;
use crate::cli::share::ShareExplainArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::size::{grouped, human};
use crate::verbs::guest::{OwnedByte, owned_byte};

/// Maximum number of places named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

pub(crate) fn run(arguments: &ShareExplainArgs) -> Outcome<Report> {
    let cannot = format!("cannot explain `{}`", arguments.file.shown());
    let given: Vec<PathBuf> =
        [Some(&arguments.file), arguments.template.since.as_ref()].into_iter().flatten().cloned().collect();
    let file_system = OpenFileSystem::to_look(&cannot, &given)?;
    match arguments.offset {
        Some(offset) => explain_block(arguments, offset.0, &cannot, &file_system),
        None => explain_whole(arguments, &cannot, &file_system),
    }
}

/// Explains a whole file.
fn explain_whole(arguments: &ShareExplainArgs, cannot: &str, file_system: &OpenFileSystem) -> Outcome<Report> {
    let paths = &file_system.user_paths;
    let since = file_system.paths.get(1).map(PathBuf::as_path);
    let temporary_folder = &onefold_disk::temporary_folder();
    let options = CountOptions { since, temporary_folder, memory_bytes: states::MEMORY_BYTES };
    let ((found, has_state), notices) = file_system.look(cannot, |state| {
        let found = whole_file(&file_system.substrate, state, file_system.first(), &options);
        Ok((found.map_err(|error| failure(cannot, error, paths))?, state.is_some()))
    })?;
    let stretches = GuestStretches::of(&arguments.file, &found);
    let mut text = explain_file::text(&found, file_system.first(), paths, has_state);
    append(&mut text, &stretches.lines());
    append(&mut text, &notices);
    let mut whole = explain_file::json(&found);
    whole["unshared_stretches"] = stretches.json();
    let json = json!({
        "root": machine_name(&file_system.root),
        "path": machine_name(file_system.first()),
        "whole": whole,
        "notices": notices,
    });
    Ok(Report::done(text, json))
}

/// Explains the block at a byte of a file.
fn explain_block(
    arguments: &ShareExplainArgs,
    offset: u64,
    cannot: &str,
    file_system: &OpenFileSystem,
) -> Outcome<Report> {
    let paths = &file_system.user_paths;
    let since = file_system.paths.get(1).map(PathBuf::as_path);
    let ((found, has_state), notices) = file_system.look(cannot, |state| {
        let found = explain(&file_system.substrate, state, file_system.first(), offset, since);
        Ok((found.map_err(|error| failure(cannot, error, paths))?, state.is_some()))
    })?;
    let verdict = found.verdict(has_state);
    let mut text = lines(&found, verdict, paths).join("\n");
    let holds = !matches!(found.held, BlockContent::Hole | BlockContent::SetAside);
    let owned = holds.then(|| owned_byte(&arguments.file, found.block.0.saturating_mul(BLOCK_BYTES_U64)));
    append(&mut text, &guest_lines(owned.as_ref()));
    append(&mut text, &notices);
    let path = paths.of(file_system.first()).shown().to_string();
    let json = json!({
        "root": machine_name(&file_system.root),
        "path": machine_name(file_system.first()),
        "block": json(&found, verdict),
        "guest": owned.as_ref().and_then(|owned| owned.as_ref().ok()).map(OwnedByte::json),
        "guest_error": owned.as_ref().and_then(|owned| owned.as_ref().err()),
        "notices": notices,
    });
    Ok(Report::done(format!("`{path}`, block {}\n{text}", grouped(found.block.0)), json))
}

fn failure(cannot: &str, error: ExplainError, paths: &UserPaths) -> Failure {
    match error {
        ExplainError::State(error) => state_failure(cannot, error, paths),
        ExplainError::Io(error) => Failure::of_io(cannot, &error),
        ExplainError::BehindEnd { .. } => {
            Failure::usage(cannot).because(&error).hint("name an offset in bytes, below its length")
        }
    }
}

/// Returns the guest's use of the block, for people.
fn guest_lines(owned: Option<&Result<OwnedByte, String>>) -> Vec<String> {
    match owned {
        None => Vec::new(),
        Some(Ok(owned)) => owned.lines(),
        Some(Err(why)) => vec![format!("the guest's use of it is not known: {}", why.shown())],
    }
}

/// Returns the report for people: the content, its sharers, and the reason last.
fn lines(found: &ExplainedBlock, verdict: Verdict, paths: &UserPaths) -> Vec<String> {
    let mut lines = vec![where_it_lies(found)];
    let sharers = &found.sharers.blocks;
    for sharer in sharers.iter().take(NAMED_MAX) {
        let kind = if sharer.is_common { "the common volume " } else { "" };
        lines.push(format!("  also {kind}`{}` at byte {}", paths.of(&sharer.path).shown(), grouped(sharer.offset)));
    }
    if sharers.len() > NAMED_MAX {
        lines.push(format!("  and {} more; `--json` has them all", sharers.len() - NAMED_MAX));
    }
    for slot in &found.sharers.slots {
        lines.push(format!("  also slot {} of arena file {}", slot.index(), slot.arena()));
    }
    if found.sharers.unmapped > 0 {
        let files = noun(found.sharers.unmapped, "file");
        lines.push(format!("  {} {files} could not be examined", grouped(found.sharers.unmapped)));
    }
    if found.sharers.absent > 0 {
        lines.push(format!("  {}", states::absent_line(found.sharers.absent)));
    }
    if let Some(state) = found.state {
        lines.push(state_line(state, found.template.as_ref().map(|template| paths.of(template)).as_deref()));
    }
    if found.is_template_unknown {
        lines.push(
            "its template is recorded, but not known here: name it with `--since`, or scan its folder".to_owned(),
        );
    }
    if let Some(domain) = &found.domain {
        lines.push(format!("its file is in {}, {}", domain_words(&domain.membership.domain), reason(domain, paths)));
    }
    if let Some(digest) = found.digest {
        lines.push(format!("its content is {digest}; {}", index_line(&found.index, paths)));
    }
    lines.push(verdict_line(found, verdict, paths));
    if let Some(by) = found.opted_out.as_ref().filter(|_| verdict != Verdict::OptedOut) {
        lines.push(format!("the file is opted out by {}: nothing more of it will be shared", named(by, paths)));
    }
    lines
}

fn state_line(state: BlockState, template: Option<&std::path::Path>) -> String {
    let why = match (state, template) {
        (BlockState::Template, Some(template)) => {
            format!("the template `{}` has the same block there", template.shown())
        }
        (BlockState::Template, None) => "the template has the same block there".to_owned(),
        (BlockState::Own, _) => "no other image and no common volume has a block there".to_owned(),
        (BlockState::Common, _) => "a common volume has a block there".to_owned(),
        (BlockState::Shared, _) => "another block of an image lies there".to_owned(),
    };
    format!("its state is {}: {why}", states::name(state))
}

fn named(path: &std::path::Path, paths: &UserPaths) -> String {
    if path.as_os_str().is_empty() {
        "the root's attribute".to_owned()
    } else {
        format!("`{}`", paths.of(path).shown())
    }
}

fn where_it_lies(found: &ExplainedBlock) -> String {
    let held = match found.held {
        BlockContent::Hole => return "it is in a hole, and takes no room".to_owned(),
        BlockContent::SetAside => "it is set aside and was never written".to_owned(),
        BlockContent::Zeros => "it holds zeros".to_owned(),
        BlockContent::Data => "it holds data".to_owned(),
        BlockContent::Part(bytes) => format!("it holds the last {} bytes of the file", grouped(bytes)),
    };
    match found.place {
        Some(place) => format!("{held}, at byte {} of the device", grouped(place)),
        None if found.held == BlockContent::SetAside => held,
        None if found.is_unsettled => format!("{held} that is in memory only, and has no place on the device yet"),
        None => format!(
            "{held}, at no place that the file system reports: compressed, within its metadata, or not on the device yet"
        ),
    }
}

fn index_line(says: &IndexAnswer, paths: &UserPaths) -> String {
    let still = |is_equal: bool| if is_equal { "" } else { ", which holds something else by now" };
    match says {
        IndexAnswer::Nothing => "the index does not know it".to_owned(),
        IndexAnswer::ThisBlock => "the index knows it from this block".to_owned(),
        IndexAnswer::OtherBlock { path: None, .. } => "the index knows it from a file that is gone".to_owned(),
        IndexAnswer::OtherBlock { path: Some(path), block, is_equal } => {
            let byte = grouped(block.0.saturating_mul(BLOCK_BYTES_U64));
            format!("the index knows it from `{}` at byte {byte}{}", paths.of(path).shown(), still(*is_equal))
        }
        IndexAnswer::Slot { slot, is_equal } => {
            let (index, arena) = (slot.index(), slot.arena());
            format!("the index knows it as shared, in slot {index} of arena file {arena}{}", still(*is_equal))
        }
    }
}

fn verdict_line(found: &ExplainedBlock, verdict: Verdict, paths: &UserPaths) -> String {
    match verdict {
        Verdict::Shared => "it is shared".to_owned(),
        Verdict::SharedWithOthers => {
            "the file system reports it as shared, but not with a known file: with a snapshot, a copy that was never \
             scanned, or on Btrfs another part of the same extent"
                .to_owned()
        }
        Verdict::Nothing => "there is nothing to share".to_owned(),
        Verdict::PartOfBlock => "it is not shared: only whole blocks are".to_owned(),
        Verdict::OptedOut => {
            let by = found.opted_out.as_deref().unwrap_or(std::path::Path::new(""));
            format!("it is not shared: the file is opted out by {}; `onefold share include` takes that back", named(by, paths))
        }
        Verdict::NoState => "it is not shared: no `onefold share run` has read anything on this file system".to_owned(),
        Verdict::NeverSeen => "it is not shared: no `onefold share run` has come across the file".to_owned(),
        Verdict::Unread => {
            "it is not shared: the file was not read to its end, or is to be read again; the next run does that"
                .to_owned()
        }
        Verdict::Changed => "it is not shared: the file changed since it was read; the next run reads it".to_owned(),
        Verdict::Waits => {
            "it is not shared yet: it was read, and the next run looks for other blocks with its content".to_owned()
        }
        Verdict::Refused(why) => format!("it is not shared: the file system refuses the file, for {why}"),
        Verdict::Zeros => {
            "its zeros were not made a hole: the last run did not reach it, or could not change it".to_owned()
        }
        Verdict::Reserved => {
            "its zeros stay: the file had no hole when it was first read, so its room counts as reserved; \
             `fallocate --dig-holes` frees it"
                .to_owned()
        }
        Verdict::NoPlace => {
            "an equal block is known; for a block without a place, it is unknown whether the two are shared".to_owned()
        }
        Verdict::OnlyCopy => "it is not shared: no other block with its content is known".to_owned(),
        Verdict::OnlyInArena => {
            "it is not shared with another file, only ready to be: the other blocks with its content were overwritten or \
             deleted, or left alone by a run with a longer --min-run"
                .to_owned()
        }
        Verdict::OnlyStale => {
            "it is not shared: the block that the index names for its content has other content by now, and no other \
             block is known"
                .to_owned()
        }
        Verdict::Forgotten => {
            "it is not shared: the index has lost its content, and finds it again when the file changes, or when \
             `.onefold` is deleted and everything is read anew"
                .to_owned()
        }
        Verdict::LeftAlone => format!(
            "it is not shared, though an equal block is known{}: the last run left it alone, because its --min-run was \
             longer, or one of the files was busy or held by another host",
            found.run.map(run_words).unwrap_or_default()
        ),
    }
}

fn run_words(run: EqualRun) -> String {
    let at_least = if run.is_cut { "at least " } else { "" };
    format!("; the run of equal blocks around it is {at_least}{} long", human(run.blocks * BLOCK_BYTES_U64))
}

/// Returns the verdict's name for machines.
fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Shared => "shared",
        Verdict::SharedWithOthers => "shared_with_unknown",
        Verdict::Nothing => "nothing_to_share",
        Verdict::PartOfBlock => "part_of_block",
        Verdict::OptedOut => "opted_out",
        Verdict::NoState => "nothing_known",
        Verdict::NeverSeen => "never_seen",
        Verdict::Unread => "unread",
        Verdict::Changed => "changed",
        Verdict::Waits => "waits",
        Verdict::Refused(_) => "refused",
        Verdict::Zeros => "zeros",
        Verdict::Reserved => "reserved",
        Verdict::NoPlace => "no_place",
        Verdict::OnlyCopy => "only_copy",
        Verdict::OnlyInArena => "only_in_arena",
        Verdict::OnlyStale => "only_stale",
        Verdict::Forgotten => "forgotten",
        Verdict::LeftAlone => "left_alone",
    }
}

fn json(found: &ExplainedBlock, verdict: Verdict) -> Value {
    let sharers = found.sharers.blocks.iter();
    let offset = |block: u64| block.saturating_mul(BLOCK_BYTES_U64);
    json!({
        "number": found.block.0,
        "offset": offset(found.block.0),
        "holds": match found.held {
            BlockContent::Hole => "hole",
            BlockContent::SetAside => "set_aside",
            BlockContent::Zeros => "zeros",
            BlockContent::Data => "data",
            BlockContent::Part(_) => "part",
        },
        "device_offset": found.place,
        "state": found.state.map(states::name),
        "template": found.template.as_ref().map(machine_name),
        "template_is_unknown": found.is_template_unknown,
        "in_memory_only": found.is_unsettled,
        "file_system_says_shared": found.is_told_shared,
        "file_system_says_so_by_extent": found.is_told_by_extent,
        "shared_with": sharers.map(|sharer| json!({
            "path": machine_name(&sharer.path),
            "offset": sharer.offset,
            "common": sharer.is_common,
        })).collect::<Vec<_>>(),
        "slots": found.sharers.slots.iter().map(|slot| slot.number()).collect::<Vec<_>>(),
        "unmapped_files": found.sharers.unmapped,
        "absent_files": found.sharers.absent,
        "digest": found.digest.map(|digest| digest.to_string()),
        "file": found.standing.map(explain_file::standing_name),
        "domain": found.domain.as_ref().map(found_json),
        "waits_in_log": found.is_logged,
        "index": match &found.index {
            IndexAnswer::Nothing => Value::Null,
            IndexAnswer::ThisBlock => json!({ "place": "this_block" }),
            IndexAnswer::OtherBlock { path, block, is_equal } => json!({
                "place": "other_block",
                "path": path.as_ref().map(machine_name),
                "offset": offset(block.0),
                "is_equal": is_equal,
            }),
            IndexAnswer::Slot { slot, is_equal } => {
                json!({ "place": "slot", "slot": slot.number(), "is_equal": is_equal })
            }
        },
        "opted_out_by": found.opted_out.as_ref().map(machine_name),
        "refusal": found.refusal.map(|refusal| refusal.to_string()),
        "equal_run_bytes": found.run.map(|run| offset(run.blocks)),
        "equal_run_is_longer": found.run.map(|run| run.is_cut),
        "verdict": code(verdict),
    })
}

#[cfg(test)]
mod tests {
    use onefold_share::domain::{Cause, Domain, FoundDomain, Membership};
    use onefold_share::explain::{Sharer, Sharers};
    use onefold_share::format::{FileBlock, FingerprintPrefix, Slot};
    use onefold_share::status::FileStanding;
    use onefold_substrate::Refusal;

    use super::*;

    fn found() -> ExplainedBlock {
        let slot = Slot::new(1, 5).unwrap();
        ExplainedBlock {
            block: FileBlock(3),
            held: BlockContent::Data,
            is_reserved: false,
            place: Some(123_456),
            is_unsettled: false,
            is_told_shared: true,
            is_told_by_extent: false,
            sharers: Sharers {
                blocks: vec![Sharer { path: PathBuf::from("vm/b.raw"), offset: 8192, is_common: false }],
                slots: vec![slot],
                unmapped: 0,
                absent: 0,
            },
            digest: Some(FingerprintPrefix([1; 12])),
            standing: Some(FileStanding::Current),
            domain: None,
            is_logged: false,
            index: IndexAnswer::Slot { slot, is_equal: true },
            opted_out: None,
            refusal: None,
            state: Some(BlockState::Shared),
            template: None,
            is_template_unknown: false,
            run: None,
        }
    }

    fn paths() -> UserPaths {
        UserPaths::new(std::path::Path::new("/"), &[PathBuf::from("vm")], &[PathBuf::from("vm")])
    }

    #[test]
    fn a_shared_block_has_its_place_and_who_shares_it() {
        let found = found();
        let text = lines(&found, found.verdict(true), &paths()).join("\n");
        let expected = "it holds data, at byte 123,456 of the device\n  also `vm/b.raw` at byte 8,192\n  also slot 5 of arena \
                        file 1\nits state is shared: another block of an image lies there\nits content is \
                        010101010101010101010101; the index knows it as shared, in slot 5 of arena \
                        file 1\nit is shared";
        assert_eq!(text, expected);
        assert_eq!(json(&found, found.verdict(true))["verdict"], "shared");
    }

    #[test]
    fn reasons_name_what_the_user_can_do_or_measure() {
        let run = Some(EqualRun { blocks: 3, is_cut: false });
        let alone = ExplainedBlock { sharers: Sharers::default(), is_told_shared: false, run, ..found() };
        let text = |found: &ExplainedBlock| lines(found, found.verdict(true), &paths()).join("\n");
        let membership = Membership { domain: Domain::Owner(1000), tenant: 1000, owner: 64055 };
        let domain = FoundDomain { membership, cause: Cause::EarlierOwner, is_joined: false };
        let lent = ExplainedBlock { domain: Some(domain), ..alone.clone() };
        let expected = "its file is in the domain of user 1000, that of its owner before user 64055, who runs machines";
        assert!(text(&lent).contains(expected), "{}", text(&lent));
        assert_eq!(json(&lent, lent.verdict(true))["domain"]["domain"], "1000");
        assert!(text(&alone).contains("the run of equal blocks around it is 12.00 KiB long"), "{}", text(&alone));
        let unsettled = ExplainedBlock { place: None, is_unsettled: true, ..alone.clone() };
        assert!(text(&unsettled).starts_with("it holds data that is in memory only"), "{}", text(&unsettled));
        let refused = ExplainedBlock { refusal: Some(Refusal::Immutable), ..alone.clone() };
        assert!(
            text(&refused).ends_with("the file system refuses the file, for it is immutable"),
            "{}",
            text(&refused)
        );
        let out = ExplainedBlock { opted_out: Some(PathBuf::from("vm")), ..alone };
        assert!(text(&out).contains("opted out by `vm`"), "{}", text(&out));
        let both = ExplainedBlock { opted_out: Some(PathBuf::new()), ..found() };
        assert!(text(&both).ends_with("opted out by the root's attribute: nothing more of it will be shared"));
    }
}

//! The next generation of a common volume.
//!
//! 1. Lock the volume's file, and check that the name still leads to it. Remove the drafts of dead processes: they keep
//!    content alive.
//! 2. Clone the volume into a draft beside it, for the owner alone.
//! 3. Punch out the blocks of removed content. Then make names, inodes and blocks for new content, which may get these
//!    blocks. The new blocks are preallocated: they read as zeros.
//! 4. Fill the blocks of new content, by clone. Read all of it back. Content that does not match its digest is punched
//!    out before any name leads to it, so that no byte of it is left.
//! 5. Make the blocks of good content count as written, and remove the names of the rest. Write the record.
//! 6. Check that the draft has the record, and the new content where it was read back. Check the file system, and make
//!    the draft durable.
//! 7. Check that both names lead to the files that they should, and that the volume has not got another owner or
//!    domain. Rename the draft into place.
//!
//! A process that dies before the last step leaves the old generation. A process that loses the lock fails at the last
//! step: another process has removed its draft or replaced the volume.

use std::collections::BTreeSet;
use std::path::Path;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::random::Random;
use onefold_guest::filesystem::ExtentKind;
use onefold_substrate::{Substrate, ToolError, UserNo, VolumeTools};

use super::CommonError;
use super::commands::{Commands, PlacedContent, all_folders};
use super::contents::{self, ContentId, Contents, RECORD_FOLDER};
use super::draft::{Draft, FillOutcome, check_volume, draft_path, remove_drafts};
use super::names::hexadecimal;
use super::plan::{Addition, ChangeCounts, Plan};
use super::reading::{each_part, is_equal, places};
use super::sources::OpenSource;
use super::volume::{Volume, record};
use crate::pace::Pace;

/// Minimum length of a volume, in bytes.
pub const LENGTH_MIN: u64 = 16 << 20;

/// Makes an empty volume of `length` bytes, which belongs to `owner`.
///
/// # Errors
/// See [`CommonError`]; `Exists` if the path is taken.
pub fn create<S: Substrate + VolumeTools>(
    substrate: &S,
    random: &dyn Random,
    path: &Path,
    length: u64,
    owner: UserNo,
) -> Result<(), CommonError> {
    let length = length.max(LENGTH_MIN) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
    let draft_path = draft_path(random, path)?;
    let file = substrate.create(&draft_path).map_err(|error| CommonError::io(path, error))?;
    let draft = Draft { substrate, file, path: draft_path, volume: path, owner };
    substrate.set_len(&draft.file, length).map_err(|error| CommonError::io(path, error))?;
    substrate.make_volume(&draft.file, owner).map_err(|error| draft.tool_failure(error))?;
    let contents = Contents::default();
    let mut commands = Commands::default();
    commands.change_folders(&BTreeSet::new(), &all_folders(&contents, Some(RECORD_FOLDER)));
    let record = Record::begin(&contents, &mut commands);
    draft.edit(&commands)?;
    let mut commands = Commands::default();
    record.write(&draft, &contents, &mut commands)?;
    draft.edit(&commands)?;
    draft.seal()?;
    // Creating a link fails if the name is taken.
    substrate.link(&draft.path, path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => CommonError::Exists { path: path.to_owned() },
        _ => CommonError::io(path, error),
    })
}

/// Removes the contents of packages from a volume; `wants` gets the folder of each below `/dpkg`.
///
/// # Errors
/// See [`CommonError`].
pub fn remove<S: Substrate + VolumeTools>(
    substrate: &S,
    random: &dyn Random,
    path: &Path,
    wants: &dyn Fn(&str) -> bool,
) -> Result<ChangeCounts, CommonError> {
    let volume = lock(substrate, path)?;
    let is_removed = |path: &String| path.split('/').nth(2).is_some_and(wants);
    let removed: Vec<_> =
        volume.contents.iter().filter(|(_, content)| content.paths.iter().any(is_removed)).map(|(id, _)| *id).collect();
    let pace = Pace::unlimited();
    let change = Change { removed: &removed, additions: &[], open: &mut |_| None, check: &|| Ok(()), pace: &pace };
    change.make(substrate, random, &volume)
}

/// Checks the file system in a volume, and compares all contents with their digests. Returns how many bytes were read.
///
/// # Errors
/// `Damaged`, and others; see [`CommonError`].
pub fn check<S: Substrate + VolumeTools>(substrate: &S, volume: &Volume<S::File>) -> Result<u64, CommonError> {
    let damaged = |why: String| CommonError::Damaged { path: volume.path.clone(), why };
    substrate.check_volume(&volume.file, volume.owner).map_err(|error| match error {
        ToolError::Failed { complaint, .. } => damaged(complaint),
        other => other.into(),
    })?;
    let ids: Vec<_> = volume.contents.iter().collect();
    let paths = ids.iter().filter_map(|(id, content)| Some((content.paths.first()?.as_str(), id.1)));
    let places = places(substrate, &volume.file, &volume.path, paths, ExtentKind::Written)?;
    let pace = Pace::unlimited();
    let mut bytes: u64 = 0;
    for ((id, content), places) in ids.iter().zip(places) {
        let is_good = match places {
            Some(places) => is_equal(substrate, &volume.file, &places, id, &volume.path, pace.reading())?,
            None => false,
        };
        if !is_good {
            let path = content.paths.first().map_or("", String::as_str);
            return Err(damaged(format!("`{path}` is not what its digest {} says", hexadecimal(&id.0))));
        }
        bytes = bytes.saturating_add(id.1);
    }
    Ok(bytes)
}

/// Opens a volume and takes its lock.
///
/// # Errors
/// `Busy` where another process has the lock.
pub(super) fn lock<S: Substrate>(substrate: &S, path: &Path) -> Result<Volume<S::File>, CommonError> {
    let volume = super::volume::open(substrate, path)?;
    if !substrate.try_lock(&volume.file).map_err(|error| CommonError::io(path, error))? {
        return Err(CommonError::Busy { path: path.to_owned() });
    }
    check_volume(substrate, &volume)?;
    remove_drafts(substrate, path)?;
    Ok(volume)
}

/// A change of a volume whose lock is held.
pub(super) struct Change<'c, F> {
    pub(super) removed: &'c [ContentId],
    pub(super) additions: &'c [Addition],
    /// Opens the files that give content.
    pub(super) open: &'c mut OpenSource<'c, F>,
    /// Checks that the volume may still get content of these files.
    pub(super) check: &'c dyn Fn() -> Result<(), CommonError>,
    /// Asked before each addition, and at each read of it.
    pub(super) pace: &'c Pace<'c>,
}

impl<F> Change<'_, F> {
    /// Makes the next generation of a volume; none if nothing changes.
    ///
    /// # Errors
    /// See [`CommonError`]; the volume is unchanged then.
    pub(super) fn make<S: Substrate<File = F> + VolumeTools>(
        self,
        substrate: &S,
        random: &dyn Random,
        volume: &Volume<F>,
    ) -> Result<ChangeCounts, CommonError> {
        let Change { removed, additions, open, check, pace } = self;
        let mut plan = Plan::new(&volume.contents, removed, additions);
        if plan.contents == volume.contents {
            return Ok(plan.changed);
        }
        check()?;
        let draft = Draft::of(substrate, random, volume)?;
        let mut commands = Commands::default();
        let old_paths = plan.removed.iter().filter_map(|(id, content)| Some((content.paths.first()?.as_str(), id.1)));
        for unneeded in places(substrate, &volume.file, &volume.path, old_paths, ExtentKind::Written)? {
            draft.punch(&unneeded.unwrap_or_default())?;
        }
        plan.make(&volume.contents, &mut commands);
        let record = Record::begin(&plan.contents, &mut commands);
        draft.edit(&commands)?;
        let made = plan.made.iter().map(|(addition, path)| (path.as_str(), addition.id.1));
        let made = places(substrate, &draft.file, &volume.path, made, ExtentKind::Unwritten)?;
        let (before, mut good) = (plan.contents.clone(), Vec::new());
        let mut commands = Commands::default();
        for ((addition, path), places) in std::mem::take(&mut plan.made).into_iter().zip(made) {
            let places = places.ok_or_else(|| CommonError::Damaged {
                path: volume.path.clone(),
                why: format!("`{path}` did not get its blocks"),
            })?;
            pace.go_on()?;
            match draft.fill(addition, &places, open, pace.reading())? {
                FillOutcome::Good => {
                    commands.make_written(&path, &places);
                    good.push((path, addition.id.1, places));
                    plan.changed.added += 1;
                    plan.changed.added_bytes = plan.changed.added_bytes.saturating_add(addition.id.1);
                    continue;
                }
                FillOutcome::Differs => plan.changed.differed += 1,
                FillOutcome::Refused => plan.changed.refused += 1,
            }
            draft.punch(&places)?;
            if let Some(content) = plan.contents.remove(&addition.id) {
                commands.remove(&content.paths);
            }
        }
        if plan.contents == volume.contents {
            return Ok(plan.changed);
        }
        let folders = |contents| all_folders(contents, Some(RECORD_FOLDER));
        commands.change_folders(&folders(&before), &folders(&plan.contents));
        record.write(&draft, &plan.contents, &mut commands)?;
        draft.edit(&commands)?;
        see_contents(&draft, &plan.contents, &good)?;
        draft.take_choices(&volume.file)?;
        draft.seal()?;
        check()?;
        draft.publish(volume)?;
        Ok(plan.changed)
    }
}

/// Checks that a draft has a record of `contents`, and files where `good` content was read back. Each of these needs
/// its path, its length and its places.
fn see_contents<S: Substrate + VolumeTools>(
    draft: &Draft<'_, S>,
    contents: &Contents,
    good: &[(String, u64, Vec<PlacedContent>)],
) -> Result<(), CommonError> {
    let damaged = |why: String| CommonError::Damaged { path: draft.volume.to_owned(), why };
    if record(draft.substrate, &draft.file, draft.volume)? != *contents {
        return Err(damaged("`debugfs` did not write its record".to_owned()));
    }
    let paths = good.iter().map(|(path, length, _)| (path.as_str(), *length));
    let found = places(draft.substrate, &draft.file, draft.volume, paths, ExtentKind::Written)?;
    match good.iter().zip(found).find(|((.., places), found)| found.as_ref() != Some(places)) {
        Some(((path, ..), _)) => Err(damaged(format!("`debugfs` did not make `{path}` as it should be"))),
        None => Ok(()),
    }
}

/// The record of a generation. Its blocks are made before it is known which contents are good.
struct Record {
    bytes: u64,
}

impl Record {
    fn begin(contents: &Contents, commands: &mut Commands) -> Record {
        let bytes = (contents.encode().len() as u64).next_multiple_of(BLOCK_BYTES_U64);
        commands.make_file(contents::PATH, bytes, bytes / BLOCK_BYTES_U64);
        Record { bytes }
    }

    /// Writes the record of `contents`, which must not be more than the record was begun with.
    fn write<S: Substrate + VolumeTools>(
        &self,
        draft: &Draft<'_, S>,
        contents: &Contents,
        commands: &mut Commands,
    ) -> Result<(), CommonError> {
        let mut text = contents.encode().into_bytes();
        text.resize(usize::try_from(self.bytes).unwrap_or(text.len()).max(text.len()), b'\n');
        let path = std::iter::once((contents::PATH, self.bytes));
        let places = places(draft.substrate, &draft.file, draft.volume, path, ExtentKind::Unwritten)?;
        let places = places.into_iter().next().flatten().ok_or_else(|| CommonError::Damaged {
            path: draft.volume.to_owned(),
            why: "its record did not get its blocks".to_owned(),
        })?;
        for (place, part) in each_part(&places, &text) {
            let written = draft.substrate.write_at(&draft.file, place.saturating_mul(BLOCK_BYTES_U64), part);
            written.map_err(|error| CommonError::io(draft.volume, error))?;
        }
        commands.make_written(contents::PATH, &places);
        Ok(())
    }
}

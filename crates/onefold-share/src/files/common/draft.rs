//! A draft: the next generation of a volume, made as a clone beside it.

use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::random::Random;
use onefold_substrate::{Access, At, FileHandle, ListedKind, ShareError, Substrate, ToolError, UserNo, VolumeTools};

use super::CommonError;
use super::commands::{Commands, PlacedContent};
use super::names::hexadecimal;
use super::plan::{Addition, Origin};
use super::reading::{is_equal, pairs};
use super::sources::OpenSource;
use super::volume::{ATTRIBUTE, ATTRIBUTE_VALUE, Volume, draft_prefix};
use crate::domain::label;
use crate::opt_out;
use crate::pace::ReadPace;

/// Result of filling the blocks of a content.
pub(super) enum FillOutcome {
    Good,
    Differs,
    Refused,
}

/// A generation in the making. Dropping this removes its file.
pub(super) struct Draft<'a, S: Substrate> {
    pub(super) substrate: &'a S,
    pub(super) file: S::File,
    pub(super) path: PathBuf,
    pub(super) volume: &'a Path,
    pub(super) owner: UserNo,
}

impl<S: Substrate> Drop for Draft<'_, S> {
    fn drop(&mut self) {
        // A renamed draft has lost its name. If the removal fails, the next change of the volume removes the draft.
        let _ = self.substrate.remove(&self.path);
    }
}

impl<S: Substrate> Draft<'_, S> {
    fn io<T>(&self, outcome: std::io::Result<T>) -> Result<T, CommonError> {
        outcome.map_err(|error| CommonError::io(self.volume, error))
    }

    /// Takes over the label and the opt-out of the volume's file, which a clone of its blocks lacks. A user neither
    /// sees nor sets a label.
    pub(super) fn take_choices(&self, volume: &S::File) -> Result<(), CommonError> {
        for name in [label::ATTRIBUTE, opt_out::ATTRIBUTE] {
            let chosen = self.io(self.substrate.attribute_of(volume, name))?;
            if self.io(self.substrate.attribute_of(&self.file, name))? != chosen {
                self.io(self.substrate.set_attribute_of(&self.file, name, chosen.as_deref()))?;
            }
        }
        Ok(())
    }
}

impl<'a, S: Substrate + VolumeTools> Draft<'a, S> {
    pub(super) fn of(
        substrate: &'a S,
        random: &dyn Random,
        volume: &'a Volume<S::File>,
    ) -> Result<Draft<'a, S>, CommonError> {
        let path = draft_path(random, &volume.path)?;
        let file =
            substrate.create_clone(&volume.file, &path).map_err(|error| CommonError::share(&volume.path, error))?;
        Ok(Draft { substrate, file, path, volume: &volume.path, owner: volume.owner })
            .and_then(|draft| draft.prepare(&volume.file).map(|()| draft))
    }

    /// Gives the draft to the owner of the volume, with the choices that were made for the volume.
    fn prepare(&self, volume: &S::File) -> Result<(), CommonError> {
        self.io(self.substrate.give(&self.file, self.owner))?;
        self.take_choices(volume)
    }

    pub(super) fn tool_failure(&self, error: ToolError) -> CommonError {
        match error {
            ToolError::Failed { complaint, .. } if complaint.contains("Could not allocate") => {
                CommonError::Full { path: self.volume.to_owned(), why: complaint }
            }
            other => other.into(),
        }
    }

    pub(super) fn edit(&self, commands: &Commands) -> Result<(), CommonError> {
        let edited = self.substrate.edit_volume(&self.file, self.owner, commands.text());
        edited.map_err(|error| self.tool_failure(error))
    }

    pub(super) fn punch(&self, places: &[PlacedContent]) -> Result<(), CommonError> {
        places.iter().try_for_each(|place| {
            let [offset, length] = [place.block, place.count].map(|blocks| blocks.saturating_mul(BLOCK_BYTES_U64));
            self.io(self.substrate.punch(&self.file, offset, length))
        })
    }

    /// Fills the blocks of a content, and reads them back within the limit on reads.
    pub(super) fn fill(
        &self,
        addition: &Addition,
        places: &[PlacedContent],
        open: &mut OpenSource<'_, S::File>,
        pace: ReadPace<'_>,
    ) -> Result<FillOutcome, CommonError> {
        let Origin { image, pieces } = &addition.origin;
        let Some(image) = open(*image) else { return Ok(FillOutcome::Refused) };
        let count_max = self.substrate.abilities().share_bytes_max / BLOCK_BYTES_U64;
        for (source, block, count) in pairs(pieces, places, count_max) {
            let [source, block, length] = [source, block, count].map(|blocks| blocks.saturating_mul(BLOCK_BYTES_U64));
            let (from, into) = (At { file: &*image, offset: source }, At { file: &self.file, offset: block });
            match self.substrate.clone_range(from, into, length) {
                Ok(()) => {}
                Err(ShareError::Full) => return Err(CommonError::share(self.volume, ShareError::Full)),
                // The image became shorter, cannot be read, or does not share.
                Err(_) => return Ok(FillOutcome::Refused),
            }
        }
        let is_good = is_equal(self.substrate, &self.file, places, &addition.id, self.volume, pace)?;
        Ok(if is_good { FillOutcome::Good } else { FillOutcome::Differs })
    }

    /// Checks the draft, marks it, and makes it durable.
    pub(super) fn seal(&self) -> Result<(), CommonError> {
        self.io(self.substrate.give(&self.file, self.owner))?;
        self.io(self.substrate.set_attribute_of(&self.file, ATTRIBUTE, Some(ATTRIBUTE_VALUE)))?;
        self.substrate.check_volume(&self.file, self.owner).map_err(|error| match error {
            ToolError::Failed { complaint, .. } => {
                CommonError::Damaged { path: self.volume.to_owned(), why: complaint }
            }
            other => other.into(),
        })?;
        self.io(self.substrate.sync(&self.file))
    }

    pub(super) fn publish(&self, volume: &Volume<S::File>) -> Result<(), CommonError> {
        let stat = self.io(self.substrate.stat(&self.file))?;
        check_name(self.substrate, &self.path, &stat.handle, self.volume)?;
        check_volume(self.substrate, volume)?;
        self.io(self.substrate.rename(&self.path, &volume.path))
    }
}

/// Returns a path for a draft beside a volume.
pub(super) fn draft_path(random: &dyn Random, path: &Path) -> Result<PathBuf, CommonError> {
    let refused = |why: &str| CommonError::Refused { path: path.to_owned(), why: why.to_owned() };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| refused("its name is not UTF-8"))?;
    let mut bytes = [0; 8];
    random.fill(&mut bytes).map_err(|error| CommonError::io(path, error))?;
    Ok(path.with_file_name(format!("{}{}", draft_prefix(name), hexadecimal(&bytes))))
}

/// Removes the drafts that dead processes have left beside a volume. The lock of the volume is held.
pub(super) fn remove_drafts<S: Substrate>(substrate: &S, path: &Path) -> Result<(), CommonError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(prefix) = path.file_name().and_then(|name| name.to_str()).map(draft_prefix) else { return Ok(()) };
    let listed = substrate.list(folder).map_err(|error| CommonError::io(folder, error))?;
    for entry in listed.iter().filter(|entry| entry.kind == ListedKind::File) {
        if entry.name.to_str().is_some_and(|name| name.starts_with(&prefix)) {
            let draft = folder.join(&entry.name);
            substrate.remove(&draft).map_err(|error| CommonError::io(&draft, error))?;
        }
    }
    Ok(())
}

/// Checks that a volume has its name, and the owner to whom the next generation is given.
pub(super) fn check_volume<S: Substrate>(substrate: &S, volume: &Volume<S::File>) -> Result<(), CommonError> {
    check_name(substrate, &volume.path, &volume.handle, &volume.path)?;
    let stat = substrate.stat(&volume.file).map_err(|error| CommonError::io(&volume.path, error))?;
    match stat.owner == volume.owner.0 {
        true => Ok(()),
        false => Err(CommonError::Replaced { path: volume.path.clone() }),
    }
}

/// Checks that a name leads to a file.
fn check_name<S: Substrate>(substrate: &S, name: &Path, handle: &FileHandle, volume: &Path) -> Result<(), CommonError> {
    let replaced = || CommonError::Replaced { path: volume.to_owned() };
    let file = substrate.open(name, Access::Read).map_err(|_| replaced())?;
    let stat = substrate.stat(&file).map_err(|error| CommonError::io(volume, error))?;
    if stat.handle == *handle { Ok(()) } else { Err(replaced()) }
}

#[cfg(test)]
mod tests {
    use onefold_substrate::{Files, Names, Sharing};
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulationOptions};

    use super::super::contents::Contents;
    use super::*;

    /// Regression: the first change of a volume dropped its label. Its content then shared with images of the owner's
    /// domain.
    #[test]
    fn a_draft_has_the_label_and_the_opt_out_of_the_volume() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let [path, draft_path] = ["volume", "draft"].map(Path::new);
        let volume = substrate.create(path).unwrap();
        let file = substrate.create_clone(&volume, draft_path).unwrap();
        let owner = UserNo::ROOT;
        let draft = Draft { substrate: &substrate, file, path: draft_path.to_owned(), volume: path, owner };
        let set = |path, name, value: Option<&str>| {
            substrate.set_attribute(path, name, value.map(str::as_bytes)).unwrap();
        };
        let choices =
            |path| [label::ATTRIBUTE, opt_out::ATTRIBUTE].map(|name| substrate.attribute(path, name).unwrap());
        for (label, choice) in [(None, None), (Some("customer-a"), Some("on")), (None, Some("off")), (Some("b"), None)]
        {
            set(path, label::ATTRIBUTE, label);
            set(path, opt_out::ATTRIBUTE, choice);
            draft.take_choices(&volume).unwrap();
            assert_eq!(choices(draft_path), [label, choice].map(|value| value.map(|value| value.as_bytes().to_vec())));
        }
    }

    /// Regression: the next generation went to the earlier owner of a volume that was given away meanwhile.
    #[test]
    fn a_volume_that_was_given_away_or_renamed_gets_no_next_generation() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.mount(HostNo(0));
        let [path, other] = ["volume", "other"].map(Path::new);
        let file = host.substrate.create(path).unwrap();
        let handle = host.substrate.stat(&file).unwrap().handle;
        let volume = Volume { file, path: path.to_owned(), handle, owner: UserNo::ROOT, contents: Contents::default() };
        let is_good = || match check_volume(&host.substrate, &volume) {
            Ok(()) => true,
            Err(CommonError::Replaced { .. }) => false,
            Err(other) => panic!("{other}"),
        };
        assert!(is_good());
        file_system.give_image(host.no, path, 4711).unwrap();
        assert!(!is_good());
        file_system.give_image(host.no, path, 0).unwrap();
        assert!(is_good());
        host.substrate.rename(path, other).unwrap();
        assert!(!is_good());
    }
}

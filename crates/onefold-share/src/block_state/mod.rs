//! The state of each block of an image, from the maps of the host: template, own, common or shared (FBS, Figure 1).
//!
//! | state | the place of the block | becomes |
//! |---|---|---|
//! | template | that of the same block of the image's template | own, by a write |
//! | own | no other image and no common volume has a block there | common by a pass, or shared if no volume takes it |
//! | common | a common volume has a block there, too | own, by a write or when the volume drops the block |
//! | shared | another block of an image is there, too | own, by a write |
//!
//! The first state that applies counts, in the order template, common, shared, own. No state is stored: it follows from
//! the maps alone. Only the template of a clone is recorded (`template`). An arena slot is not an image: a block to
//! which only its image and a slot refer is own.
//!
//! [`count()`] reads the maps of all known files once. Their extents are sorted by place (`rows`), in bounded memory,
//! and `sweep` counts how many files have each place.

mod rows;
mod sweep;
pub mod template;

use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, Substrate};

use self::rows::{CountedFile, Image, Kind, Rows};
use self::sweep::Sweep;
use self::template::{Template, TemplateImage, Templates};
use crate::files::common;
use crate::format::mark::Mark;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// The state of a block that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// It is at the place where the template of its image has the block of the same number.
    Template,
    /// No other block of an image or a common volume is at its place.
    Own,
    /// A block of a common volume is at its place, too.
    Common,
    /// Another block of an image is at its place, too.
    Shared,
}

/// Number of bytes in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// In the state `Template`.
    pub template: u64,
    /// In the state `Own`.
    pub own: u64,
    /// In the state `Common`.
    pub common: u64,
    /// In the state `Shared`.
    pub shared: u64,
    /// Without a place in the host's map, so that their state is unknown: they are compressed, stored within metadata,
    /// or not on the device yet.
    pub unplaced: u64,
}

/// The states of the blocks of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageStates {
    /// The image.
    pub path: PathBuf,
    /// Its template; `None` if none is known.
    pub template: Option<PathBuf>,
    /// Its length, in bytes.
    pub length: u64,
    /// Its blocks, except holes and unwritten ones.
    pub bytes: StateBytes,
}

impl StateBytes {
    /// Returns the number of bytes that hold data.
    #[must_use]
    pub fn data(&self) -> u64 {
        let parts = [self.template, self.own, self.common, self.shared, self.unplaced];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// A common volume, and the part of it that images use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUse {
    /// The volume.
    pub path: PathBuf,
    /// The contents that it holds, in bytes.
    pub held: u64,
    /// The part of them to which images refer, in bytes. A pass drops the rest, unless a user added it.
    pub used: u64,
}

/// The states of the blocks of all known images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    /// The images, by their numbers in the state folder.
    pub images: Vec<ImageStates>,
    /// Room on the device that images, common volumes and the arena take, each place counted once, in bytes. Data
    /// without a place counts as often as it occurs.
    pub taken: u64,
    /// The common volumes.
    pub volumes: Vec<VolumeUse>,
    /// Files whose maps could not be read. They are not among the images, and count as no reference.
    pub unmapped: u64,
    /// Known files that are not where the last scan found them: moved, replaced or removed. They are not among the
    /// images, and count as no reference.
    pub absent: u64,
    /// Images whose recorded template is neither a known file nor the named one. Their blocks count as if none were
    /// recorded.
    pub unknown_templates: u64,
}

impl States {
    /// Returns the length of all images, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.images.iter().map(|image| image.length).fold(0, u64::saturating_add)
    }

    /// Returns the room that is saved at present, in bytes: the data of all images, less the room that is taken.
    #[must_use]
    pub fn saved(&self) -> u64 {
        let data = self.images.iter().map(|image| image.bytes.data()).fold(0, u64::saturating_add);
        data.saturating_sub(self.taken)
    }
}

/// Options for counting states.
#[derive(Clone, Copy, Debug)]
pub struct CountOptions<'a> {
    /// The template of all images without a recorded one.
    pub since: Option<&'a Path>,
    /// Folder for data that does not fit into memory.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
}

/// Why states cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The template that the user named cannot be opened.
    #[error("{0}")]
    Template(io::Error),
    /// A temporary file failed.
    #[error("{0}")]
    Temporary(io::Error),
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Counts the bytes of each known image by state.
///
/// # Errors
/// See [`CountError`]. A file that cannot be mapped is counted as such.
pub fn count<S: Substrate>(state: &State<'_, S>, options: &CountOptions<'_>) -> Result<States, CountError> {
    count_until(state, options, &|| false)
}

/// Does the same as [`count()`], until `is_over` returns true. It is called for each extent.
///
/// # Errors
/// As [`count()`]; [`StateError::Interrupted`] if `is_over` has ended it.
pub fn count_until<S: Substrate>(
    state: &State<'_, S>,
    options: &CountOptions<'_>,
    is_over: &dyn Fn() -> bool,
) -> Result<States, CountError> {
    let go_on = || if is_over() { Err(CountError::from(StateError::Interrupted)) } else { Ok(()) };
    let substrate = state.substrate();
    let marks = Marks::load(state)?;
    let named = options.since.map(|path| TemplateImage::named(substrate, path)).transpose();
    let templates = Templates::of_known(&marks).with_named(named.map_err(CountError::Template)?);
    let mut rows = Rows::new(options.temporary_folder, options.memory_bytes, is_over);
    let mut states = States::default();
    for mark in marks.of_files() {
        go_on()?;
        match add(substrate, &templates, mark, &mut rows) {
            Ok(AddOutcome::Whole) => {}
            Ok(AddOutcome::WithoutTemplate) => states.unknown_templates += 1,
            Ok(AddOutcome::Absent) => states.absent += 1,
            Err(AddError::Map(error)) if onefold_substrate::is_gone(&error) => states.absent += 1,
            Err(AddError::Map(_)) => states.unmapped += 1,
            Err(AddError::End(error)) => return Err(error),
        }
    }
    for number in state.arenas()? {
        let Some(file) = state.open_arena(number, Access::Read)? else { continue };
        match rows.add_arena(substrate, &file) {
            Ok(()) => {}
            Err(AddError::Map(_)) => states.unmapped += 1,
            Err(AddError::End(error)) => return Err(error),
        }
    }
    let (merged, mut files) = rows.finish().map_err(CountError::Temporary)?;
    let mut sweep = Sweep::new(state.policy().tells_last_reference);
    for row in merged {
        go_on()?;
        sweep.add(row.map_err(CountError::Temporary)?, &mut files);
    }
    states.taken = sweep.finish(&mut files);
    for file in files.into_iter().filter(|file| file.is_whole) {
        match file.kind {
            Kind::Volume => states.volumes.push(VolumeUse { path: file.path, held: file.held, used: file.used }),
            _ => {
                states.taken = states.taken.saturating_add(file.bytes.unplaced);
                let CountedFile { path, template, length, bytes, .. } = file;
                states.images.push(ImageStates { path, template, length, bytes });
            }
        }
    }
    Ok(states)
}

/// Result of adding a file.
enum AddOutcome {
    /// All of it.
    Whole,
    /// All of it, but its recorded template is not known.
    WithoutTemplate,
    /// Nothing, because another file has its name.
    Absent,
}

/// Why a file has no rows, or not all of them.
enum AddError {
    /// The file, or its map, could not be read.
    Map(io::Error),
    /// The work ends: a temporary file failed, or the caller wants no more.
    End(CountError),
}

impl From<io::Error> for AddError {
    fn from(error: io::Error) -> AddError {
        AddError::Map(error)
    }
}

/// Adds the rows of a file, if it is where its mark says.
fn add<S: Substrate>(
    substrate: &S,
    templates: &Templates<'_, S::File>,
    mark: &Mark,
    rows: &mut Rows<'_>,
) -> Result<AddOutcome, AddError> {
    let file = substrate.open(&mark.path, Access::Read)?;
    let stat = substrate.stat(&file)?;
    if stat.handle != mark.handle {
        return Ok(AddOutcome::Absent);
    }
    if common::is_marked(substrate, &mark.path) {
        rows.add_volume(substrate, &file, &mark.path)?;
        return Ok(AddOutcome::Whole);
    }
    let template = templates.of(substrate, &file, &mark.handle);
    rows.add_image(substrate, &file, Image { path: &mark.path, length: stat.length }, template.image())?;
    Ok(if matches!(template, Template::Unknown) { AddOutcome::WithoutTemplate } else { AddOutcome::Whole })
}

#[cfg(test)]
mod tests;

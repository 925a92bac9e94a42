//! Extents of all files as rows that are sorted by place.
//!
//! A row has the place, the length, and the file with flags. Parts of an image that are at the places of its template
//! are counted when they are added. Their rows are references for other images.

use std::io;
use std::path::{Path, PathBuf};

use onefold_sort::{Merge, SortWriter};
use onefold_substrate::{MappedExtent, Substrate};

use super::template::TemplateImage;
use super::{AddError, CountError, StateBytes};
use crate::extents::{Extents, each_extent};
use crate::state::StateError;

/// Number of bits below the file in a row's last word.
const FILE_SHIFT: u32 = 3;
const SHARED_BIT: u64 = 4;
const KIND_MASK: u64 = 3;

/// The kind of file that an extent is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An image.
    Image,
    /// An image, at a place of its template's same block.
    OfTemplate,
    /// A common volume.
    Volume,
    /// An arena file.
    Arena,
}

impl Kind {
    fn bits(self) -> u64 {
        match self {
            Kind::Image => 0,
            Kind::OfTemplate => 1,
            Kind::Volume => 2,
            Kind::Arena => 3,
        }
    }

    fn of_bits(bits: u64) -> Kind {
        match bits & KIND_MASK {
            0 => Kind::Image,
            1 => Kind::OfTemplate,
            2 => Kind::Volume,
            _ => Kind::Arena,
        }
    }
}

/// An extent at a place of the device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedExtent {
    pub(super) place: u64,
    pub(super) length: u64,
    /// The file, by its index.
    pub(super) file: usize,
    pub(super) kind: Kind,
    /// Whether the file system reports that other files refer to it.
    pub(super) is_told_shared: bool,
}

impl PlacedExtent {
    pub(super) fn row(self) -> onefold_sort::Row {
        let file = (self.file as u64) << FILE_SHIFT;
        let told = if self.is_told_shared { SHARED_BIT } else { 0 };
        [self.place, self.length, file | told | self.kind.bits()]
    }

    pub(super) fn of_row([place, length, last]: onefold_sort::Row) -> PlacedExtent {
        let file = usize::try_from(last >> FILE_SHIFT).unwrap_or(usize::MAX);
        PlacedExtent { place, length, file, kind: Kind::of_bits(last), is_told_shared: last & SHARED_BIT != 0 }
    }

    /// Returns its end. A map may report any length.
    pub(super) fn end(&self) -> u64 {
        self.place.saturating_add(self.length)
    }
}

/// A file and its counts.
pub(super) struct CountedFile {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// For an image: its length.
    pub(super) length: u64,
    /// For an image: its template.
    pub(super) template: Option<PathBuf>,
    /// For an image: its bytes by state.
    pub(super) bytes: StateBytes,
    /// For a volume: the bytes that it holds.
    pub(super) held: u64,
    /// For a volume: the bytes of these to which images refer.
    pub(super) used: u64,
    /// For an image or a volume: whether its map was read to its end. Otherwise its rows are only references, and it is
    /// not reported.
    pub(super) is_whole: bool,
}

/// An image to be added.
#[derive(Clone, Copy)]
pub(super) struct Image<'a> {
    pub(super) path: &'a Path,
    /// Its length, in bytes.
    pub(super) length: u64,
}

/// Takes the extents of files.
pub(super) struct Rows<'a> {
    sorter: SortWriter,
    files: Vec<CountedFile>,
    /// Returns whether the caller wants no more.
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Rows<'a> {
    pub(super) fn new(temporary_folder: &Path, memory_bytes: usize, is_over: &'a dyn Fn() -> bool) -> Rows<'a> {
        Rows { sorter: SortWriter::new(temporary_folder, memory_bytes), files: Vec::new(), is_over }
    }

    /// Adds an image.
    pub(super) fn add_image<S: Substrate>(
        &mut self,
        substrate: &S,
        file: &S::File,
        image: Image<'_>,
        template: Option<&TemplateImage<S::File>>,
    ) -> Result<(), AddError> {
        let at = self.push_file(image.path, Kind::Image, template.map(|template| template.path.clone()));
        self.files[at].length = image.length;
        let mut map = Extents::new();
        each_extent(substrate, file, |extent| -> Result<(), AddError> {
            let Some(place) = self.place_of(extent, at) else { return Ok(()) };
            let mut done = 0;
            while done < extent.length {
                let here = PlacedExtent { place: place.saturating_add(done), ..whole(extent, place, at, Kind::Image) };
                let part = match template {
                    None => here,
                    Some(template) => {
                        let offset = extent.offset.saturating_add(done);
                        let there = map.at(substrate, &template.file, offset)?;
                        let is_of_template = there.is_data && there.place == Some(here.place);
                        let kind = if is_of_template { Kind::OfTemplate } else { Kind::Image };
                        PlacedExtent { length: there.length.clamp(1, extent.length - done), kind, ..here }
                    }
                };
                done += part.length;
                self.push(part)?;
            }
            Ok(())
        })?;
        self.files[at].is_whole = true;
        Ok(())
    }

    /// Adds a common volume.
    pub(super) fn add_volume<S: Substrate>(
        &mut self,
        substrate: &S,
        file: &S::File,
        path: &Path,
    ) -> Result<(), AddError> {
        let at = self.push_file(path, Kind::Volume, None);
        each_extent(substrate, file, |extent| match self.place_of(extent, at) {
            Some(place) => self.push(whole(extent, place, at, Kind::Volume)),
            None => Ok(()),
        })?;
        self.files[at].is_whole = true;
        Ok(())
    }

    /// Adds an arena file.
    pub(super) fn add_arena<S: Substrate>(&mut self, substrate: &S, file: &S::File) -> Result<(), AddError> {
        let at = self.push_file(Path::new(""), Kind::Arena, None);
        each_extent(substrate, file, |extent| match self.place_of(extent, at) {
            Some(place) => self.push(whole(extent, place, at, Kind::Arena)),
            None => Ok(()),
        })
    }

    /// Returns the place of an extent that holds data. Counts an extent without a place.
    fn place_of(&mut self, extent: &MappedExtent, at: usize) -> Option<u64> {
        if extent.is_unwritten {
            return None;
        }
        if extent.place.is_none() {
            let bytes = &mut self.files[at].bytes;
            bytes.unplaced = bytes.unplaced.saturating_add(extent.length);
        }
        extent.place
    }

    /// Adds a part of a file.
    fn push(&mut self, part: PlacedExtent) -> Result<(), AddError> {
        let file = &mut self.files[part.file];
        match part.kind {
            Kind::OfTemplate => file.bytes.template = file.bytes.template.saturating_add(part.length),
            Kind::Volume => file.held = file.held.saturating_add(part.length),
            Kind::Image | Kind::Arena => {}
        }
        if (self.is_over)() {
            return Err(AddError::End(StateError::Interrupted.into()));
        }
        self.sorter.push(part.row()).map_err(|error| AddError::End(CountError::Temporary(error)))
    }

    /// Returns the rows in order, and the files.
    ///
    /// # Errors
    /// Errors of temporary files.
    pub(super) fn finish(self) -> io::Result<(Merge, Vec<CountedFile>)> {
        Ok((self.sorter.finish()?, self.files))
    }

    fn push_file(&mut self, path: &Path, kind: Kind, template: Option<PathBuf>) -> usize {
        let (path, bytes) = (path.to_owned(), StateBytes::default());
        self.files.push(CountedFile { path, kind, length: 0, template, bytes, held: 0, used: 0, is_whole: false });
        self.files.len() - 1
    }
}

/// Returns a whole extent at its place.
fn whole(extent: &MappedExtent, place: u64, file: usize, kind: Kind) -> PlacedExtent {
    PlacedExtent { place, length: extent.length, file, kind, is_told_shared: extent.is_shared }
}

//! The template of an image: the image from which it was cloned.
//!
//! `share clone` records the template's handle in an attribute of the clone. So the record moves with the file, and
//! stays when the state folder is deleted. It is a hint of the file's owner: if it is wrong, the image is compared with
//! the wrong map, and nothing else happens.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use onefold_substrate::{Access, FileHandle, Substrate};

use crate::extents::Extents;
use crate::format::mark::Mark;
use crate::state::files::Marks;

/// Name of the attribute.
pub const ATTRIBUTE: &str = "user.onefold.template";

/// Records the template of a file, which has no other name yet.
pub(crate) fn record<S: Substrate>(substrate: &S, clone: &Path, template: &FileHandle) -> io::Result<()> {
    substrate.set_attribute(clone, ATTRIBUTE, Some(template.to_string().as_bytes()))
}

/// An image from which others were made.
#[derive(Debug)]
pub struct TemplateImage<F> {
    pub(crate) path: PathBuf,
    pub(crate) file: F,
    handle: FileHandle,
}

impl<F> TemplateImage<F> {
    /// Opens the image at a path.
    ///
    /// # Errors
    /// Errors of opening a file.
    pub fn named<S: Substrate<File = F>>(substrate: &S, path: &Path) -> io::Result<TemplateImage<F>> {
        let file = substrate.open(path, Access::Read)?;
        let handle = substrate.stat(&file)?.handle;
        Ok(TemplateImage { path: path.to_owned(), file, handle })
    }
}

/// Finds the templates of images.
pub(crate) struct Templates<'a, F> {
    /// Known files, by their handles in the form of the attribute.
    paths: BTreeMap<String, &'a Path>,
    /// The template of images without a recorded one.
    named: Option<TemplateImage<F>>,
}

impl<F> Default for Templates<'_, F> {
    fn default() -> Self {
        Templates { paths: BTreeMap::new(), named: None }
    }
}

impl<'a, F> Templates<'a, F> {
    /// Returns the templates among known files.
    pub(crate) fn of_known(marks: &'a Marks) -> Templates<'a, F> {
        let known = marks.iter().filter(|mark: &&Mark| !mark.is_forgotten());
        let paths = known.map(|mark| (mark.handle.to_string(), mark.path.as_path())).collect();
        Templates { paths, named: None }
    }

    /// Makes an image the template of all images without a recorded one.
    pub(crate) fn with_named(self, named: Option<TemplateImage<F>>) -> Templates<'a, F> {
        Templates { named, ..self }
    }

    /// Returns the template of an open file. A recorded template takes precedence over the named image.
    pub(crate) fn of<S: Substrate<File = F>>(&self, substrate: &S, file: &F, handle: &FileHandle) -> Template<'_, F> {
        let template = match substrate.attribute_of(file, ATTRIBUTE).unwrap_or_default() {
            Some(value) => self.recorded(substrate, value),
            None => self.named.as_ref().map_or(Template::None, Template::Named),
        };
        if template.image().is_some_and(|image| image.handle == *handle) { Template::None } else { template }
    }

    /// Returns the template in an attribute: the named image, or a known file.
    fn recorded<S: Substrate<File = F>>(&self, substrate: &S, value: Vec<u8>) -> Template<'_, F> {
        let Ok(value) = String::from_utf8(value) else { return Template::Unknown };
        if let Some(named) = self.named.as_ref().filter(|named| named.handle.to_string() == value) {
            return Template::Named(named);
        }
        let found = self.paths.get(&value).and_then(|path| TemplateImage::named(substrate, path).ok());
        let recorded = found.filter(|found| found.handle.to_string() == value);
        recorded.map_or(Template::Unknown, Template::Recorded)
    }
}

/// The template of an image.
pub(crate) enum Template<'a, F> {
    /// None is recorded, and the user named none.
    None,
    /// One is recorded, but it is neither a known file nor the image that the user named.
    Unknown,
    /// The recorded one.
    Recorded(TemplateImage<F>),
    /// The one that the user named.
    Named(&'a TemplateImage<F>),
}

impl<F> Template<'_, F> {
    /// Returns the image, if it is known.
    pub(crate) fn image(&self) -> Option<&TemplateImage<F>> {
        match self {
            Template::None | Template::Unknown => None,
            Template::Recorded(image) => Some(image),
            Template::Named(image) => Some(image),
        }
    }

    /// Returns whether the block at an offset has this place in the template.
    ///
    /// # Errors
    /// Errors of the template's map.
    pub(crate) fn has<S: Substrate<File = F>>(&self, substrate: &S, offset: u64, place: u64) -> io::Result<bool> {
        let Some(image) = self.image() else { return Ok(false) };
        let placed = Extents::narrow().at(substrate, &image.file, offset)?;
        Ok(placed.is_data && placed.place == Some(place))
    }
}

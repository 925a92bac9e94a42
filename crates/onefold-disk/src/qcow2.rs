//! qcow2 through the library `imago`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use imago::file::File as ImagoFile;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping};

use crate::chain::ImageChain;
use crate::disk::{Disk, FilePlacement, SIZE_BYTES_MAX, Sink};
use crate::error::{DiskError, ImageAction, ImageError};
use crate::folders::ImageMember;
use crate::format::{ImageFormat, detect};
use crate::image_file::ImageFile;

/// A qcow2 image with its backing files, as a disk.
pub(crate) struct Qcow2Disk {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
    /// Whether the image is one file: then every offset from the library lies in that file.
    is_one_file: bool,
}

impl Qcow2Disk {
    /// Opens the image in `image` and the files below it, which `chain` follows.
    pub(crate) fn open(image: ImageFile, chain: &mut ImageChain) -> Result<Qcow2Disk, DiskError> {
        let path = image.path.clone();
        let (access, is_one_file) = open_layers(image, chain).map_err(|why| cannot(ImageAction::Open, &path, why))?;
        // A false length would keep the search for data busy forever.
        if access.size() > SIZE_BYTES_MAX {
            return Err(cannot(ImageAction::Open, &path, ImageError::TooLarge));
        }
        Ok(Qcow2Disk { access, path, is_one_file })
    }

    /// Opens an image that is one file.
    pub(crate) fn open_alone(file: File, path: &Path) -> Result<Qcow2Disk, DiskError> {
        let opened = || -> Result<FormatAccess<ImagoFile>, ImageError> {
            let mut layer = Qcow2::<ImagoFile>::open_image(ImagoFile::try_from(file)?, false)?;
            let has_backing = layer.implicit_backing_file().is_some_and(|name| !name.is_empty());
            if has_backing || layer.requires_external_data_file() {
                return Err(ImageError::OtherFiles);
            }
            layer.set_data_file(None);
            layer.set_backing(None);
            let access = FormatAccess::new(layer);
            if access.size() > SIZE_BYTES_MAX { Err(ImageError::TooLarge) } else { Ok(access) }
        };
        let access = opened().map_err(|why| cannot(ImageAction::Open, path, why))?;
        Ok(Qcow2Disk { access, path: path.to_owned(), is_one_file: true })
    }

    /// Returns whether the image is one file, without a backing file or a data file.
    pub(crate) fn is_one_file(&self) -> bool {
        self.is_one_file
    }

    fn cannot_read(&self, why: io::Error) -> DiskError {
        cannot(ImageAction::Read, &self.path, why)
    }
}

fn cannot(action: ImageAction, path: &Path, why: impl Into<ImageError>) -> DiskError {
    DiskError::Image { action, format: ImageFormat::Qcow2, path: path.to_owned(), source: why.into() }
}

/// Opens an image and all files below it; returns whether the image is the only file.
///
/// The library opens nothing itself: it gets open files without names, so no name in a header leads it anywhere.
fn open_layers(image: ImageFile, chain: &mut ImageChain) -> Result<(FormatAccess<ImagoFile>, bool), ImageError> {
    let mut has_data_file = false;
    let mut layers: Vec<Qcow2<ImagoFile>> = Vec::new();
    let mut next = ImageMember { folder: chain.image_folder(), file: image };
    let base = loop {
        let ImageMember { file, folder } = next;
        let mut layer = Qcow2::open_image(ImagoFile::try_from(file.file)?, false)?;
        let data = match layer.requires_external_data_file() {
            true => {
                has_data_file = true;
                let name = layer.implicit_external_data_file().ok_or(ImageError::DataFileUnnamed)?;
                Some(ImagoFile::try_from(chain.follow(name, &folder)?.file.file)?)
            }
            false => None,
        };
        layer.set_data_file(data);
        let backing = layer.implicit_backing_file().filter(|name| !name.is_empty()).cloned();
        let stated = layer.implicit_backing_format().cloned();
        layers.push(layer);
        let Some(name) = backing else { break None };
        next = chain.follow(&name, &folder)?;
        if !is_qcow2(&next.file, stated.as_deref())? {
            break Some(FormatAccess::new(Raw::open_image(ImagoFile::try_from(next.file.file)?, false)?));
        }
    };
    let is_one_file = layers.len() == 1 && base.is_none() && !has_data_file;
    let mut below = base;
    while let Some(mut layer) = layers.pop() {
        layer.set_backing(below);
        below = Some(FormatAccess::new(layer));
    }
    Ok((below.expect("the image itself is a layer"), is_one_file))
}

/// Returns whether a backing file is qcow2 (else raw), by its stated format or else by its first bytes.
fn is_qcow2(backing: &ImageFile, stated: Option<&str>) -> Result<bool, ImageError> {
    let unsupported =
        |format: &str| ImageError::BackingFormat { path: backing.path.clone(), format: format.to_owned() };
    match stated {
        Some("qcow2") => Ok(true),
        Some("raw" | "file" | "host_device") => Ok(false),
        Some(format) => Err(unsupported(format)),
        None => match detect(&backing.file)? {
            ImageFormat::Qcow2 => Ok(true),
            ImageFormat::Raw => Ok(false),
            format => Err(unsupported(format.name())),
        },
    }
}

impl Disk for Qcow2Disk {
    fn size_bytes(&self) -> u64 {
        self.access.size()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let size = self.size_bytes();
        let mut start = offset;
        while start < size {
            let mapping = self.access.get_mapping(start, size - start);
            let (mapping, length) = mapping.map_err(|error| self.cannot_read(error))?;
            match mapping {
                // Each round makes progress, whatever the image claims.
                _ if length == 0 => return Ok(None),
                Mapping::Eof { .. } => return Ok(None),
                Mapping::Zero { .. } => start = start.saturating_add(length),
                _ => return Ok(Some(start..start.saturating_add(length).min(size))),
            }
        }
        Ok(None)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        let left = self.size_bytes().saturating_sub(offset);
        if left == 0 {
            return Ok(FilePlacement { offset: None, length_bytes: 0 });
        }
        let (mapping, length) = self.access.get_mapping(offset, left).map_err(|error| self.cannot_read(error))?;
        let place = match mapping {
            Mapping::Raw { offset, .. } if self.is_one_file => Some(offset),
            _ => None,
        };
        // No image can stop a search from making progress.
        let length_bytes = if length == 0 { left } else { length.min(left) };
        Ok(FilePlacement { offset: place.filter(|_| length > 0), length_bytes })
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.access.read(into, offset).map_err(|error| self.cannot_read(error))
    }
}

/// A new qcow2 image that is being filled.
pub struct Qcow2Sink {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
}

impl Qcow2Sink {
    /// Makes an empty file, open for reading and writing, into an empty image of `size_bytes`; `path` is for messages.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(file: File, path: &Path, size_bytes: u64) -> Result<Qcow2Sink, DiskError> {
        let create = || -> io::Result<FormatAccess<ImagoFile>> {
            let file = ImagoFile::try_from(file)?;
            let image = Qcow2::<ImagoFile>::create_builder(file)
                .size(size_bytes)
                .create_open(DenyImplicitOpenGate::default(), |file| Ok(Qcow2::builder(file).write(true)))?;
            Ok(FormatAccess::new(image))
        };
        let access = create().map_err(|error| cannot(ImageAction::Create, path, error))?;
        Ok(Qcow2Sink { access, path: path.to_owned() })
    }

    /// Makes all writes durable.
    ///
    /// # Errors
    /// When that fails; no earlier write is reliable then.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.access.flush().and_then(|()| self.access.sync()).map_err(|error| self.cannot_write(error))
    }

    fn cannot_write(&self, why: io::Error) -> DiskError {
        cannot(ImageAction::Write, &self.path, why)
    }
}

impl std::fmt::Debug for Qcow2Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qcow2Sink").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sink for Qcow2Sink {
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.access.write(from, offset).map_err(|error| self.cannot_write(error))
    }
}

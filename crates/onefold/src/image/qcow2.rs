//! qcow2 through the library `imago`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use imago::file::File as ImagoFile;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping};
use onefold_block::Show;
use onefold_pool::{FILE_BYTES_MAX, PoolError};

use super::chain::{Chain, ChainError, Member};
use super::detect::detect;
use super::file::ImageFile;
use crate::cli::values::ImageFormat;
use crate::disk::{Disk, Sink};
use crate::failure::{Failure, Outcome};

/// A qcow2 image, with its backing files, as a disk.
pub(super) struct Qcow2Disk {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
}

impl Qcow2Disk {
    /// Opens the image in `image` and the chain of files below it; `further` are folders that it may refer to.
    pub(super) fn open(image: ImageFile, further: &[PathBuf]) -> Outcome<Qcow2Disk> {
        let path = image.path.clone();
        let mut chain = Chain::start(&image, further)?;
        let access = open_layers(image, &mut chain).map_err(|error| error.failure(&path))?;
        // A made-up length would keep the search for data busy for ever.
        if access.size() > FILE_BYTES_MAX {
            return Err(Failure::of_pool(cannot("open", &path), &PoolError::FileTooLarge));
        }
        Ok(Qcow2Disk { access, path })
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} the qcow2 image `{}`", path.shown())
}

/// Why a qcow2 image cannot be opened.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Chain(#[from] ChainError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("its data file has no name")]
    DataFileUnnamed,
    #[error("its backing file `{}` has the format {}", path.shown(), format.shown())]
    Format { path: PathBuf, format: String },
}

impl OpenError {
    fn failure(&self, path: &Path) -> Failure {
        let cannot = cannot("open", path);
        match self {
            OpenError::Chain(why) => why.failure(cannot),
            OpenError::Io(error) => {
                Failure::of_io(cannot, error).hint("if this is no qcow2 image but a raw one, say so with --format raw")
            }
            OpenError::DataFileUnnamed => Failure::new(cannot).because(self),
            OpenError::Format { .. } => Failure::new(cannot)
                .because(self)
                .hint("backing files are read as qcow2 or raw; `qemu-img convert` makes one image of the chain"),
        }
    }
}

/// Opens an image and all files below it.
///
/// The library opens nothing itself: it gets open files without names, so no name in a header can lead it anywhere.
fn open_layers(image: ImageFile, chain: &mut Chain) -> Result<FormatAccess<ImagoFile>, OpenError> {
    let mut layers: Vec<Qcow2<ImagoFile>> = Vec::new();
    let mut next = Member { folder: chain.image_folder(), file: image };
    let base = loop {
        let Member { file, folder } = next;
        let mut layer = Qcow2::open_image(ImagoFile::try_from(file.file)?, false)?;
        let data = match layer.requires_external_data_file() {
            true => {
                let name = layer.implicit_external_data_file().ok_or(OpenError::DataFileUnnamed)?;
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
    let mut below = base;
    while let Some(mut layer) = layers.pop() {
        layer.set_backing(below);
        below = Some(FormatAccess::new(layer));
    }
    Ok(below.expect("the image itself is a layer"))
}

/// Tells whether a backing file is qcow2 or raw, by the format that is stated for it, or else by its first bytes.
fn is_qcow2(backing: &ImageFile, stated: Option<&str>) -> Result<bool, OpenError> {
    let unsupported = |format: &str| OpenError::Format { path: backing.path.clone(), format: format.to_owned() };
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

    fn next_data(&self, offset: u64) -> Outcome<Option<Range<u64>>> {
        let size = self.size_bytes();
        let mut start = offset;
        while start < size {
            let (mapping, length) = self
                .access
                .get_mapping(start, size - start)
                .map_err(|error| Failure::of_io(cannot("read", &self.path), &error))?;
            match mapping {
                // Each round moves on, whatever the image says.
                _ if length == 0 => return Ok(None),
                Mapping::Eof { .. } => return Ok(None),
                Mapping::Zero { .. } => start = start.saturating_add(length),
                _ => return Ok(Some(start..start.saturating_add(length).min(size))),
            }
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Outcome<()> {
        self.access.read(into, offset).map_err(|error| Failure::of_io(cannot("read", &self.path), &error))
    }
}

/// A new qcow2 image, outside any pool, that is being filled.
pub(crate) struct Qcow2Sink {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
}

impl Qcow2Sink {
    /// Makes an empty file, open for reading and writing, an empty image of `size_bytes`; `path` is for messages.
    pub(crate) fn create(file: File, path: &Path, size_bytes: u64) -> Outcome<Qcow2Sink> {
        let create = || -> io::Result<FormatAccess<ImagoFile>> {
            let file = ImagoFile::try_from(file)?;
            let image = Qcow2::<ImagoFile>::create_builder(file)
                .size(size_bytes)
                .create_open(DenyImplicitOpenGate::default(), |file| Ok(Qcow2::builder(file).write(true)))?;
            Ok(FormatAccess::new(image))
        };
        let access = create().map_err(|error| Failure::of_io(cannot("create", path), &error))?;
        Ok(Qcow2Sink { access, path: path.to_owned() })
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self) -> Outcome<()> {
        self.access
            .flush()
            .and_then(|()| self.access.sync())
            .map_err(|error| Failure::of_io(cannot("write", &self.path), &error))
    }
}

impl Sink for Qcow2Sink {
    fn write(&self, offset: u64, from: &[u8]) -> Outcome<()> {
        self.access.write(from, offset).map_err(|error| Failure::of_io(cannot("write", &self.path), &error))
    }
}

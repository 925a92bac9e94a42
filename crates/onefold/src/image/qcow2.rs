//! qcow2 through the library `imago`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use imago::file::File as ImagoFile;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping, Storage, StorageOpenOptions,
};
use onefold_block::Show;
use onefold_pool::{FILE_BYTES_MAX, PoolError};

use super::chain::{Allowed, CHAIN_LENGTH_MAX, ChainError};
use crate::disk::{Disk, Sink};
use crate::failure::{Failure, Outcome};

/// A qcow2 image, with its backing files, as a disk.
pub(super) struct Qcow2Disk {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
}

impl Qcow2Disk {
    /// Opens the image at `path` and the chain of files below it, as far as `allowed`.
    pub(super) fn open(path: &Path, allowed: &Allowed) -> Outcome<Qcow2Disk> {
        let gate = Gate::new(allowed.clone());
        let refusal = Arc::clone(&gate.refusal);
        let opened = open_through(path, gate);
        let refusal = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (opened, refusal) {
            // A made-up length would keep the search for data busy for ever.
            (Ok(access), _) if access.size() > FILE_BYTES_MAX => {
                Err(Failure::of_pool(cannot("open", path), &PoolError::FileTooLarge))
            }
            (Ok(access), _) => Ok(Qcow2Disk { access, path: path.to_owned() }),
            (Err(_), Some(refusal)) => {
                let failure = Failure::new(cannot("open", path)).because(&refusal);
                Err(match refusal.hint() {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                })
            }
            (Err(error), None) => Err(Failure::of_io(cannot("open", path), &error)
                .hint("if this is no qcow2 image but a raw one, say so with --format raw")),
        }
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} the qcow2 image `{}`", path.shown())
}

/// Opens the top of the chain through the same gate as all that follows, so that it counts as its first member.
fn open_through(path: &Path, mut gate: Gate) -> io::Result<FormatAccess<ImagoFile>> {
    let file = gate.open_storage(StorageOpenOptions::new().filename(path))?;
    gate.open_format(Qcow2::<ImagoFile>::builder(file))
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

/// Lets the library open what the image may refer to, and nothing else, and sees loops.
///
/// The library passes each member of a chain through a gate of its own; clones share what they have seen.
#[derive(Clone)]
struct Gate {
    allowed: Allowed,
    members: Arc<Mutex<Vec<PathBuf>>>,
    /// Why the gate said no; the library passes on only an `io::Error`.
    refusal: Arc<Mutex<Option<ChainError>>>,
}

impl Gate {
    fn new(allowed: Allowed) -> Gate {
        Gate { allowed, members: Arc::default(), refusal: Arc::default() }
    }

    fn refuse(&self, why: ChainError) -> io::Error {
        let error = io::Error::other(why.to_string());
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        error
    }

    /// Notes a further file of the chain.
    fn enter(&self, path: PathBuf) -> Result<(), ChainError> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if members.contains(&path) {
            return Err(ChainError::Loop(path));
        }
        if members.len() >= CHAIN_LENGTH_MAX {
            return Err(ChainError::TooLong);
        }
        members.push(path);
        Ok(())
    }
}

impl ImplicitOpenGate<ImagoFile> for Gate {
    fn open_format<F: FormatDriverBuilder<ImagoFile>>(&mut self, builder: F) -> io::Result<FormatAccess<ImagoFile>> {
        Ok(FormatAccess::new(builder.write(false).open(self.clone())?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<ImagoFile> {
        let named = options.get_filename().ok_or_else(|| io::Error::other("a file of the image has no name"))?;
        let path = self.allowed.resolve(named).map_err(|why| self.refuse(why))?;
        self.enter(path.clone()).map_err(|why| self.refuse(why))?;
        ImagoFile::open(options.filename(path).write(false))
    }
}

/// A new qcow2 image, outside any pool, that is being filled.
pub(crate) struct Qcow2Sink {
    access: FormatAccess<ImagoFile>,
    path: PathBuf,
}

impl Qcow2Sink {
    /// Makes the empty file at `path` an empty image of `size_bytes`.
    pub(crate) fn create(path: &Path, size_bytes: u64) -> Outcome<Qcow2Sink> {
        let create = || -> io::Result<FormatAccess<ImagoFile>> {
            let open = StorageOpenOptions::new().filename(path).write(true);
            let file = ImagoFile::open(open)?;
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

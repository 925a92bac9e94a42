//! The descriptor of an archive and its copy: which one counts.

use super::ledger;
use super::objects::{damaged, is_missing, read_whole};
use super::{Archive, ArchiveError};
use crate::ArchiveId;
use crate::format::descriptor::Descriptor;
use crate::format::ledger::{ENTRY_BYTES_MAX, LedgerEntry};
use crate::store::{ObjectName, Store};

/// Maximum length of a descriptor in bytes.
const DESCRIPTOR_BYTES_MAX: u64 = 4096;
/// Names of the descriptor and its copy.
pub(super) const DESCRIPTORS: [&str; 2] = ["descriptor", "descriptor.copy"];

/// The descriptor that counts.
pub(super) struct OpenedDescriptor {
    pub(super) descriptor: Descriptor,
    /// Whether the copy is missing, as after a creation that was killed.
    pub(super) lacks_copy: bool,
}

/// Returns the descriptor of an archive, or its copy.
///
/// # Errors
/// When there is no archive, both are damaged, no whole one is known to belong to the ledger, one is of a newer
/// version, or the store fails.
pub(super) fn open(store: &dyn Store) -> Result<OpenedDescriptor, ArchiveError> {
    let [descriptor, copy] = DESCRIPTORS.map(|name| read_descriptor(store, name));
    let lacks_copy = descriptor.is_ok() && copy.as_ref().is_err_and(is_missing);
    let descriptor = match (descriptor, copy) {
        (Err(newer @ ArchiveError::Newer { .. }), _) | (_, Err(newer @ ArchiveError::Newer { .. })) => {
            return Err(newer);
        }
        (Ok(descriptor), Ok(copy)) if descriptor != copy => right_descriptor(store, [descriptor, copy])?,
        (Ok(descriptor), Ok(_)) => descriptor,
        (Ok(descriptor), Err(_)) | (Err(_), Ok(descriptor)) => only_descriptor(store, descriptor)?,
        (Err(missing), Err(other)) if is_missing(&missing) && is_missing(&other) => {
            return Err(ArchiveError::NoArchive);
        }
        (Err(error), Err(_)) => return Err(error),
    };
    Ok(OpenedDescriptor { descriptor, lacks_copy })
}

impl Archive {
    /// Returns whether the descriptor certainly belongs to the ledger, so that it may be written over a damaged one.
    pub(super) fn has_certain_descriptor(&self) -> Result<bool, ArchiveError> {
        match archive_of_ledger(&*self.store) {
            Ok(archive) => Ok(archive == self.descriptor.archive),
            Err(error) if is_missing(&error) => Ok(!ledger::has_entries(&*self.store)?),
            Err(_) => Ok(false),
        }
    }
}

/// Returns the name of the object of a descriptor.
pub(super) fn descriptor_name(name: &str) -> ObjectName {
    ObjectName::new(name).expect("the names of descriptors are names")
}

/// Returns the archive to which the first entry of the ledger belongs.
fn archive_of_ledger(store: &dyn Store) -> Result<ArchiveId, ArchiveError> {
    let name = LedgerEntry::object_name(0);
    let entry = read_whole(store, &name, ENTRY_BYTES_MAX)?;
    LedgerEntry::archive_of(0, &entry).map_err(damaged(&name))
}

/// Returns the one of two different descriptors to whose archive the ledger belongs. With that of another archive no
/// unit can be verified, and what is added here would belong to neither.
fn right_descriptor(store: &dyn Store, two: [Descriptor; 2]) -> Result<Descriptor, ArchiveError> {
    let archive = match archive_of_ledger(store) {
        Ok(archive) => archive,
        Err(error) if is_missing(&error) => return Err(ArchiveError::Ambiguous),
        Err(ArchiveError::Damaged { .. }) => return Err(ArchiveError::Ambiguous),
        Err(error) => return Err(error),
    };
    let mut right = two.into_iter().filter(|descriptor| descriptor.archive == archive);
    match (right.next(), right.next()) {
        (Some(descriptor), None) => Ok(descriptor),
        _ => Err(ArchiveError::Ambiguous),
    }
}

/// Returns the only descriptor that is whole, unless the ledger belongs to another archive: the other descriptor may
/// have been the right one. If the first entry does not say so, the archive opens, and no repair writes a descriptor.
fn only_descriptor(store: &dyn Store, descriptor: Descriptor) -> Result<Descriptor, ArchiveError> {
    match archive_of_ledger(store) {
        Ok(archive) if archive != descriptor.archive => Err(ArchiveError::Ambiguous),
        _ => Ok(descriptor),
    }
}

/// Reads a descriptor.
pub(super) fn read_descriptor(store: &dyn Store, name: &str) -> Result<Descriptor, ArchiveError> {
    let name = descriptor_name(name);
    let object = read_whole(store, &name, DESCRIPTOR_BYTES_MAX)?;
    Descriptor::decode(&object).map_err(damaged(&name))
}

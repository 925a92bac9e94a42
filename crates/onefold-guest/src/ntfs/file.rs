//! A file: its base record, and the records with the attributes that do not fit into it.

use std::collections::{BTreeMap, BTreeSet};

use super::attribute_list;
use super::mft::Mft;
use super::names::FileName;
use super::record::{ATTRIBUTE_LIST, Attribute, DATA, FILE_NAME, Record};
use super::stream::Stream;
use crate::bytes::Bytes;
use crate::error::{Damage, DamageLog, GuestError};

/// Maximum total length of the records of a file without its base record. It corresponds to the number of records that
/// a list can name, with the largest usual length (4 KiB).
const RECORDS_BYTES_MAX: usize = 32 << 20;
/// Maximum number of attributes in them. A list names each attribute, and has no room for this number.
const ATTRIBUTES_MAX: usize = 16 << 10;

/// The parts of a stream, each with its record.
type Parts<'f> = Vec<(&'f Record, Attribute<'f>)>;

/// A file with all its attributes.
#[derive(Debug)]
pub(super) struct MftFile {
    /// Its base record.
    pub(super) base: Record,
    /// The other records.
    extensions: Vec<Record>,
    /// Why some of its attributes are missing, if any.
    missing: Option<Damage>,
}

impl MftFile {
    /// Returns the file of a base record. Damage is recorded in `log`.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn of(base: Record, mft: &Mft<'_>, log: &DamageLog) -> Result<MftFile, GuestError> {
        let lists = base.attributes().filter(|found| found.is(ATTRIBUTE_LIST, &[]));
        let list = Stream::assemble(lists.map(|found| (&base, found)), mft.clusters());
        let mut file = MftFile { base, extensions: Vec::new(), missing: None };
        if let Some(list) = list {
            match file.add_records(&list, mft) {
                Err(GuestError::Damaged(damage)) => {
                    log.note(damage.clone());
                    file.missing = Some(damage);
                }
                outcome => outcome?,
            }
        }
        Ok(file)
    }

    /// Adds the records that a list names, up to the first one of another file.
    fn add_records(&mut self, list: &Stream, mft: &Mft<'_>) -> Result<(), GuestError> {
        let list = list.read_all(mft.clusters(), attribute_list::BYTES_MAX)?;
        let (number, sequence) = (self.base.number, self.base.sequence);
        let mut known = BTreeSet::from([number]);
        let (mut bytes, mut attributes) = (0, 0);
        for entry in attribute_list::entries(&list) {
            if !known.insert(entry.record.record()) {
                continue;
            }
            let record = mft.read(entry.record.record())?;
            let is_ours = |record: &Record| {
                let base = record.base.is_some_and(|base| base.record() == number && base.sequence() == sequence);
                base && record.sequence == entry.record.sequence()
            };
            let other = || mft.damage(number, "its list of attributes names another file's");
            let record = record.filter(is_ours).ok_or_else(other)?;
            bytes += record.length();
            attributes += record.attributes().count();
            if bytes > RECORDS_BYTES_MAX || attributes > ATTRIBUTES_MAX {
                return Err(mft.damage(number, "it has more attributes than a file can have").into());
            }
            self.extensions.push(record);
        }
        if !attribute_list::is_whole(&list) {
            return Err(mft.damage(number, "its list of attributes is cut off").into());
        }
        Ok(())
    }

    /// Returns whether all of its attributes are there.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_none()
    }

    /// Returns its attributes, each with its record.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&Record, Attribute<'_>)> {
        let records = std::iter::once(&self.base).chain(&self.extensions);
        records.flat_map(|record| record.attributes().map(move |found| (record, found)))
    }

    /// Returns the value of the first resident attribute of a type.
    pub(super) fn value(&self, kind: u32) -> Option<Bytes<'_>> {
        self.attributes().filter(|(_, found)| found.kind == kind).find_map(|(_, found)| found.value()).map(Bytes)
    }

    /// Returns a stream by its type and its name in UTF-16.
    ///
    /// # Errors
    /// When the stream is not found and attributes of the file are missing.
    pub(super) fn stream(&self, kind: u32, name: &[u8], mft: &Mft<'_>) -> Result<Option<Stream>, GuestError> {
        let parts = self.attributes().filter(|(_, found)| found.is(kind, name));
        match (Stream::assemble(parts, mft.clusters()), &self.missing) {
            (None, Some(damage)) => Err(damage.clone().into()),
            (stream, _) => Ok(stream),
        }
    }

    /// Returns whether it has an attribute of a type.
    pub(super) fn has(&self, kind: u32) -> bool {
        self.attributes().any(|(_, found)| found.kind == kind)
    }

    /// Returns the names of its alternate streams in UTF-16, in order.
    pub(super) fn stream_names(&self) -> BTreeSet<&[u8]> {
        let streams = self.attributes().filter(|(_, found)| found.kind == DATA && !found.name.is_empty());
        streams.map(|(_, found)| found.name).collect()
    }

    /// Returns its alternate streams by their names in UTF-16, in one pass over its attributes.
    pub(super) fn streams(&self) -> BTreeMap<&[u8], Parts<'_>> {
        let mut streams: BTreeMap<&[u8], Parts<'_>> = BTreeMap::new();
        for (record, found) in self.attributes().filter(|(_, found)| found.kind == DATA && !found.name.is_empty()) {
            streams.entry(found.name).or_default().push((record, found));
        }
        streams
    }

    /// Returns its names, except those for DOS programs only.
    pub(super) fn names(&self) -> impl Iterator<Item = FileName<'_>> {
        let values = self.attributes().filter(|(_, found)| found.kind == FILE_NAME);
        let names = values.filter_map(|(_, found)| FileName::decode(Bytes(found.value()?)));
        names.filter(|name| !name.is_dos)
    }
}

//! The master file table: a file whose content is the records of all files, including its own as the first one.
//!
//! It may be as fragmented as any file. The parts of its own map are then in records that earlier parts map. Its first
//! four records have a copy in `$MFTMirr`, which replaces damaged ones.

use super::attribute_list;
use super::boot::Geometry;
use super::record::{self, ATTRIBUTE_LIST, BITMAP, DATA, Record, Reference, SEQUENCE_END};
use super::stream::{self, Clusters, Stream};
use crate::error::{Damage, GuestError};
use crate::volume::VolumeReader;

const STRUCTURE: &str = "MFT record";
/// Bytes of one read of the map of records.
const PIECE_BYTES: usize = 64 << 10;
/// Number of records that the mirror contains in every NTFS.
const MIRRORED: u64 = 4;

/// The open master file table.
#[derive(Debug)]
pub(super) struct Mft<'a> {
    volume: VolumeReader<'a>,
    geometry: Geometry,
    records: Stream,
    /// Map of the records in use, if it can be read.
    bitmap: Option<Stream>,
    /// Why its own record was read from the mirror, if it was.
    damage: Option<Damage>,
}

impl<'a> Mft<'a> {
    /// Opens the MFT of a volume.
    ///
    /// # Errors
    /// Those of the disk, and when neither the first record nor its copy is valid.
    pub(super) fn open(volume: &VolumeReader<'a>, geometry: Geometry) -> Result<Mft<'a>, GuestError> {
        let (own, damage) = first_record(volume, geometry)?;
        let clusters = Clusters::of(volume, geometry);
        let stream = |kind| {
            let parts = own.attributes().filter(|found| found.is(kind, &[]));
            Stream::assemble(parts.map(|found| (&own, found)), clusters)
        };
        let no_map = || volume.damage(own.place, STRUCTURE, "the MFT has no map");
        let (records, bitmap) = (stream(DATA).ok_or_else(no_map)?, stream(BITMAP));
        let mut mft = Mft { volume: volume.clone(), geometry, records, bitmap, damage };
        if let Some(list) = stream(ATTRIBUTE_LIST) {
            mft.add_parts(&list)?;
        }
        if mft.records.broken.is_none() && mft.is_cut_off() {
            mft.records.broken = Some(volume.damage(own.place, STRUCTURE, "the MFT has a part that was never written"));
        }
        Ok(mft)
    }

    /// Returns whether there are records behind its first hole, or behind the bytes that were written. Some drivers
    /// read them, and others do not.
    fn is_cut_off(&self) -> bool {
        self.record_count() < self.records.size_bytes / u64::from(self.geometry.record_bytes)
    }

    /// Adds the parts of its maps that are in other records. An earlier part has mapped each of these. If a part cannot
    /// be read, the map is too short, and later records are missing.
    fn add_parts(&mut self, list: &Stream) -> Result<(), GuestError> {
        let list = list.read_all(self.clusters(), attribute_list::BYTES_MAX)?;
        let others = |kind| {
            let all = attribute_list::records_of(&list, kind).into_iter();
            all.filter(|reference| reference.record() != 0)
        };
        for reference in others(DATA) {
            let Some(record) = self.own_extension(reference)? else { break };
            let clusters = Clusters::of(&self.volume, self.geometry);
            let mut parts = record.attributes().filter_map(|found| found.mapped(DATA));
            if !parts.all(|part| self.records.add_part(&record, part, clusters)) {
                break;
            }
        }
        let mut records = Vec::new();
        for reference in others(BITMAP) {
            records.extend(self.own_extension(reference)?);
        }
        let parts = records.iter().flat_map(|record| record.attributes().map(move |found| (record, found)));
        let parts = parts.filter(|(_, found)| found.is(BITMAP, &[]));
        self.bitmap = self.bitmap.take().or(Stream::assemble(parts, self.clusters()));
        Ok(())
    }

    /// Returns a record with attributes of the MFT itself; `None` if it is damaged or belongs to another file.
    fn own_extension(&self, reference: Reference) -> Result<Option<Record>, GuestError> {
        match self.read(reference.record()) {
            Ok(record) => Ok(record.filter(|record| record.base.is_some_and(|base| base.record() == 0))),
            Err(GuestError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the volume with its clusters.
    pub(super) fn clusters(&self) -> Clusters<'_> {
        Clusters::of(&self.volume, self.geometry)
    }

    /// Returns the number of records for which it has room.
    pub(super) fn record_count(&self) -> u64 {
        self.records.solid_bytes(self.clusters()) / u64::from(self.geometry.record_bytes)
    }

    /// Returns the damage of its own record and its map.
    pub(super) fn damages(&self) -> impl Iterator<Item = &Damage> {
        self.damage.iter().chain(&self.records.broken)
    }

    /// Returns a record; `None` if it is not in use or past the end.
    ///
    /// # Errors
    /// When it is damaged, and those of the disk.
    pub(super) fn read(&self, number: u64) -> Result<Option<Record>, GuestError> {
        let mut bytes = vec![0; self.geometry.record_length()];
        if number >= self.record_count() {
            return Ok(None);
        }
        self.records.read(self.clusters(), self.offset_of(number), &mut bytes)?;
        match Record::decode(number, self.place_of(number), bytes) {
            Ok(record) => Ok(record),
            Err(_) if number < MIRRORED => mirrored(&self.volume, self.geometry, number),
            Err(problem) => Err(self.damage(number, problem).into()),
        }
    }

    /// Returns whether a reference is still valid, which is so if it has the record's current sequence number. The
    /// number 0 matches every record. If the record cannot be read, the call that opens the file reports that.
    ///
    /// # Errors
    /// Those of the disk, and when the record lies outside of the volume.
    pub(super) fn is_current(&self, reference: Reference) -> Result<bool, GuestError> {
        let (number, mut head) = (reference.record(), [0; SEQUENCE_END]);
        if reference.sequence() == 0 || number >= self.record_count() {
            return Ok(true);
        }
        self.records.read(self.clusters(), self.offset_of(number), &mut head)?;
        Ok(record::sequence_of(&head).is_none_or(|sequence| sequence == reference.sequence()))
    }

    /// Returns the record of `bytes`, which [`Mft::read_raw`] returned; `None` if it is not in use. Bytes that are not
    /// a record are damage only if they, or the MFT's map, indicate a record.
    ///
    /// # Errors
    /// When it is damaged, and those of the disk.
    pub(super) fn decode(&self, number: u64, bytes: &[u8]) -> Result<Option<Record>, GuestError> {
        match Record::decode(number, self.place_of(number), bytes.to_vec()) {
            Ok(record) => Ok(record),
            Err(_) if number < MIRRORED => mirrored(&self.volume, self.geometry, number),
            Err(problem) if record::claims_use(bytes) || self.is_used(number)? => {
                Err(self.damage(number, problem).into())
            }
            Err(_) => Ok(None),
        }
    }

    /// Returns whether the map of records marks a record as used, or cannot be read.
    fn is_used(&self, number: u64) -> Result<bool, GuestError> {
        let mut byte = [0xff];
        if let Some(bitmap) = &self.bitmap {
            bitmap.read(self.clusters(), number / 8, &mut byte)?;
        }
        Ok(byte.iter().all(|byte| byte >> (number % 8) & 1 == 1))
    }

    /// Returns the number of records in use; `None` if the map cannot be read.
    pub(super) fn used_count(&self) -> Result<Option<u64>, GuestError> {
        let Some(bitmap) = &self.bitmap else { return Ok(None) };
        let (mut used, mut piece) = (0, vec![0; PIECE_BYTES]);
        for offset in (0..self.record_count().div_ceil(8)).step_by(PIECE_BYTES) {
            let length = bitmap.read(self.clusters(), offset, &mut piece)?;
            let bytes = piece.iter().take(length);
            used += bytes.map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
        Ok(Some(used))
    }

    /// Returns the first record at or after `first` that is not in a hole of the disk.
    pub(super) fn next_written(&self, first: u64) -> Result<u64, GuestError> {
        let record_bytes = u64::from(self.geometry.record_bytes);
        let found = stream::locate(self.records.runs(), self.geometry.cluster_bytes, self.offset_of(first));
        let Some((Some(place), length)) = found.filter(|_| first < self.record_count()) else { return Ok(first) };
        let data = self.volume.next_data(place)?.unwrap_or(u64::MAX);
        Ok(first + length.min(data.saturating_sub(place)) / record_bytes)
    }

    fn offset_of(&self, number: u64) -> u64 {
        number * u64::from(self.geometry.record_bytes)
    }

    /// Returns the start of a record in the volume.
    pub(super) fn place_of(&self, number: u64) -> u64 {
        self.records.place_of(self.geometry.cluster_bytes, self.offset_of(number)).unwrap_or(0)
    }

    /// Returns the damage of a record.
    pub(super) fn damage(&self, number: u64, problem: &'static str) -> Damage {
        self.volume.damage(self.place_of(number), STRUCTURE, problem)
    }

    /// Reads the raw bytes of `count` records from `first` on.
    /// The caller bounds `count`.
    pub(super) fn read_raw(&self, first: u64, count: u64) -> Result<Vec<u8>, GuestError> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * self.geometry.record_length()];
        self.records.read(self.clusters(), self.offset_of(first), &mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the MFT's own record, or its copy in the mirror and the reason for using that.
fn first_record(volume: &VolumeReader<'_>, geometry: Geometry) -> Result<(Record, Option<Damage>), GuestError> {
    let place = geometry.mft_cluster * geometry.cluster_bytes;
    let bytes = volume.bytes(place, geometry.record_length(), STRUCTURE);
    let problem = match bytes.map(|bytes| Record::decode(0, place, bytes)) {
        Ok(Ok(Some(record))) => return Ok((record, None)),
        Ok(Ok(None)) => "it is not in use",
        Ok(Err(problem)) => problem,
        Err(GuestError::Damaged(damage)) => damage.problem,
        Err(error) => return Err(error),
    };
    let damage = volume.damage(place, STRUCTURE, problem);
    match mirrored(volume, geometry, 0) {
        Ok(Some(record)) => Ok((record, Some(damage))),
        Err(GuestError::Disk(error)) => Err(error.into()),
        _ => Err(damage.into()),
    }
}

/// Returns one of the first records from the mirror.
fn mirrored(volume: &VolumeReader<'_>, geometry: Geometry, number: u64) -> Result<Option<Record>, GuestError> {
    let mirror = geometry.mirror_cluster.checked_mul(geometry.cluster_bytes);
    let place = mirror.and_then(|mirror| mirror.checked_add(number * u64::from(geometry.record_bytes)));
    let place = place.unwrap_or(u64::MAX);
    let bytes = volume.bytes(place, geometry.record_length(), STRUCTURE)?;
    Record::decode(number, place, bytes).map_err(|problem| volume.damage(place, STRUCTURE, problem).into())
}

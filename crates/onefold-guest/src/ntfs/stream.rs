//! Streams: the values of attributes, read by their own offsets.

use super::boot::Geometry;
use super::record::{Attribute, AttributeBody, Coding, MappedPart, Record};
use super::runs::{self, ClusterRun};
use crate::error::{Damage, GuestError};
use crate::volume::VolumeReader;

/// Name of the structure in messages about its place.
const STRUCTURE: &str = "stream";
/// Maximum number of runs of a stream. Records of 1 KiB cannot hold more for one file, and NTFS itself has a lower
/// limit.
const RUNS_MAX: usize = 2 << 20;
const STRUCTURE_OF_MAP: &str = "MFT record";

/// A stream of a file: the value of an attribute, which may be distributed over several records.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Its encoding.
    pub(super) coding: Coding,
    /// Its length in bytes.
    pub(super) size_bytes: u64,
    /// Number of its bytes that were ever written. The others are zeros, whatever their clusters contain.
    pub(super) initialized_bytes: u64,
    /// Bytes that are allocated for it outside of records.
    pub(super) stored_bytes: u64,
    /// Its place.
    pub(super) body: StreamBody,
    /// Why its map ends before the stream does, if it does.
    pub(super) broken: Option<Damage>,
}

/// Place of a stream.
#[derive(Clone, Debug)]
pub(super) enum StreamBody {
    /// In a record.
    Resident {
        /// Start of the value in the volume.
        place: u64,
        /// The value.
        value: Vec<u8>,
    },
    /// In clusters.
    Mapped(Map),
}

/// The runs of a stream, in its order and without gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    runs: Vec<ClusterRun>,
    /// Number of the volume's clusters in all runs.
    stored: u64,
}

/// A volume whose structures are numbered in clusters.
#[derive(Clone, Copy)]
pub(super) struct Clusters<'a> {
    /// The volume.
    pub(super) volume: &'a VolumeReader<'a>,
    /// Bytes of a cluster.
    pub(super) bytes: u64,
    /// Number of clusters.
    pub(super) count: u64,
}

impl<'a> Clusters<'a> {
    /// Returns a volume with the clusters of `geometry`.
    pub(super) fn of(volume: &'a VolumeReader<'a>, geometry: Geometry) -> Clusters<'a> {
        Clusters { volume, bytes: geometry.cluster_bytes, count: geometry.clusters }
    }
}

impl Stream {
    /// Assembles a stream from `parts`, each with its record; `None` without parts. A damaged or missing part makes the
    /// stream end before it.
    pub(super) fn assemble<'r>(
        parts: impl Iterator<Item = (&'r Record, Attribute<'r>)>,
        clusters: Clusters<'_>,
    ) -> Option<Stream> {
        let mut mapped: Vec<(&Record, Coding, MappedPart<'_>)> = Vec::new();
        for (record, attribute) in parts {
            match attribute.body {
                AttributeBody::Resident { offset, value } => {
                    return Some(Stream::resident(record.place + offset as u64, value, attribute.coding));
                }
                AttributeBody::Mapped(part) => mapped.push((record, attribute.coding, part)),
            }
        }
        mapped.sort_by_key(|(_, _, part)| part.first);
        let &(record, coding, part) = mapped.first()?;
        let mut stream = Stream {
            coding,
            size_bytes: part.size_bytes,
            initialized_bytes: part.initialized_bytes.min(part.size_bytes),
            stored_bytes: part.stored_bytes,
            body: StreamBody::Mapped(Map::default()),
            broken: Some(clusters.volume.damage(record.place, STRUCTURE_OF_MAP, "a part of its map is missing")),
        };
        for (record, _, part) in mapped {
            if !stream.add_part(record, part, clusters) {
                break;
            }
        }
        Some(stream)
    }

    /// Adds the next part of the map, from `record`. Returns whether it fits.
    pub(super) fn add_part(&mut self, record: &Record, part: MappedPart<'_>, clusters: Clusters<'_>) -> bool {
        let StreamBody::Mapped(map) = &mut self.body else { return false };
        let outcome = map.add(part, clusters);
        if let Err(problem) = outcome {
            self.broken = Some(clusters.volume.damage(record.place, STRUCTURE_OF_MAP, problem));
        } else if map.end() * clusters.bytes >= self.size_bytes {
            self.broken = None;
        }
        outcome.is_ok()
    }

    fn resident(place: u64, value: &[u8], coding: Coding) -> Stream {
        let size_bytes = value.len() as u64;
        let body = StreamBody::Resident { place, value: value.to_vec() };
        Stream { coding, size_bytes, initialized_bytes: size_bytes, stored_bytes: 0, body, broken: None }
    }

    /// Returns its runs; none if it is resident.
    pub(super) fn runs(&self) -> &[ClusterRun] {
        match &self.body {
            StreamBody::Resident { .. } => &[],
            StreamBody::Mapped(map) => &map.runs,
        }
    }

    /// Returns how many of its bytes are stored before its first hole. Tables have no holes; a length that consists of
    /// holes must not determine how long a table is read.
    pub(super) fn solid_bytes(&self, clusters: Clusters<'_>) -> u64 {
        let stored = match &self.body {
            StreamBody::Resident { value, .. } => value.len() as u64,
            StreamBody::Mapped(map) => {
                let solid = map.runs.iter().take_while(|run| run.cluster.is_some()).last();
                solid.map_or(0, ClusterRun::end).saturating_mul(clusters.bytes)
            }
        };
        stored.min(self.initialized_bytes).min(clusters.volume.size_bytes())
    }

    /// Fills `into` with the stored bytes from `offset`, without decoding. Returns how many bytes there were before the
    /// end. Holes, and bytes that were never written, read as zeros.
    pub(super) fn read(&self, clusters: Clusters<'_>, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        let rest = usize::try_from(self.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = rest.min(into.len());
        let Some(into) = into.get_mut(..length) else { return Ok(0) };
        match &self.body {
            StreamBody::Resident { value, .. } => {
                let from = usize::try_from(offset).ok().and_then(|offset| value.get(offset..)?.get(..length));
                into.copy_from_slice(from.unwrap_or(&[]));
            }
            StreamBody::Mapped(map) => self.read_runs(&map.runs, clusters, offset, into)?,
        }
        Ok(length)
    }

    fn read_runs(
        &self,
        runs: &[ClusterRun],
        clusters: Clusters<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), GuestError> {
        let written = usize::try_from(self.initialized_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (mut rest, zeros) = into.split_at_mut(written.min(into.len()));
        zeros.fill(0);
        let mut at = offset;
        while !rest.is_empty() {
            let Some((place, length)) = locate(runs, clusters.bytes, at) else { return Err(self.cut_off(clusters)) };
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(length);
            match place {
                Some(place) => clusters.volume.read(place, part, STRUCTURE)?,
                None => part.fill(0),
            }
            at += length as u64;
            rest = after;
        }
        Ok(())
    }

    /// Returns the error of a read past the mapped part.
    fn cut_off(&self, clusters: Clusters<'_>) -> GuestError {
        let unknown = || clusters.volume.damage(0, STRUCTURE, "its map ends before it does");
        self.broken.clone().unwrap_or_else(unknown).into()
    }

    /// Returns the whole stream.
    ///
    /// # Errors
    /// When it is longer than `bytes_max`, is encoded, or cannot be read.
    pub(super) fn read_all(&self, clusters: Clusters<'_>, bytes_max: u64) -> Result<Vec<u8>, GuestError> {
        let place = self.place_of(clusters.bytes, 0).unwrap_or(0);
        if self.size_bytes > bytes_max {
            return Err(clusters.volume.damage(place, STRUCTURE, "it is longer than it can be").into());
        }
        if self.coding.is_compressed() || self.coding.is_encrypted() {
            return Err(clusters.volume.damage(place, STRUCTURE, "it is encoded and must not be").into());
        }
        let mut bytes = vec![0; usize::try_from(self.size_bytes).unwrap_or(0)];
        self.read(clusters, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the place of byte `offset` of the stream in the volume; `None` in a hole and past the end.
    pub(super) fn place_of(&self, cluster_bytes: u64, offset: u64) -> Option<u64> {
        match &self.body {
            StreamBody::Resident { place, value } => (offset < value.len() as u64).then(|| place + offset),
            StreamBody::Mapped(map) => locate(&map.runs, cluster_bytes, offset)?.0,
        }
    }
}

impl Map {
    /// Returns the cluster of the stream after its last run. Its first byte is a number of 63 bits.
    fn end(&self) -> u64 {
        self.runs.last().map_or(0, ClusterRun::end)
    }

    /// Adds the runs of the next part: all or none. Fails with the reason.
    fn add(&mut self, part: MappedPart<'_>, clusters: Clusters<'_>) -> Result<(), &'static str> {
        if part.first != self.end() {
            return Err("a part of its map is missing");
        }
        let known = self.runs.len();
        let decoded = runs::decode(part.pairs, part.first, clusters.count, &mut self.runs);
        let added = self.runs.get(known..).unwrap_or(&[]).iter().filter(|run| run.cluster.is_some());
        let stored = added.fold(self.stored, |sum, run| sum.saturating_add(run.count));
        let fits = self.end().checked_mul(clusters.bytes).is_some_and(|end| i64::try_from(end).is_ok());
        let is_sound = fits && stored <= clusters.count && self.runs.len() <= RUNS_MAX;
        let outcome = decoded.and(if is_sound { Ok(()) } else { Err("its map is too long") });
        match outcome {
            Ok(()) => self.stored = stored,
            Err(_) => self.runs.truncate(known),
        }
        outcome
    }
}

/// Returns the place of a byte of mapped clusters in the volume (`None` in a hole), and the number of bytes that follow
/// in its run; `None` past the last run.
pub(super) fn locate(runs: &[ClusterRun], cluster_bytes: u64, offset: u64) -> Option<(Option<u64>, u64)> {
    let (cluster, within) = (offset / cluster_bytes, offset % cluster_bytes);
    let run = runs.get(runs.partition_point(|run| run.end() <= cluster))?;
    let ahead = cluster.checked_sub(run.first)?;
    let place = run.cluster.map(|first| (first + ahead) * cluster_bytes + within);
    Some((place, (run.count - ahead) * cluster_bytes - within))
}

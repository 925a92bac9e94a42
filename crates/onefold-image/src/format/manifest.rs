//! Manifests. A manifest describes one version of one image.
//!
//! | field         | type                                                                              |
//! |---------------|-----------------------------------------------------------------------------------|
//! | image         | version u32, name as a text                                                       |
//! | captured      | seconds i64, nanoseconds u32                                                      |
//! | size          | u64                                                                               |
//! | units, region | as in the descriptor                                                              |
//! | totals        | free, zero, data, units, new units, new bytes, stored bytes: u64 each             |
//! | numbers       | of volumes, chunks, regions: u32 each                                             |
//! | volumes       | start, length, taken bytes: u64 each; content: text; way u32: 1 map, 2 raw with a text, |
//! |               | 3 map with unread bytes u64                                                       |
//! | chunks        | names of their headers, 32 bytes each                                             |
//! | regions       | first chunk u32; number of others u32 and their numbers u32, or 2^32 - 1 if too many |

use onefold_block::Timestamp;

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::descriptor::{UnitKind, is_region};
use super::fields::{decode_image, decode_time, encode_image, encode_time};
use super::frame::{Kind, MANIFEST_UNREAD, Needs, disclose_of_with, enclose_with};
use crate::run::SECTORS_MAX;
use crate::{ArchiveId, ImageVersion, ObjectId, SECTOR_BYTES, UnitName};

/// One version of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The archive that it belongs to.
    pub archive: ArchiveId,
    /// The manifest's own name.
    pub id: ObjectId,
    /// The image.
    pub image: ImageVersion,
    /// When the capture began.
    pub captured: Timestamp,
    /// Length of the disk in bytes.
    pub size_bytes: u64,
    /// How the disk was cut into units.
    pub units: UnitKind,
    /// Length of a region in bytes.
    pub region_bytes: u64,
    /// The volumes that were found on the disk and how each was captured, in the order of the disk.
    pub volumes: Vec<CapturedVolume>,
    /// Where the bytes of the disk went.
    pub totals: Totals,
    /// Names of the headers of all chunks, in the order of the disk.
    pub chunks: Vec<UnitName>,
    /// The chunks of each region of the disk, in order.
    pub regions: Vec<RegionChunks>,
}

/// The chunks of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionChunks {
    /// Index of the first chunk that begins in this region, or that of the next region if no chunk does. All chunks
    /// before the next region's first one begin here, too.
    pub first: u32,
    /// Further chunks that have sectors here, in order; `None` if there are more than [`OTHERS_MAX`].
    pub others: Option<Vec<u32>>,
}

/// Maximum number of further chunks that a region lists.
pub const OTHERS_MAX: usize = 1024;

/// How one volume of a disk was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedVolume {
    /// First byte on the disk.
    pub start_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Its content, for example "ext4", in Onefold's own words, at most 64 bytes.
    pub content: String,
    /// How it was captured.
    pub way: CaptureWay,
    /// Captured bytes that are not zero.
    pub taken_bytes: u64,
    /// Bytes that count as zero because nothing reads them, whatever they are; 0 for a volume that was captured raw.
    pub unread_bytes: u64,
}

/// How a volume was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureWay {
    /// By its allocation map: everything except the bytes that are certainly free.
    Map,
    /// Raw: every byte that is not zero. The reason is in Onefold's own words, at most 256 bytes.
    Raw(String),
}

/// Where the bytes of a disk went: `size = free + zero + data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Certainly free, and not captured.
    pub free_bytes: u64,
    /// Captured, and zero.
    pub zero_bytes: u64,
    /// In units.
    pub data_bytes: u64,
    /// Number of units of the image.
    pub units: u64,
    /// Number of units that the archive did not have.
    pub new_units: u64,
    /// Plain bytes of the new units.
    pub new_bytes: u64,
    /// Bytes that the new units take in packs, including headers of chunks.
    pub stored_bytes: u64,
}

/// Maximum length of a manifest in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of regions of a disk: 64 TiB with regions of 64 MiB. In memory, each takes several times its bytes.
pub const REGIONS_MAX: u64 = 1 << 20;
/// Maximum number of volumes of a disk.
const VOLUMES_MAX: usize = 1 << 16;
/// Longest disk, in bytes.
const DISK_BYTES_MAX: u64 = SECTORS_MAX * SECTOR_BYTES;
/// Maximum length of [`CapturedVolume::content`] in bytes.
const CONTENT_BYTES_MAX: usize = 64;
/// Maximum length of the reason of [`CaptureWay::Raw`] in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Minimum bytes of a volume, and of a region.
const VOLUME_BYTES_MIN: usize = 8 + 8 + 2 + 4 + 8;
const REGION_BYTES_MIN: usize = 4 + 4;
/// Replaces [`RegionChunks::others`] that are too many.
const CROWDED: u32 = u32::MAX;

impl Manifest {
    /// Encodes the manifest as an object.
    ///
    /// # Errors
    /// When a field is invalid. Every encoded manifest can be decoded.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut body = Encoder(Vec::with_capacity(1024 + self.chunks.len() * 32 + self.regions.len() * 8));
        encode_image(&mut body, &self.image);
        encode_time(&mut body, self.captured);
        body.u64(self.size_bytes);
        self.units.encode(&mut body);
        body.u64(self.region_bytes);
        self.totals.fields().iter().for_each(|total| {
            body.u64(*total);
        });
        body.count(self.volumes.len()).count(self.chunks.len()).count(self.regions.len());
        self.volumes.iter().for_each(|volume| volume.encode(&mut body));
        self.chunks.iter().for_each(|chunk| {
            body.bytes(&chunk.0);
        });
        self.regions.iter().for_each(|region| region.encode(&mut body));
        if body.0.len() as u64 > MANIFEST_BYTES_MAX - 1024 {
            return Err(FormatError::Length { structure: Kind::Manifest.structure() });
        }
        let needs = Needs { features: self.features(), ..Needs::KNOWN };
        Ok(enclose_with(Kind::Manifest, needs, self.archive, self.id, &body.0))
    }

    /// Decodes a manifest from an object.
    ///
    /// # Errors
    /// When the object is not a valid manifest, or is another one.
    pub fn decode(archive: ArchiveId, id: ObjectId, object: &[u8]) -> Result<Manifest, FormatError> {
        let (features, body) = disclose_of_with(Kind::Manifest, archive, id, object)?;
        let decoder = &mut Decoder::new(Kind::Manifest.structure(), body);
        let image = decode_image(decoder)?;
        let captured = decode_time(decoder)?;
        let size_bytes = decoder.u64()?;
        let units = UnitKind::decode(decoder)?;
        let region_bytes = decoder.u64()?;
        let totals = Totals::decode(decoder)?;
        let [volumes, chunks, regions] = [decoder.u32()?, decoder.u32()?, decoder.u32()?].map(u64::from);
        // Before any of them takes memory.
        if volumes > VOLUMES_MAX as u64 || regions > REGIONS_MAX {
            return Err(decoder.wrong("too many volumes or regions"));
        }
        let volumes = decoder.there(volumes, VOLUME_BYTES_MIN)?;
        let volumes = (0..volumes).map(|_| CapturedVolume::decode(decoder)).collect::<Result<Vec<_>, _>>()?;
        let chunks = decoder.there(chunks, 32)?;
        let chunks = (0..chunks).map(|_| decoder.array().map(UnitName)).collect::<Result<Vec<_>, _>>()?;
        let regions = decoder.there(regions, REGION_BYTES_MIN)?;
        let regions = (0..regions).map(|_| RegionChunks::decode(decoder)).collect::<Result<Vec<_>, _>>()?;
        decoder.end()?;
        let manifest = Manifest {
            archive,
            id,
            image,
            captured,
            size_bytes,
            units,
            region_bytes,
            volumes,
            totals,
            chunks,
            regions,
        };
        manifest.check()?;
        if manifest.features() != features {
            return Err(FormatError::Value { structure: Kind::Manifest.structure(), what: "a feature that it lacks" });
        }
        Ok(manifest)
    }

    /// Returns the features that readers must know.
    fn features(&self) -> u32 {
        if self.volumes.iter().any(|volume| volume.unread_bytes > 0) { MANIFEST_UNREAD } else { 0 }
    }

    /// Checks the properties on which readers rely: totals add up, volumes lie on the disk, and regions lead to chunks
    /// that exist.
    fn check(&self) -> Result<(), FormatError> {
        let wrong = |what| Err(FormatError::Value { structure: Kind::Manifest.structure(), what });
        if self.size_bytes > DISK_BYTES_MAX || !is_region(self.region_bytes) || !self.units.is_valid() {
            return wrong("an impossible length");
        }
        if self.volumes.len() > VOLUMES_MAX || self.regions.len() as u64 > REGIONS_MAX {
            return wrong("too many volumes or regions");
        }
        if self.image.version == 0 {
            return wrong("versions are counted from 1");
        }
        let Totals { free_bytes, zero_bytes, data_bytes, .. } = self.totals;
        if free_bytes.checked_add(zero_bytes).and_then(|sum| sum.checked_add(data_bytes)) != Some(self.size_bytes) {
            return wrong("its totals do not add up");
        }
        if !self.volumes.iter().all(|volume| volume.is_within(self.size_bytes)) {
            return wrong("a volume outside the disk, or a text that is too long");
        }
        let chunks = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        if self.regions.len() as u64 != self.size_bytes.div_ceil(self.region_bytes) {
            return wrong("another number of regions than the disk has");
        }
        if self.regions.first().is_some_and(|region| region.first != 0) || (self.regions.is_empty() && chunks > 0) {
            return wrong("a chunk of no region");
        }
        if !self.regions.is_sorted_by_key(|region| region.first)
            || self.regions.iter().any(|region| !region.is_within(chunks))
        {
            return wrong("a region leads to chunks that are not there");
        }
        Ok(())
    }
}

impl RegionChunks {
    fn is_within(&self, chunks: u32) -> bool {
        let others = self.others.as_deref().unwrap_or_default();
        self.first <= chunks
            && others.len() <= OTHERS_MAX
            && others.is_sorted_by(|one, next| one < next)
            && others.last().is_none_or(|last| *last < chunks)
    }

    fn encode(&self, body: &mut Encoder) {
        body.u32(self.first);
        match &self.others {
            None => {
                body.u32(CROWDED);
            }
            Some(others) => {
                body.count(others.len());
                others.iter().for_each(|other| {
                    body.u32(*other);
                });
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<RegionChunks, FormatError> {
        let (first, others) = (decoder.u32()?, decoder.u32()?);
        if others == CROWDED {
            return Ok(RegionChunks { first, others: None });
        }
        let others = decoder.there(u64::from(others), 4)?;
        Ok(RegionChunks { first, others: Some((0..others).map(|_| decoder.u32()).collect::<Result<Vec<_>, _>>()?) })
    }
}

impl CapturedVolume {
    fn is_within(&self, size_bytes: u64) -> bool {
        let reason = match &self.way {
            CaptureWay::Map => "",
            CaptureWay::Raw(reason) => reason,
        };
        self.start_bytes.checked_add(self.length_bytes).is_some_and(|end| end <= size_bytes)
            && self.taken_bytes <= size_bytes
            && self.unread_bytes <= size_bytes
            && (self.unread_bytes == 0 || self.way == CaptureWay::Map)
            && self.content.len() <= CONTENT_BYTES_MAX
            && reason.len() <= REASON_BYTES_MAX
    }

    fn encode(&self, body: &mut Encoder) {
        body.u64(self.start_bytes).u64(self.length_bytes).u64(self.taken_bytes).text(&self.content);
        match &self.way {
            CaptureWay::Map if self.unread_bytes > 0 => body.u32(3).u64(self.unread_bytes),
            CaptureWay::Map => body.u32(1),
            CaptureWay::Raw(reason) => body.u32(2).text(reason),
        };
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<CapturedVolume, FormatError> {
        let (start_bytes, length_bytes, taken_bytes) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let content = decoder.text(CONTENT_BYTES_MAX)?.to_owned();
        let (way, unread_bytes) = match decoder.u32()? {
            1 => (CaptureWay::Map, 0),
            2 => (CaptureWay::Raw(decoder.text(REASON_BYTES_MAX)?.to_owned()), 0),
            3 => match decoder.u64()? {
                0 => return Err(decoder.wrong("a volume with none of the unread bytes that it claims")),
                unread_bytes => (CaptureWay::Map, unread_bytes),
            },
            _ => return Err(decoder.wrong("a volume captured in an unknown way")),
        };
        Ok(CapturedVolume { start_bytes, length_bytes, content, way, taken_bytes, unread_bytes })
    }
}

impl Totals {
    fn fields(self) -> [u64; 7] {
        let Totals { free_bytes, zero_bytes, data_bytes, units, new_units, new_bytes, stored_bytes } = self;
        [free_bytes, zero_bytes, data_bytes, units, new_units, new_bytes, stored_bytes]
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Totals, FormatError> {
        let (free_bytes, zero_bytes, data_bytes) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let (units, new_units) = (decoder.u64()?, decoder.u64()?);
        let (new_bytes, stored_bytes) = (decoder.u64()?, decoder.u64()?);
        Ok(Totals { free_bytes, zero_bytes, data_bytes, units, new_units, new_bytes, stored_bytes })
    }
}

//! The entry that names what a writer has added: of an image, or of packs that take the place of others.

use onefold_block::Timestamp;

use super::{Writer, announce};
use crate::archive::ArchiveError;
use crate::archive::objects::{Folder, is_missing, new_id};
use crate::archive::rules::{Rule, follows};
use crate::archive::units::decompressor;
use crate::format::chunk_header::ChunkHeader;
use crate::format::descriptor::UnitKind;
use crate::format::ledger::Change;
use crate::format::manifest::{CapturedVolume, Manifest, RegionChunks, Totals};
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::format::segment::{IndexEntry, Segment};
use crate::store::ByteRange;
use crate::{ImageName, ImageVersion, ObjectId, UnitName};

/// A manifest before it has a name and a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestDraft {
    /// Name of the image.
    pub name: ImageName,
    /// As in [`Manifest::captured`].
    pub captured: Timestamp,
    /// As in [`Manifest::size_bytes`].
    pub size_bytes: u64,
    /// As in [`Manifest::units`].
    pub units: UnitKind,
    /// As in [`Manifest::region_bytes`].
    pub region_bytes: u64,
    /// As in [`Manifest::volumes`].
    pub volumes: Vec<CapturedVolume>,
    /// As in [`Manifest::totals`].
    pub totals: Totals,
    /// As in [`Manifest::chunks`].
    pub chunks: Vec<UnitName>,
    /// As in [`Manifest::regions`].
    pub regions: Vec<RegionChunks>,
}

impl Writer<'_> {
    /// Makes an image of the units that were added. The image is durable when this returns. If another writer took the
    /// version, the image gets the next one.
    ///
    /// # Errors
    /// [`ArchiveError::Retired`] if packs that it relies on went meanwhile: the units that it names have to be added,
    /// and this is called again. They may be all units that the writer added: it was given up then, and has begun again
    /// under a new name. Otherwise when the manifest makes no sense, or the store fails. There is no image then; after
    /// [`ArchiveError::Doubtful`] nobody knows, and this writer is of no more use.
    pub fn commit(&mut self, draft: ManifestDraft) -> Result<(ImageVersion, Manifest), ArchiveError> {
        if follows(Rule::DurableBeforeEntry) {
            self.put_packs()?;
        }
        let mut segment = self.put_segment()?;
        let mut manifest = self.manifest(draft)?;
        loop {
            self.archive.refresh()?;
            if self.is_displaced() && follows(Rule::GivenUpAddsNothing) {
                self.begin_again()?;
                segment = None;
                continue;
            }
            let (position, version) = {
                let state = self.archive.state.read();
                (state.position, state.next_version(&manifest.image.name))
            };
            self.check_room()?;
            match self.check_relied(&manifest) {
                // Another host has given the writer up since the ledger was read, and deleted its packs.
                Err(error) if is_missing(&error) && self.is_displaced_by_now()? => continue,
                checked => checked?,
            }
            manifest.image.version = version.unwrap_or(0);
            manifest.id = new_id(self.id, self.seams.random)?;
            let object = manifest.encode()?;
            self.archive.store().put(&Folder::Manifests.object(manifest.id), &[&object])?;
            let change = Change::ImageAdded {
                image: manifest.image.clone(),
                manifest: manifest.id,
                digest: *blake3::hash(&object).as_bytes(),
                packs: self.packs.clone(),
                segment,
            };
            if self.append(position, change)? {
                // The ledger now names the packs, and another image may follow.
                self.packs.clear();
                self.own.clear();
                return Ok((manifest.image.clone(), manifest));
            }
        }
    }

    /// Returns whether another host gave the writer up, or took a pack of its over because it seemed to have ended.
    fn is_displaced(&self) -> bool {
        let state = self.archive.state.read();
        state.is_given_up(self.id) || self.packs.iter().any(|pack| state.is_named(*pack))
    }

    /// As [`Writer::is_displaced`], by the newest entries.
    fn is_displaced_by_now(&self) -> Result<bool, ArchiveError> {
        self.archive.refresh()?;
        Ok(self.is_displaced())
    }

    /// Begins again under a new name, because another host gave the writer up: its packs may be deleted at any time.
    /// Fails if there were any, with the units that have to be added again.
    fn begin_again(&mut self) -> Result<(), ArchiveError> {
        self.id = announce(self.archive, self.seams, &self.host)?;
        let mut units: Vec<UnitName> = self.own.keys().copied().collect();
        units.sort_unstable();
        self.forget();
        self.packs.clear();
        self.stored_bytes = 0;
        if units.is_empty() { Ok(()) } else { Err(ArchiveError::Retired(units)) }
    }

    /// Adds the units of this writer without an image, and replaces the packs in `old` that are still live: each intact
    /// unit in them must be in a pack of the writer, or in another live one. Returns how many it replaced.
    ///
    /// # Errors
    /// When the writer was given up, or the store fails. Nothing is replaced then; after [`ArchiveError::Doubtful`]
    /// nobody knows.
    pub(in crate::archive) fn replace(&mut self, old: &[ObjectId]) -> Result<u64, ArchiveError> {
        self.put_packs()?;
        let segment = self.put_segment()?;
        loop {
            self.archive.refresh()?;
            if self.is_displaced() {
                return Err(ArchiveError::GivenUp { writer: self.id });
            }
            let (position, old) = {
                let state = self.archive.state.read();
                let live: Vec<ObjectId> = old.iter().copied().filter(|pack| state.is_live(*pack)).collect();
                (state.position, live)
            };
            let replaced = old.len() as u64;
            let change = match segment {
                Some(segment) => Change::PacksReplaced { old, new: self.packs.clone(), segment },
                None if old.is_empty() => return Ok(0),
                None => Change::PacksRetired { packs: old },
            };
            if self.append(position, change)? {
                self.packs.clear();
                self.own.clear();
                return Ok(replaced);
            }
        }
    }

    /// Makes the segment of its packs durable.
    pub(super) fn put_segment(&self) -> Result<Option<ObjectId>, ArchiveError> {
        if self.packs.is_empty() {
            return Ok(None);
        }
        let mut entries: Vec<IndexEntry> = Vec::with_capacity(self.own.len());
        entries.extend(self.own.iter().map(|(name, own)| IndexEntry {
            prefix: name.prefix(),
            pack: own.pack,
            offset: own.offset,
            stored_bytes: own.stored_bytes,
        }));
        entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
        let segment = Segment { packs: self.packs.clone(), entries };
        let id = new_id(self.id, self.seams.random)?;
        let object = segment.encode(self.archive.descriptor().archive, id)?;
        self.archive.store().put(&Folder::Segments.object(id), &[&object])?;
        Ok(Some(id))
    }

    /// Returns the manifest of a draft. Its own name and its version are set later.
    fn manifest(&self, draft: ManifestDraft) -> Result<Manifest, ArchiveError> {
        let ManifestDraft { name, captured, size_bytes, units, region_bytes, volumes, totals, chunks, regions } = draft;
        Ok(Manifest {
            archive: self.archive.descriptor().archive,
            id: new_id(self.id, self.seams.random)?,
            image: ImageVersion { name, version: 0 },
            captured,
            size_bytes,
            units,
            region_bytes,
            volumes,
            totals,
            chunks,
            regions,
        })
    }

    /// Checks that the archive has room for the units that the writer added, beside those that others added meanwhile.
    fn check_room(&self) -> Result<(), ArchiveError> {
        let Some(others) = self.own.len().checked_sub(1) else {
            return Ok(());
        };
        self.archive.read_index(&self.archive.state.read())?;
        self.archive.index.read().check_room(others, self.archive.limits.units_max)
    }

    /// Checks that all packs on which the image relies still hold the same units.
    fn check_relied(&mut self, manifest: &Manifest) -> Result<(), ArchiveError> {
        let (position, is_sound) = {
            let state = self.archive.state.read();
            let is_sound = self.relied.iter().all(|pack| state.is_live(*pack)) && !state.lost_since(self.looked);
            (state.position, is_sound)
        };
        let missing = if is_sound || !follows(Rule::ReliedPacksHold) { Vec::new() } else { self.look_again(manifest)? };
        if missing.is_empty() {
            self.looked = position;
            Ok(())
        } else {
            Err(ArchiveError::Retired(missing))
        }
    }

    /// Looks up each unit of the image anew. Returns those that no pack has any more, and the headers of chunks that no
    /// pack returns.
    fn look_again(&mut self, manifest: &Manifest) -> Result<Vec<UnitName>, ArchiveError> {
        self.relied.clear();
        let mut missing = Vec::new();
        for chunk in &manifest.chunks {
            if self.rely(chunk)?.is_none() {
                missing.push(*chunk);
                continue;
            }
            let header = match self.header(chunk) {
                Ok(header) => header,
                Err(ArchiveError::Lost { .. } | ArchiveError::DamagedUnit { .. } | ArchiveError::Store(_))
                    if !self.own.contains_key(chunk) =>
                {
                    self.unreadable.insert(*chunk);
                    missing.push(*chunk);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for unit in &header.units {
                if self.rely(&unit.name)?.is_none() {
                    missing.push(unit.name);
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// Returns the header of a chunk. It may be in a pack that no entry names yet.
    fn header(&self, chunk: &UnitName) -> Result<ChunkHeader, ArchiveError> {
        let Some(own) = self.own.get(chunk) else {
            return self.archive.header(chunk);
        };
        let pack = Folder::Packs.object(self.packs[own.pack as usize]);
        let length_bytes = u64::from(UNIT_HEADER_BYTES) + u64::from(own.stored_bytes);
        let bytes = self.archive.store().get(&pack, ByteRange::From { offset: u64::from(own.offset), length_bytes })?;
        let mut plain = Vec::new();
        if !self.archive.decode_unit(&mut decompressor()?, *chunk, &bytes, &mut plain) {
            return Err(ArchiveError::DamagedUnit { unit: *chunk, pack: pack.to_string() });
        }
        ChunkHeader::decode(&plain).map_err(|source| ArchiveError::refused(format!("unit {chunk}"), source))
    }
}

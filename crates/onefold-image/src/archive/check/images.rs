//! Checks images: every chunk header and every unit that one needs is in a pack, with the right length.

use std::collections::BTreeSet;

use super::sums::Sums;
use super::{Check, LOOKS_MAX, TableUnit};
use crate::archive::ArchiveError;
use crate::archive::objects::Folder;
use crate::archive::state::ImageRecord;
use crate::archive::units::decompressor;
use crate::format::FormatError;
use crate::format::chunk_header::ChunkHeader;
use crate::format::manifest::Manifest;
use crate::format::pack::UNIT_HEADER_BYTES;
use crate::store::ByteRange;
use crate::{ImageVersion, SECTOR_BYTES, UnitName, placed};

impl Check<'_> {
    pub(super) fn image(&mut self, record: &ImageRecord) -> Result<(), ArchiveError> {
        let manifest = match self.archive.manifest(record) {
            Ok(manifest) => manifest,
            // It was removed since the check began.
            Err(ArchiveError::Removed { .. }) => return Ok(()),
            Err(error) => {
                self.survey.unknown_needs = true;
                let name = Folder::Manifests.object(record.manifest).to_string();
                return self.broken(name, error, Some(&record.image));
            }
        };
        let mut sums = Sums::of(&manifest);
        let mut region = 0;
        let mut sectors_left = manifest.size_bytes.div_ceil(SECTOR_BYTES);
        for (number, chunk) in (0u32..).zip(&manifest.chunks) {
            while manifest.regions.get(region + 1).is_some_and(|next| next.first <= number) {
                region += 1;
            }
            let sectors = self.chunk(&manifest, number, *chunk, region as u64, &mut sums)?;
            if sums.has_overlap() {
                self.survey.unknown_needs = true;
                break;
            }
            let Some(left) = sectors_left.checked_sub(sectors) else {
                // A manifest may name one chunk without end.
                self.survey.unknown_needs = true;
                let name = Folder::Manifests.object(record.manifest).to_string();
                self.damage(name, "its chunks have more sectors than the disk", Some(&record.image));
                break;
            };
            sectors_left = left;
        }
        while let Some(chunks) = sums.next() {
            for number in chunks {
                let header = self.header(manifest.chunks[number])?;
                header.iter().for_each(|header| sums.claim(number, header));
            }
        }
        if let Some(what) = sums.damage(&manifest) {
            self.damage(Folder::Manifests.object(record.manifest).to_string(), what, Some(&record.image));
        }
        Ok(())
    }

    /// Checks a chunk, which begins in `region` by the manifest. Returns how many sectors it has; 1 if nobody knows.
    fn chunk(
        &mut self,
        manifest: &Manifest,
        number: u32,
        chunk: UnitName,
        region: u64,
        sums: &mut Sums,
    ) -> Result<u64, ArchiveError> {
        let is_known = self.sound_headers.contains(&(chunk, region));
        let header = match self.header(chunk)? {
            Some(header) => Some(header),
            None if self.lost(chunk, None, &manifest.image)? => None,
            None => self.header(chunk)?,
        };
        let Some(header) = header else {
            // A table has it, and its pack cannot be read now. Missing packs may have what it names.
            self.survey.unknown_needs |= self.state.images.contains_key(&manifest.image);
            sums.lacks_a_chunk();
            return Ok(1);
        };
        let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
        let sectors = runs.map(|run| run.count).fold(0, u64::saturating_add).max(1);
        let placed = placed::check(&chunk, &header, manifest.size_bytes).map_err(|error| error.what);
        match placed {
            Ok(()) => sums.add(number as usize, &header),
            Err(_) => sums.lacks_a_chunk(),
        }
        if let Err(what) = placed.and_then(|()| check_place(manifest, number, &header, region)) {
            self.damage(format!("chunk {number} of {}", manifest.image), what, Some(&manifest.image));
        }
        if is_known {
            return Ok(sectors);
        }
        let mut is_sound = true;
        for unit in &header.units {
            if self.find(unit.name, Some(unit.plain_bytes)).is_none() {
                is_sound &= !self.lost(unit.name, Some(unit.plain_bytes), &manifest.image)?;
            }
        }
        if is_sound {
            self.sound_headers.insert((chunk, region));
        }
        Ok(sectors)
    }

    /// Records that an image needs a unit of which no pack has an intact copy, and returns true; false if a collection
    /// moved the unit meanwhile, or the image was removed. If the index places the unit in a damaged pack, the record
    /// goes to the damage of that pack.
    fn lost(&mut self, unit: UnitName, plain_bytes: Option<u32>, image: &ImageVersion) -> Result<bool, ArchiveError> {
        if self.looks < LOOKS_MAX {
            self.looks += 1;
            let is_there = self.catch_up()? && self.find(unit, plain_bytes).is_some();
            if is_there || !self.state.images.contains_key(image) {
                return Ok(false);
            }
        }
        // A unit of another length is whole for the images that say its length right.
        if self.find(unit, None).is_none() {
            self.survey.add_lost(unit);
        }
        // The place only groups what is reported, so a check goes on where there is no room for the index.
        let places = match self.archive.places(unit) {
            Err(ArchiveError::System { .. }) => Vec::new(),
            places => places?,
        };
        let packs = places.iter().map(|place| Folder::Packs.object(place.pack).to_string());
        let object = packs.into_iter().find(|pack| self.damages.contains_key(pack));
        self.damage(object.unwrap_or_else(|| format!("unit {unit}")), "no pack has it whole", Some(image));
        Ok(true)
    }

    /// Returns the unit with this name and length, if a table lists it.
    fn find(&self, name: UnitName, plain_bytes: Option<u32>) -> Option<TableUnit> {
        let from = self.known.partition_point(|unit| (unit.name, unit.plain_bytes) < (name, plain_bytes.unwrap_or(0)));
        let unit = self.known.get(from).filter(|unit| unit.name == name)?;
        plain_bytes.is_none_or(|plain_bytes| plain_bytes == unit.plain_bytes).then_some(*unit)
    }

    /// Returns the header of a chunk, from where the tables say; otherwise from where the index does.
    fn header(&mut self, chunk: UnitName) -> Result<Option<ChunkHeader>, ArchiveError> {
        let Some(unit) = self.find(chunk, None) else {
            return Ok(None);
        };
        let id = self.packs[unit.pack as usize];
        let pack = Folder::Packs.object(id);
        let length_bytes = u64::from(UNIT_HEADER_BYTES + unit.stored_bytes);
        let range = ByteRange::From { offset: u64::from(unit.offset), length_bytes };
        let bytes = match self.archive.store().get(&pack, range).map_err(ArchiveError::from) {
            Ok(bytes) => bytes,
            Err(error) => {
                if !self.is_collected(&error, |state| !state.is_live(id))? {
                    self.broken(pack.to_string(), error, None)?;
                }
                Vec::new()
            }
        };
        let mut plain = Vec::new();
        if self.archive.decode_unit(&mut decompressor()?, chunk, &bytes, &mut plain) {
            return match ChunkHeader::decode(&plain) {
                Err(source @ FormatError::Newer { .. }) => Err(ArchiveError::refused(format!("unit {chunk}"), source)),
                header => Ok(header.ok()),
            };
        }
        match self.archive.header(&chunk) {
            Ok(header) => Ok(Some(header)),
            Err(error @ ArchiveError::Newer { .. }) => Err(error),
            Err(error @ ArchiveError::Store(_)) => self.archive.of_object(error).map(|_| None),
            Err(_) => Ok(None),
        }
    }
}

/// Checks that the manifest leads every reader of the disk to a chunk, which stays on the disk.
fn check_place(manifest: &Manifest, number: u32, header: &ChunkHeader, region: u64) -> Result<(), &'static str> {
    if header.region != region {
        return Err("its header says another region than the manifest");
    }
    let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
    let mut checked = BTreeSet::from([region]);
    for run in runs {
        let first = run.start_bytes() / manifest.region_bytes;
        let last = (run.start_bytes() + run.length_bytes() - 1) / manifest.region_bytes;
        for other in first..=last {
            let listed = || {
                let region = usize::try_from(other).ok().and_then(|other| manifest.regions.get(other));
                region.is_some_and(|region| {
                    region.others.as_ref().is_none_or(|others| others.binary_search(&number).is_ok())
                })
            };
            if checked.insert(other) && !listed() {
                return Err("it has sectors in a region that does not list it");
            }
        }
    }
    Ok(())
}

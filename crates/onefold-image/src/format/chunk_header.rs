//! Chunk headers: the units of a chunk, and the places of their bytes on the disk.
//!
//! | field   | type                                                                                         |
//! |---------|----------------------------------------------------------------------------------------------|
//! | magic   | `1fch`                                                                                       |
//! | version | u16, 1; then features u16, 0                                                                 |
//! | region  | variable                                                                                     |
//! | numbers | of units, of runs of zeros: variable each                                                    |
//! | names   | of the units, 32 bytes each                                                                  |
//! | units   | for each, plain bytes and number of runs: variable each; then the runs                       |
//! | zeros   | runs                                                                                         |
//!
//! A variable number has seven bits in each byte, the lowest first. All bytes but the last have the highest bit set. A
//! run is two such numbers: twice its distance from the end of the previous run, plus 1 if the distance is negative,
//! and the number of sectors. The first run of units, and of zeros, counts from sector 0. Each number has only one
//! valid form.

use super::FormatError;
use super::bytes::{Decoder, Encoder};
use super::frame::VERSION;
use super::pack::UNIT_BYTES_MAX;
use crate::{SECTOR_BYTES, SectorRun, UnitName};

/// Maximum stored bytes of the units of a chunk, including their headers in the pack.
pub const CHUNK_STORED_BYTES_MAX: u64 = 1 << 20;

/// The header of one chunk. It is stored like a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Number of the region of the disk in which the chunk begins; that of the chunk before if that is a later one.
    pub region: u64,
    /// Its units, nearly in the order of their first sectors.
    pub units: Vec<PlacedUnit>,
    /// Sectors that must read as zero; in order, without overlap.
    pub zeros: Vec<SectorRun>,
}

/// A unit, and the places of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedUnit {
    /// The unit.
    pub name: UnitName,
    /// Length of its plain bytes: the total length of all runs, except that the last sector of a disk may be truncated.
    pub plain_bytes: u32,
    /// The runs that its bytes fill one after another; not empty. They need not be in the order of the disk.
    pub runs: Vec<SectorRun>,
}

/// First bytes of a header, which distinguish it from data.
const MAGIC: [u8; 4] = *b"1fch";
/// Name of the structure in errors.
const STRUCTURE: &str = "header of a chunk";
/// Minimum bytes of a unit: its name, its length, the number of its runs and one run.
const UNIT_BYTES_MIN: usize = 32 + 1 + 1 + 2;
/// Minimum bytes of a run.
const RUN_BYTES_MIN: usize = 2;

impl ChunkHeader {
    /// Returns its bytes, which are stored like a unit.
    ///
    /// # Errors
    /// When the header is longer than a unit may be, or a run, a length or the order of runs is invalid.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut encoder = Encoder::default();
        encoder.bytes(&MAGIC).u16(VERSION).u16(0).variable(self.region);
        encoder.variable(self.units.len() as u64).variable(self.zeros.len() as u64);
        for unit in &self.units {
            encoder.bytes(&unit.name.0);
        }
        let mut place = 0;
        for unit in &self.units {
            encoder.variable(u64::from(unit.plain_bytes)).variable(unit.runs.len() as u64);
            for run in &unit.runs {
                encode_run(&mut encoder, &mut place, *run);
            }
        }
        let mut place = 0;
        for run in &self.zeros {
            encode_run(&mut encoder, &mut place, *run);
        }
        if encoder.0.len() > UNIT_BYTES_MAX as usize {
            return Err(FormatError::Length { structure: STRUCTURE });
        }
        Ok(encoder.0)
    }

    /// Decodes a header from the plain bytes of a unit.
    ///
    /// # Errors
    /// When the bytes are not a valid header.
    pub fn decode(bytes: &[u8]) -> Result<ChunkHeader, FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, bytes);
        if decoder.array()? != MAGIC {
            return Err(FormatError::Other { structure: STRUCTURE, what: "its kind" });
        }
        let (version, features) = (decoder.u16()?, decoder.u16()?);
        if version != VERSION || features != 0 {
            return Err(FormatError::Newer { structure: STRUCTURE, version, features: u32::from(features) });
        }
        let region = decoder.variable()?;
        let (units, zeros) = (decoder.variable()?, decoder.variable()?);
        let units = decoder.there(units, UNIT_BYTES_MIN)?;
        let names = (0..units).map(|_| decoder.array().map(UnitName)).collect::<Result<Vec<UnitName>, _>>()?;
        let mut place = 0;
        let units = names.into_iter().map(|name| decode_unit(&mut decoder, &mut place, name));
        let units = units.collect::<Result<Vec<PlacedUnit>, _>>()?;
        let zeros = decoder.there(zeros, RUN_BYTES_MIN)?;
        let mut place = 0;
        let zeros = decode_runs(&mut decoder, &mut place, zeros)?;
        decoder.end()?;
        let header = ChunkHeader { region, units, zeros };
        header.check()?;
        Ok(header)
    }

    /// Checks the properties on which an installation relies: lengths match, runs lie within the possible length of a
    /// disk, and no sector has two contents.
    fn check(&self) -> Result<(), FormatError> {
        let wrong = |what| FormatError::Value { structure: STRUCTURE, what };
        for unit in &self.units {
            if unit.plain_bytes == 0 || unit.plain_bytes > UNIT_BYTES_MAX {
                return Err(wrong("a unit of an impossible length"));
            }
            let sectors = unit.runs.iter().try_fold(0u64, |sum, run| sum.checked_add(run.count));
            if sectors != Some(u64::from(unit.plain_bytes).div_ceil(SECTOR_BYTES)) {
                return Err(wrong("the runs of a unit have another length than the unit"));
            }
        }
        if !self.zeros.is_sorted() {
            return Err(wrong("runs of zeros are out of order"));
        }
        let mut runs: Vec<SectorRun> = Vec::with_capacity(self.units.iter().map(|unit| unit.runs.len()).sum());
        runs.extend(self.units.iter().flat_map(|unit| &unit.runs));
        if runs.iter().chain(&self.zeros).any(|run| !run.is_valid()) {
            return Err(wrong("a run is empty, or lies where no disk reaches"));
        }
        runs.sort_unstable();
        if overlap(&runs, &self.zeros) {
            return Err(wrong("runs overlap"));
        }
        Ok(())
    }
}

/// Returns whether any two runs of two sorted lists overlap, without a copy of both.
fn overlap(one: &[SectorRun], other: &[SectorRun]) -> bool {
    let (mut one, mut other) = (one, other);
    let mut reached = 0;
    loop {
        let (next, rest) = match (one, other) {
            ([], []) => return false,
            ([first, rest @ ..], [second, ..]) if first <= second => (first, (rest, other)),
            ([first, rest @ ..], []) => (first, (rest, other)),
            (_, [second, rest @ ..]) => (second, (one, rest)),
        };
        if next.start < reached {
            return true;
        }
        reached = next.end();
        (one, other) = rest;
    }
}

/// Encodes a run by its distance from `place`, the end of the previous run.
fn encode_run(encoder: &mut Encoder, place: &mut u64, run: SectorRun) {
    encoder.distance(*place, run.start).variable(run.count);
    *place = run.end();
}

fn decode_run(decoder: &mut Decoder<'_>, place: &mut u64) -> Result<SectorRun, FormatError> {
    let run = SectorRun { start: decoder.distance(*place)?, count: decoder.variable()? };
    if !run.is_valid() {
        return Err(decoder.wrong("a run is empty, or lies where no disk reaches"));
    }
    *place = run.end();
    Ok(run)
}

/// Decodes a number of runs whose bytes are there. Takes the memory for them once: a growing list takes up to three
/// times as much.
fn decode_runs(decoder: &mut Decoder<'_>, place: &mut u64, count: usize) -> Result<Vec<SectorRun>, FormatError> {
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        runs.push(decode_run(decoder, place)?);
    }
    Ok(runs)
}

fn decode_unit(decoder: &mut Decoder<'_>, place: &mut u64, name: UnitName) -> Result<PlacedUnit, FormatError> {
    let (plain_bytes, runs) = (decoder.variable()?, decoder.variable()?);
    let plain_bytes = u32::try_from(plain_bytes).map_err(|_| decoder.wrong("a unit of an impossible length"))?;
    let runs = decoder.there(runs, RUN_BYTES_MIN)?;
    let runs = decode_runs(decoder, place, runs)?;
    Ok(PlacedUnit { name, plain_bytes, runs })
}

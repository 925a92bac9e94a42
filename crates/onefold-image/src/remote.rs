//! The images of a server, as a source of installations. The server is not trusted: each unit is verified by its name.
//!
//! A chunk comes as a whole, and the server does not verify its units before it sends them. Where an installation wants
//! less of a chunk that has not come yet, its units are requested by themselves. Units that are not what their names
//! say are requested once more, by themselves, and then the server verifies them. If they are wrong again, the server
//! or the network lies.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::archive::{ArchiveError, Headers, WantedUnit};
use crate::compress::Decompressor;
use crate::format::chunk_header::ChunkHeader;
use crate::format::descriptor::Descriptor;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::format::wire::{NAMES_MAX, StoredUnits, units_of};
use crate::image_source::{Arrivals, ChunkReader, ImageSource, OnUnit, WantedUnits};
use crate::store::{Refusal, StoreError};
use crate::{ImageVersion, UnitKey, UnitName};

/// Requests to a server of images. Implementations repeat a request that is not answered, for a limited time.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Returns the address of the server for messages.
    fn server(&self) -> &str;

    /// Requests units. Returns the answer as it is, of at most
    /// [`UNITS_BYTES_MAX`](crate::format::wire::UNITS_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// When the server does not answer, refuses, or sends more.
    fn units(&self, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError>;

    /// As [`Transport::units`], for units of one chunk: a server may want to know from which chunk a client knows them.
    ///
    /// # Errors
    /// As [`Transport::units`].
    fn units_of(&self, chunk: &UnitName, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError>;

    /// Returns chunks in this order, of at most [`CHUNK_BYTES_MAX`](crate::format::wire::CHUNK_BYTES_MAX) bytes each.
    /// The next one may be on its way while the caller works on one.
    fn chunks(&self, names: &[UnitName]) -> Chunks<'_>;

    /// Returns whether the server still has an image, by its own word.
    ///
    /// # Errors
    /// When the server does not answer or refuses.
    fn has_image(&self, image: &ImageVersion) -> Result<bool, ArchiveError>;

    /// Returns how long callers have waited for answers so far, all threads together.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// Begins to receive these chunks, which are all of an image, if they come in an order that the server decides.
    /// Those that have come are then returned by [`Transport::chunks`]. `is_compared` says that the caller will call
    /// [`Arrivals::compared`].
    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        let _ = (chunks, is_compared);
        None
    }

    /// Returns whether a chunk has come already, so that [`Transport::chunks`] returns it at once.
    fn has_come(&self, chunk: &UnitName) -> bool {
        let _ = chunk;
        false
    }
}

/// The answers to requests of chunks.
pub type Chunks<'a> = Box<dyn Iterator<Item = Result<Vec<u8>, ArchiveError>> + Send + 'a>;

/// The images of a server.
#[derive(Debug)]
pub struct RemoteImages<T> {
    transport: T,
    descriptor: Descriptor,
    /// Bytes of all answers that have units.
    received_bytes: AtomicU64,
}

/// A chunk is requested as a whole if at most one of so many of its plain bytes is not wanted.
const UNWANTED_SHARE: u64 = 8;

impl<T: Transport> RemoteImages<T> {
    /// Returns the images of a server, whose archive has this descriptor.
    #[must_use]
    pub fn new(transport: T, descriptor: Descriptor) -> RemoteImages<T> {
        RemoteImages { transport, descriptor, received_bytes: AtomicU64::new(0) }
    }

    /// Returns the descriptor of the server's archive.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns the requests to the server, and the descriptor.
    #[must_use]
    pub fn into_parts(self) -> (T, Descriptor) {
        (self.transport, self.descriptor)
    }

    /// Returns the requests to the server.
    #[must_use]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Counts an answer.
    fn count(&self, answer: &[u8]) {
        self.received_bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
    }

    /// Returns the error of a unit that is not what its name says.
    fn wrong(&self, unit: UnitName) -> ArchiveError {
        ArchiveError::WrongUnit { unit, server: self.transport.server().to_owned() }
    }

    /// Requests units, of one chunk if it is known, and verifies them.
    fn read_units(
        &self,
        chunk: Option<&UnitName>,
        wanted: &[WantedUnit],
        each: OnUnit<'_>,
    ) -> Result<(), ArchiveError> {
        let (mut decompressor, mut plain) = (decompressor()?, Vec::new());
        let mut index = 0;
        while index < wanted.len() {
            let asked = &wanted[index..wanted.len().min(index + NAMES_MAX)];
            let names: Vec<UnitName> = asked.iter().map(|unit| unit.name).collect();
            let answer = match chunk {
                Some(chunk) => self.transport.units_of(chunk, &names)?,
                None => self.transport.units(&names)?,
            };
            self.count(&answer);
            let units = StoredUnits::of(&answer).take(asked.len());
            let before = index;
            for (unit, stored) in asked.iter().zip(units) {
                let stored = stored.map_err(|_| self.wrong(unit.name))?;
                if !self.is_unit(*unit, stored, &mut decompressor, &mut plain) {
                    return Err(self.wrong(unit.name));
                }
                each(index, &plain);
                index += 1;
            }
            if index == before {
                return Err(self.wrong(asked[0].name));
            }
        }
        Ok(())
    }

    /// Fills `plain` with the plain bytes of a unit. Returns false if it is another one.
    fn is_unit(
        &self,
        wanted: WantedUnit,
        (header, stored): (UnitHeader, &[u8]),
        decompressor: &mut Decompressor,
        plain: &mut Vec<u8>,
    ) -> bool {
        wanted.plain_bytes.is_none_or(|bytes| bytes == header.plain_bytes)
            && decompressor.decompress(header, stored, plain)
            && self.descriptor.key.name(plain) == wanted.name
    }
}

impl<T: Transport> ImageSource for RemoteImages<T> {
    fn key(&self) -> &UnitKey {
        &self.descriptor.key
    }

    fn read(&self, wanted: &[WantedUnit], _: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.read_units(None, wanted, each)
    }

    fn read_of_chunks(&self, chunks: &[UnitName], wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        let mut start = 0;
        for of_one in chunks.chunk_by(|one, next| one == next) {
            let end = start + of_one.len();
            self.read_units(of_one.first(), &wanted[start..end], &mut |index, plain| each(start + index, plain))?;
            start = end;
        }
        Ok(())
    }

    /// The server looks when the unit is requested.
    fn find(&self, _: WantedUnit) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        _: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
        let mut whole = Vec::new();
        for (index, wanted) in (0..names.len()).zip(wanted) {
            let header = headers.get(index)?;
            let is_any_wanted = || (0..header.units.len()).any(|unit| wanted.has(unit));
            if is_wanted_whole(&header, wanted) || (self.transport.has_come(&names[index]) && is_any_wanted()) {
                whole.push(index);
            }
        }
        let requested: Vec<UnitName> = whole.iter().map(|index| names[*index]).collect();
        Ok(Box::new(RemoteChunks {
            images: self,
            names: names.to_vec(),
            headers: headers.clone(),
            answers: self.transport.chunks(&requested),
            whole: whole.into(),
            received: None,
            chunk: ReceivedChunk::default(),
            decompressor: decompressor()?,
        }))
    }

    fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    fn waited(&self) -> Option<Duration> {
        Some(self.transport.waited())
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        self.transport.arrivals(chunks, is_compared)
    }

    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        // A server may fail in other ways, too, when packs are removed while it reads them.
        let may_be_collected = match &error {
            ArchiveError::Lost { .. } => true,
            ArchiveError::Store(StoreError::Refused { why, .. }) => *why == Refusal::ImageServer,
            _ => false,
        };
        match may_be_collected && self.transport.has_image(image).is_ok_and(|has_image| !has_image) {
            true => ArchiveError::Removed { image: image.clone() },
            false => error,
        }
    }
}

/// Returns whether a chunk is requested as a whole: at most a small share of its bytes is not wanted.
fn is_wanted_whole(header: &ChunkHeader, wanted: &WantedUnits) -> bool {
    let (mut all_bytes, mut unwanted_bytes) = (0_u64, 0_u64);
    for (index, unit) in header.units.iter().enumerate() {
        let bytes = u64::from(unit.plain_bytes);
        all_bytes += bytes;
        unwanted_bytes += if wanted.has(index) { 0 } else { bytes };
    }
    all_bytes > 0 && unwanted_bytes <= all_bytes / UNWANTED_SHARE
}

/// Consecutive chunks on their way.
struct RemoteChunks<'a, T> {
    images: &'a RemoteImages<T>,
    names: Vec<UnitName>,
    headers: Headers,
    answers: Chunks<'a>,
    /// The chunks that come as a whole and have not come yet, in order.
    whole: VecDeque<usize>,
    /// The last chunk that has come.
    received: Option<usize>,
    /// Its bytes.
    chunk: ReceivedChunk,
    decompressor: Decompressor,
}

/// A chunk as it came.
#[derive(Default)]
struct ReceivedChunk {
    bytes: Vec<u8>,
    /// Where each unit is, with its header.
    places: HashMap<UnitName, Range<usize>>,
}

impl ReceivedChunk {
    /// Finds the units of a chunk. What cannot be told apart counts as missing.
    fn of(bytes: Vec<u8>, names: impl Iterator<Item = UnitName>) -> ReceivedChunk {
        let mut places = HashMap::new();
        let mut units = StoredUnits::of(&bytes).map_while(Result::ok);
        // The chunk's header is known.
        let mut offset = units.next().map_or(0, |(_, stored)| UNIT_HEADER_BYTES as usize + stored.len());
        for (name, (_, stored)) in names.zip(units) {
            let end = offset + UNIT_HEADER_BYTES as usize + stored.len();
            places.insert(name, offset..end);
            offset = end;
        }
        ReceivedChunk { bytes, places }
    }

    fn unit(&self, name: &UnitName) -> Option<(UnitHeader, &[u8])> {
        let bytes = self.bytes.get(self.places.get(name)?.clone())?;
        StoredUnits::of(bytes).next()?.ok()
    }
}

impl<T: Transport> RemoteChunks<'_, T> {
    /// Waits for the chunk with an index. Returns whether it comes as a whole.
    fn receive(&mut self, index: usize) -> Result<bool, ArchiveError> {
        while let Some(next) = self.whole.pop_front_if(|next| *next <= index) {
            let header = self.headers.get(next)?;
            let names = units_of(&header).into_iter().map(|(name, _)| name);
            let answer = self.answers.next().unwrap_or_else(|| Ok(Vec::new()))?;
            self.images.count(&answer);
            self.chunk = ReceivedChunk::of(answer, names);
            self.received = Some(next);
        }
        Ok(self.received == Some(index))
    }
}

impl<T: Transport> ChunkReader for RemoteChunks<'_, T> {
    fn read(&mut self, chunk: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        if !self.receive(chunk)? {
            return self.images.read_units(self.names.get(chunk), wanted, each);
        }
        let mut plain = Vec::new();
        let mut missing = Vec::new();
        for (index, unit) in wanted.iter().enumerate() {
            match self.chunk.unit(&unit.name) {
                Some(stored) if self.images.is_unit(*unit, stored, &mut self.decompressor, &mut plain) => {
                    each(index, &plain);
                }
                _ => missing.push(index),
            }
        }
        let again: Vec<WantedUnit> = missing.iter().map(|index| wanted[*index]).collect();
        let chunk = self.names.get(chunk);
        self.images.read_units(chunk, &again, &mut |at, plain| each(missing[at], plain))
    }
}

fn decompressor() -> Result<Decompressor, ArchiveError> {
    Decompressor::new().map_err(|source| ArchiveError::System { what: "memory to decompress", source })
}

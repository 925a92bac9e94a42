//! The seam to the place from which images are read: an archive in a store, or a server that has one.

use std::fmt;
use std::time::Duration;

use crate::archive::{Archive, ArchiveError, Headers, PlannedReads, WantedUnit};
use crate::{ImageVersion, UnitKey, UnitName};

/// Receives the index of a unit in the list of wanted ones, and its plain bytes.
pub type OnUnit<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// The units of a chunk that an installation has to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedUnits {
    /// All of them.
    All,
    /// Those whose flag is set, in the order of the chunk's header.
    Some(Vec<bool>),
}

impl WantedUnits {
    /// Returns whether the unit with an index in the chunk's header is one of them.
    #[must_use]
    pub fn has(&self, unit: usize) -> bool {
        match self {
            WantedUnits::All => true,
            WantedUnits::Some(flags) => flags.get(unit).copied().unwrap_or(false),
        }
    }
}

/// The part of a chunk that is neither on the target nor in seeds, in plain bytes of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LackingPart {
    /// Bytes of the units that have to be fetched.
    pub lacking_bytes: u64,
    /// Bytes of all units.
    pub bytes: u64,
}

/// A place that has the units of images.
///
/// # The contract
/// - Each unit is verified by its name before a caller gets its bytes. So a source may fail, but returns no wrong byte.
/// - Units come in any order, each once for each time that it is wanted.
/// - Memory is bounded, whatever the place sends.
pub trait ImageSource: fmt::Debug + Send + Sync {
    /// Returns the key of the units' names.
    fn key(&self) -> &UnitKey;

    /// Reads units. Up to `ahead_bytes` may be read at once and kept until their units are passed.
    ///
    /// # Errors
    /// When a unit is lost or damaged, or the place fails.
    fn read(&self, wanted: &[WantedUnit], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError>;

    /// As [`ImageSource::read`], for units whose chunks are known: a server may want to know from where a client knows
    /// a unit. `chunks` has the chunk of each.
    ///
    /// # Errors
    /// As [`ImageSource::read`].
    fn read_of_chunks(&self, chunks: &[UnitName], wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        let _ = chunks;
        self.read(wanted, 0, each)
    }

    /// As [`ImageSource::read`], for headers of chunks: what lies between them is not worth reading.
    ///
    /// # Errors
    /// As [`ImageSource::read`].
    fn read_headers(&self, chunks: &[UnitName], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.read(&wanted_headers(chunks), ahead_bytes, each)
    }

    /// Fails if the place is known to lack a unit, as far as that can be told without reading the unit.
    ///
    /// # Errors
    /// When the unit is lost, or the place fails.
    fn find(&self, wanted: WantedUnit) -> Result<(), ArchiveError>;

    /// Prepares to read the wanted units of some chunks one after the other. `names` are those of the chunks, `headers`
    /// their headers, and `wanted` says which units will be read.
    ///
    /// # Errors
    /// When a header is invalid, or the place fails.
    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        ahead_bytes: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError>;

    /// Returns how many bytes of units have come from the place so far, in the form in which they are stored or sent.
    fn received_bytes(&self) -> u64;

    /// Returns how many plain bytes of units came from seeds instead so far.
    fn seed_bytes(&self) -> u64 {
        0
    }

    /// Returns whether there are seeds.
    fn has_seeds(&self) -> bool {
        false
    }

    /// Returns whether a seed seems to have a unit. It may turn out that it has not.
    fn is_in_seed(&self, unit: &UnitName) -> bool {
        let _ = unit;
        false
    }

    /// Returns how long callers have waited for the place so far, all threads together. `None` if the source does not
    /// tell that from the work on the bytes.
    fn waited(&self) -> Option<Duration> {
        None
    }

    /// Begins to receive these chunks, which are all of an image, if they come in an order that the source decides.
    /// Otherwise a caller takes them in their own order. `is_compared` says that the caller will call
    /// [`Arrivals::compared`] for chunks that have not arrived.
    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        let _ = (chunks, is_compared);
        None
    }

    /// Returns why an image cannot be read: `error`, unless that is for the image's removal meanwhile.
    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError;

    /// Returns the headers of chunks.
    ///
    /// # Errors
    /// As [`ImageSource::read`].
    fn headers(&self, names: &[UnitName]) -> Result<Headers, ArchiveError> {
        let mut plain = vec![Vec::new(); names.len()];
        self.read(&wanted_headers(names), 0, &mut |index, bytes| plain[index] = bytes.to_vec())?;
        Ok(Headers::of(names, plain))
    }
}

fn wanted_headers(chunks: &[UnitName]) -> Vec<WantedUnit> {
    chunks.iter().map(|name| WantedUnit { name: *name, plain_bytes: None }).collect()
}

/// Chunks of an image that come in an order of their own, as from a server that sends to many machines at once. Threads
/// share it. Once it is dropped, nothing is received any more.
pub trait Arrivals: Send + Sync {
    /// Returns the indices of the next chunks to read, in rising order. Each chunk of the image is returned once. An
    /// answer without any means that none has come within `patience`, and no answer that all have been returned.
    fn next(&self, patience: Duration) -> Option<Vec<usize>>;

    /// Notes which part of a chunk is lacking. A chunk that lacks little need not arrive: [`Arrivals::next`] returns it
    /// soon, and its units are requested by themselves.
    fn compared(&self, index: usize, part: LackingPart);

    /// Notes that chunks which [`Arrivals::next`] has returned are installed. Some need no unit, so none was read.
    fn finish(&self, indices: &[usize]);
}

/// Reads the units of some chunks, as [`ImageSource::chunks`] has prepared.
pub trait ChunkReader {
    /// Reads units of the chunk with an index in the list. A later call is never for an earlier chunk.
    ///
    /// # Errors
    /// As [`ImageSource::read`].
    fn read(&mut self, chunk: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError>;
}

impl ImageSource for Archive {
    fn key(&self) -> &UnitKey {
        &self.descriptor().key
    }

    fn read(&self, wanted: &[WantedUnit], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        let mut ahead = match ahead_bytes {
            0 => PlannedReads::default(),
            _ => self.read_ahead(wanted.iter().map(|unit| unit.name), ahead_bytes)?,
        };
        read_planned(self, wanted, &mut ahead, each)
    }

    fn read_headers(&self, chunks: &[UnitName], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        let mut ahead = self.read_headers_ahead(chunks.iter().copied(), ahead_bytes)?;
        read_planned(self, &wanted_headers(chunks), &mut ahead, each)
    }

    fn find(&self, wanted: WantedUnit) -> Result<(), ArchiveError> {
        self.find_unit(wanted)
    }

    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        ahead_bytes: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
        let mut units = Vec::new();
        for (index, wanted) in (0..names.len()).zip(wanted) {
            let header = headers.get(index)?;
            let wanted = header.units.iter().enumerate().filter(|(unit, _)| wanted.has(*unit));
            units.extend(wanted.map(|(_, unit)| unit.name));
        }
        let ahead = self.read_ahead(units.into_iter(), ahead_bytes)?;
        Ok(Box::new(PlannedChunks { archive: self, ahead }))
    }

    fn received_bytes(&self) -> u64 {
        Archive::read_bytes(self)
    }

    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        Archive::of_image(self, image, error)
    }
}

/// Units of an archive, whose reads are planned for all chunks at once.
struct PlannedChunks<'a> {
    archive: &'a Archive,
    ahead: PlannedReads,
}

impl ChunkReader for PlannedChunks<'_> {
    fn read(&mut self, _: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        read_planned(self.archive, wanted, &mut self.ahead, each)
    }
}

fn read_planned(
    archive: &Archive,
    wanted: &[WantedUnit],
    ahead: &mut PlannedReads,
    each: OnUnit<'_>,
) -> Result<(), ArchiveError> {
    archive.read_planned_units(wanted, ahead, &mut |index, plain| {
        each(index, plain);
        Ok(())
    })
}

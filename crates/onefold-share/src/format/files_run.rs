//! The conclusion of a run over guest files, in `guests/run`: as long as no image changes, the next run would conclude
//! the same.
//!
//! The subject is the number of the search, which stands for everything except the images that decides what a run
//! finds. The first frame is the head:
//!
//! | bytes  | field     | notes                                                                            |
//! |--------|-----------|----------------------------------------------------------------------------------|
//! | 0..8   | looked at | when the run began, by the clock of the file system: seconds, signed              |
//! | 8..12  | -         | nanoseconds of that                                                              |
//! | 12..16 | -         | zero                                                                             |
//!
//! The other frames but the last are one text. It consists of lists, each with its length before it (numbers are those
//! of `number`):
//!
//! | list     | each item                                                                                          |
//! |----------|----------------------------------------------------------------------------------------------------|
//! | sums     | a number; what each one counts belongs to the search                                               |
//! | images   | number, stamp as in marks (32 bytes), number of the domain (8 bytes), one byte: 1 if examined      |
//! | failures | the image's number, the length of a text in bytes, and the text: why the image cannot be examined  |
//! | given up | tier, image, and the other image plus one, or 0 if the first one is at fault                       |
//! | packages | bytes that are believed equal to others, the length of the name in bytes, and the name             |
//!
//! The last frame is empty. A run whose text would be longer than [`RUN_BYTES_MAX`] is not kept. Images are in order of
//! their numbers.
//!
//! Names of packages come from guests, and are not trusted.

use onefold_block::Timestamp;
use onefold_substrate::Substrate;

use super::number::{push_number, take_number};
use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::stamp::Stamp;
use super::{FileNo, FormatError};

/// Maximum length of the text, in bytes.
pub const RUN_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a package's name, and of a reason, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Maximum number of sums.
pub(crate) const SUMS_MAX: usize = 256;
/// Maximum number of items of another list. Each takes memory beside its text.
pub(crate) const ITEMS_MAX: usize = 1 << 18;
const HEAD_BYTES: usize = 16;

/// The conclusion of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesRun {
    /// Number that stands for everything except the images that decides what a run finds.
    pub search: u64,
    /// When the run that has looked at everything began.
    pub looked_at: Timestamp,
    /// Its sums.
    pub sums: Vec<u64>,
    /// All images of its selection, in order of their numbers.
    pub images: Vec<RunImage>,
    /// Images that cannot be examined, and why.
    pub failures: Vec<(FileNo, String)>,
    /// Images and pairs of images whose claims were not followed any more.
    pub given_up: Vec<GivenUpTier>,
    /// Packages with files that are believed equal to others, and the bytes of these files.
    pub packages: Vec<(String, u64)>,
}

/// An image, as a run has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunImage {
    /// Its number.
    pub number: FileNo,
    /// Its stamp.
    pub stamp: Stamp,
    /// Number that stands for its sharing domain.
    pub domain: u64,
    /// Whether it was examined, so that there is a record of its guest.
    pub is_examined: bool,
}

/// Claims of a tier that were not followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUpTier {
    /// The number of the tier.
    pub tier: u8,
    /// An image.
    pub one: FileNo,
    /// The other image; `None` if the first one is known to be at fault.
    pub other: Option<FileNo>,
}

impl FilesRun {
    /// Returns the text of all lists; `None` if it would be longer than the maximum.
    #[must_use]
    pub fn text(&self) -> Option<Vec<u8>> {
        let lists = [self.images.len(), self.failures.len(), self.given_up.len(), self.packages.len()];
        let are_short = lists.iter().all(|items| *items <= ITEMS_MAX) && self.sums.len() <= SUMS_MAX;
        let names = self.packages.iter().map(|(name, _)| name);
        let mut texts = self.failures.iter().map(|(_, why)| why).chain(names);
        if !are_short || !texts.all(|text| text.len() <= TEXT_BYTES_MAX) {
            return None;
        }
        let mut bytes = Vec::new();
        push_number(self.sums.len() as u64, &mut bytes);
        self.sums.iter().for_each(|sum| push_number(*sum, &mut bytes));
        push_number(self.images.len() as u64, &mut bytes);
        for image in &self.images {
            push_number(u64::from(image.number.0), &mut bytes);
            bytes.extend_from_slice(&image.stamp.encode());
            bytes.extend_from_slice(&image.domain.to_le_bytes());
            bytes.push(u8::from(image.is_examined));
        }
        push_number(self.failures.len() as u64, &mut bytes);
        for (number, why) in &self.failures {
            push_number(u64::from(number.0), &mut bytes);
            push_text(why, &mut bytes);
        }
        push_number(self.given_up.len() as u64, &mut bytes);
        for GivenUpTier { tier, one, other } in &self.given_up {
            let other = other.map_or(0, |other| u64::from(other.0) + 1);
            [u64::from(*tier), u64::from(one.0), other].into_iter().for_each(|number| push_number(number, &mut bytes));
        }
        push_number(self.packages.len() as u64, &mut bytes);
        for (name, believed) in &self.packages {
            push_number(*believed, &mut bytes);
            push_text(name, &mut bytes);
        }
        (bytes.len() <= RUN_BYTES_MAX).then_some(bytes)
    }

    /// Returns the run with these lists; `None` if the text is invalid.
    #[must_use]
    pub fn of_text(search: u64, looked_at: Timestamp, mut text: &[u8]) -> Option<FilesRun> {
        let from = &mut text;
        let sums = take_list(from, SUMS_MAX, take_number)?;
        let images = take_list(from, ITEMS_MAX, |from| {
            let number = take_file(from)?;
            let stamp = Stamp::decode(&take_chunk(from)?);
            let domain = u64::from_le_bytes(take_chunk(from)?);
            let is_examined = match take_chunk(from)? {
                [0] => false,
                [1] => true,
                _ => return None,
            };
            Some(RunImage { number, stamp, domain, is_examined })
        })?;
        let failures = take_list(from, ITEMS_MAX, |from| Some((take_file(from)?, take_text(from)?)))?;
        let given_up = take_list(from, ITEMS_MAX, |from| {
            let tier = u8::try_from(take_number(from)?).ok()?;
            let one = take_file(from)?;
            let other = match take_number(from)? {
                0 => None,
                other => Some(FileNo(u32::try_from(other - 1).ok()?)),
            };
            Some(GivenUpTier { tier, one, other })
        })?;
        let packages = take_list(from, ITEMS_MAX, |from| {
            let believed = take_number(from)?;
            Some((take_text(from)?, believed))
        })?;
        let is_in_order = images.windows(2).all(|pair| pair[0].number < pair[1].number);
        let run = FilesRun { search, looked_at, sums, images, failures, given_up, packages };
        (from.is_empty() && is_in_order).then_some(run)
    }
}

fn push_text(text: &str, into: &mut Vec<u8>) {
    push_number(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

fn take_chunk<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*chunk)
}

fn take_file(from: &mut &[u8]) -> Option<FileNo> {
    u32::try_from(take_number(from)?).ok().map(FileNo)
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take_number(from)?).ok().filter(|length| *length <= TEXT_BYTES_MAX)?;
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

/// Takes a list of at most `items_max` items. Each item takes at least a byte, so no memory is allocated for items that
/// do not exist.
fn take_list<T>(from: &mut &[u8], items_max: usize, mut take: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = usize::try_from(take_number(from)?).ok().filter(|count| *count <= items_max)?;
    (0..count).map(|_| take(from)).collect()
}

/// Writes a run with its text to an empty file and makes it durable.
///
/// # Errors
/// No space; errors of the device.
pub fn write<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: [u8; 16],
    run: &FilesRun,
    text: &[u8],
) -> std::io::Result<()> {
    let header = RecordHeader { kind: RecordKind::FilesRun, identity, subject: run.search };
    let mut record = RecordWriter::new(substrate, file, &header);
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&run.looked_at.seconds.to_le_bytes());
    head[8..12].copy_from_slice(&run.looked_at.nanoseconds.to_le_bytes());
    record.frame(&head)?;
    text.chunks(PAYLOAD_BYTES_MAX).try_for_each(|part| record.frame(part))?;
    record.finish(&[]).map(drop)
}

/// Reads a run; `None` if its text is longer than `bytes_max`.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: &[u8; 16],
    bytes_max: usize,
) -> Result<Option<FilesRun>, FormatError> {
    let mut record = RecordReader::open(substrate, file, RecordKind::FilesRun, Some(identity))?;
    let search = record.subject();
    let Some(Frame::Inner(head)) = record.next_frame()? else {
        return Err(FormatError::Damaged("it has no head"));
    };
    let head: [u8; HEAD_BYTES] = head.try_into().map_err(|_| FormatError::Damaged("its head has another length"))?;
    let mut text = Vec::new();
    loop {
        match record.next_frame()? {
            Some(Frame::Inner(part)) if text.len() + part.len() <= RUN_BYTES_MAX => {
                if text.len() + part.len() > bytes_max {
                    return Ok(None);
                }
                text.extend_from_slice(part);
            }
            Some(Frame::Last([])) => break,
            _ => return Err(FormatError::Damaged("it is longer than any can be")),
        }
    }
    let (seconds, rest) = head.split_first_chunk().expect("a head is longer");
    let nanoseconds = u32::from_le_bytes(*rest.first_chunk().expect("a head is longer"));
    let looked_at = Timestamp { seconds: i64::from_le_bytes(*seconds), nanoseconds };
    FilesRun::of_text(search, looked_at, &text).map(Some).ok_or(FormatError::Damaged("an item of a list is none"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_substrate::{Access, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn image(number: u32) -> RunImage {
        let time = Timestamp { seconds: 5, nanoseconds: 6 };
        let stamp = Stamp { length: 1 << 30, modified: time, changed: time };
        RunImage { number: FileNo(number), stamp, domain: 9, is_examined: number.is_multiple_of(2) }
    }

    fn run() -> FilesRun {
        FilesRun {
            search: 77,
            looked_at: Timestamp { seconds: -2, nanoseconds: 3 },
            sums: vec![1, 300],
            images: vec![image(1), image(2)],
            failures: vec![(FileNo(1), "ü".to_owned())],
            given_up: vec![
                GivenUpTier { tier: 1, one: FileNo(1), other: None },
                GivenUpTier { tier: 5, one: FileNo(1), other: Some(FileNo(2)) },
            ],
            packages: vec![("a 1 all".to_owned(), 4096)],
        }
    }

    fn substrate() -> SimulatedSubstrate<'static> {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
        SimulatedFileSystem::new(&options).observe().substrate
    }

    /// Writes a run with this text, and reads it back.
    fn read_back(run: &FilesRun, text: &[u8], bytes_max: usize) -> Result<Option<FilesRun>, FormatError> {
        let (substrate, path) = (substrate(), Path::new("run"));
        write(&substrate, substrate.create(path).unwrap(), UUID, run, text).unwrap();
        read(&substrate, substrate.open(path, Access::Read).unwrap(), &UUID, bytes_max)
    }

    /// These bytes are on disk: they never change.
    #[test]
    fn the_text_matches_its_stored_vector() {
        let time = [&[5, 0, 0, 0, 0, 0, 0, 0][..], &[6, 0, 0, 0]].concat();
        let stamp = [&[0, 0, 0, 0x40, 0, 0, 0, 0][..], &time, &time].concat();
        let of_image = |number: u8, state: u8| [&[number][..], &stamp, &[9, 0, 0, 0, 0, 0, 0, 0, state]].concat();
        let expected = [
            &[2, 1, 0xac, 2, 2][..],
            &of_image(1, 0),
            &of_image(2, 1),
            &[1, 1, 2, 0xc3, 0xbc],
            &[2, 1, 1, 0, 5, 1, 3],
            &[1, 0x80, 0x20, 7],
            b"a 1 all",
        ];
        assert_eq!(run().text().unwrap(), expected.concat());
    }

    #[test]
    fn runs_survive_their_encoding_where_they_are_short_enough() {
        let mut long = run();
        long.packages = (0..5000).map(|at| (format!("{at:0100}"), at)).collect();
        for run in [run(), long, FilesRun::default()] {
            let text = run.text().unwrap();
            let found = |bytes_max| read_back(&run, &text, bytes_max).unwrap();
            assert_eq!(found(text.len()).as_ref(), Some(&run));
            assert_eq!(found(text.len() - 1), None);
        }
    }

    #[test]
    fn runs_that_are_too_long_have_no_text() {
        let long = |text: usize| FilesRun { packages: vec![("p".repeat(text), 1)], ..run() };
        assert!(long(TEXT_BYTES_MAX).text().is_some() && long(TEXT_BYTES_MAX + 1).text().is_none());
        let many = |sums: usize| FilesRun { sums: vec![1; sums], ..run() };
        assert!(many(SUMS_MAX).text().is_some() && many(SUMS_MAX + 1).text().is_none());
        let items = |items: u32| FilesRun { failures: vec![(FileNo(items), String::new()); items as usize], ..run() };
        let most = u32::try_from(ITEMS_MAX).unwrap();
        assert!(items(most).text().is_some() && items(most + 1).text().is_none());
        // Each item is short, but all of them together are too long for a text.
        let names = RUN_BYTES_MAX / TEXT_BYTES_MAX + 1;
        assert!(FilesRun { packages: vec![("p".repeat(TEXT_BYTES_MAX), 1); names], ..run() }.text().is_none());
    }

    #[test]
    fn a_text_that_is_cut_or_goes_on_or_is_out_of_order_is_refused() {
        let text = run().text().unwrap();
        for end in 0..text.len() {
            let cut = read_back(&run(), &text[..end], usize::MAX);
            assert!(matches!(cut, Err(FormatError::Damaged(_))), "{end}: {cut:?}");
        }
        let longer = [&text[..], &[0]].concat();
        assert!(matches!(read_back(&run(), &longer, usize::MAX), Err(FormatError::Damaged(_))));
        let turned = FilesRun { images: vec![image(2), image(1)], ..run() };
        assert!(matches!(read_back(&turned, &turned.text().unwrap(), usize::MAX), Err(FormatError::Damaged(_))));
        // A list that claims very many items takes no memory for them.
        assert!(matches!(read_back(&run(), &[0xff, 0xff, 0xff, 0xff, 0xf], 9), Err(FormatError::Damaged(_))));
    }
}

//! Kept guests: the claims of an image's guest about its files, and the places of these files in the image. Each image
//! has one file in `guests/`, named by the image's number.
//!
//! The subject is the file's number. The first frame is the head:
//!
//! | bytes   | field     | notes                                                                       |
//! |---------|-----------|-----------------------------------------------------------------------------|
//! | 0..32   | stamp     | of the image before it was examined, as in marks                            |
//! | 32      | state     | 1 if the stamp shows each later change; 0 if the image has to be examined    |
//! | 33      | flags     | 1: a package database was found                                             |
//! | 34      | tiers     | by which files were believed equal, a bit for each number                   |
//! | 35..40  | -         | zero                                                                        |
//! | 40..48  | hashing   | the writer's hash of its version of the examination and of a fixed text: only equal hashes use a record |
//! | 48..56  | databases | number that stands for the volumes and the stamps of their package databases |
//! | 56..128 | counts    | of the examination: nine sums, 8 bytes each                                 |
//! | 128..132 | packages | how many                                                                   |
//! | 132..136 | files    | how many                                                                   |
//!
//! The other frames but the last are one text: packages, each with its length (of `number`), then files ([`KeptFile`]).
//! The last frame is empty. A file that would be longer than [`GUEST_BYTES_MAX`] is not kept, nor is one with more than
//! [`PACKAGES_MAX`] packages. No name is empty.
//!
//! Names of packages, paths and times come from a guest, and are not trusted.

mod file;

use onefold_substrate::Substrate;

pub(crate) use self::file::CONTENT_BLOCKS_MAX;
pub use self::file::{KeptClaim, KeptFile, PHASES, PIECES_MAX, PhasedPieces, Piece};
use super::number::{push_number, take_number};
use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::stamp::Stamp;
use super::{FileNo, FormatError};

/// Maximum length of the text of packages and files.
pub(crate) const GUEST_BYTES_MAX: usize = 32 << 20;
/// Maximum length of a package's name, in bytes.
pub const NAME_BYTES_MAX: usize = 4096;
/// Maximum number of packages in the record of one image. Debian offers half of this number.
pub const PACKAGES_MAX: usize = 150_000;
/// Number of sums of an examination.
pub const COUNTS: usize = 9;
const HEAD_BYTES: usize = 136;
const HAS_PACKAGES: u8 = 1;

/// The head of an image's record, which has everything except packages and files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestHead {
    /// The stamp of the image before it was examined; `None` if a later change might not show.
    pub stamp: Option<Stamp>,
    /// Whether a package database was found.
    pub has_packages: bool,
    /// The tiers by which files were believed equal, a bit for each number of a tier.
    pub tiers: u8,
    /// Number that stands for the way the writer examines images, and makes numbers of texts.
    pub hashing: u64,
    /// Number that stands for the volumes and the stamps of their package databases.
    pub databases: u64,
    /// Sums of the examination.
    pub counts: [u64; COUNTS],
}

/// The record of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptGuest {
    /// The head.
    pub head: GuestHead,
    /// Names of packages, by index: name, version and architecture.
    pub packages: Vec<String>,
    /// Its files.
    pub files: KeptFiles,
}

impl KeptGuest {
    /// Returns the approximate length of its packages and files, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Each name has its length before it.
        self.packages.iter().map(|name| name.len() + 2).sum::<usize>() + self.files.bytes()
    }
}

/// Files of a guest, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptFiles {
    bytes: Vec<u8>,
    count: u32,
}

impl KeptFiles {
    /// Adds a file.
    pub fn push(&mut self, file: &KeptFile, pieces: &PhasedPieces) {
        file.encode(pieces, &mut self.bytes);
        self.count = self.count.saturating_add(1);
    }

    /// Returns the length of their text, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Calls `visit` with each file and its pieces, in the order in which they were added.
    ///
    /// # Errors
    /// Errors of `visit`, which end it.
    pub fn each<E>(&self, visit: &mut dyn FnMut(&KeptFile, &PhasedPieces) -> Result<(), E>) -> Result<(), E> {
        let (mut rest, mut pieces) = (&self.bytes[..], PhasedPieces::default());
        while let Some(file) = KeptFile::decode(&mut rest, &mut pieces) {
            visit(&file, &pieces)?;
        }
        Ok(())
    }

    /// Returns the files in a text, after a check that each belongs to an existing package, or to none.
    fn of(bytes: Vec<u8>, count: u32, packages: usize) -> Option<KeptFiles> {
        let (mut rest, mut pieces) = (&bytes[..], PhasedPieces::default());
        for _ in 0..count {
            let file = KeptFile::decode(&mut rest, &mut pieces)?;
            if file.package.is_some_and(|package| usize::try_from(package).is_ok_and(|package| package >= packages)) {
                return None;
            }
        }
        rest.is_empty().then_some(KeptFiles { bytes, count })
    }
}

/// Writes the record of an image to an empty file and makes it durable. Returns its length in bytes.
///
/// # Errors
/// No space; errors of the device.
///
/// # Panics
/// If a name is empty or longer than [`NAME_BYTES_MAX`], if there are more than [`PACKAGES_MAX`] of them, or if all of
/// it is longer than [`GUEST_BYTES_MAX`].
pub fn write<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: [u8; 16],
    number: FileNo,
    guest: &KeptGuest,
) -> std::io::Result<u64> {
    let header = RecordHeader { kind: RecordKind::Guest, identity, subject: u64::from(number.0) };
    let mut record = RecordWriter::new(substrate, file, &header);
    let mut names = Vec::new();
    assert!(guest.packages.len() <= PACKAGES_MAX, "{} packages", guest.packages.len());
    for name in &guest.packages {
        assert!((1..=NAME_BYTES_MAX).contains(&name.len()), "a name of {} bytes", name.len());
        push_number(name.len() as u64, &mut names);
        names.extend_from_slice(name.as_bytes());
    }
    let bytes = names.len() + guest.files.bytes();
    assert!(bytes <= GUEST_BYTES_MAX, "a guest of {bytes} bytes");
    let packages = u32::try_from(guest.packages.len()).expect("each takes a byte");
    record.frame(&guest.head.encode(packages, guest.files.count))?;
    for text in [&names, &guest.files.bytes] {
        text.chunks(PAYLOAD_BYTES_MAX).try_for_each(|part| record.frame(part))?;
    }
    Ok(record.finish(&[])?.1)
}

/// Reads the record of an image. Returns the number of its file, and the record, unless the head is not `wanted` or
/// packages and files have more than `bytes_max` bytes.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: &[u8; 16],
    wanted: impl FnOnce(&GuestHead) -> bool,
    bytes_max: usize,
) -> Result<(FileNo, Option<KeptGuest>), FormatError> {
    let mut record = RecordReader::open(substrate, file, RecordKind::Guest, Some(identity))?;
    let number = u32::try_from(record.subject()).map_err(|_| FormatError::Damaged("there is no such file number"))?;
    let Some(Frame::Inner(head)) = record.next_frame()? else {
        return Err(FormatError::Damaged("it has no head"));
    };
    let head = head.first_chunk().filter(|fixed| fixed.len() == head.len());
    let (head, packages, files) = GuestHead::decode(head.ok_or(FormatError::Damaged("its head has another length"))?)?;
    if !wanted(&head) {
        return Ok((FileNo(number), None));
    }
    if usize::try_from(packages).map_or(true, |packages| packages > PACKAGES_MAX) {
        return Err(FormatError::Damaged("it has more packages than any can have"));
    }
    let mut bytes = Vec::new();
    loop {
        match record.next_frame()? {
            Some(Frame::Inner(part)) if bytes.len() + part.len() <= GUEST_BYTES_MAX => {
                if bytes.len() + part.len() > bytes_max {
                    return Ok((FileNo(number), None));
                }
                bytes.extend_from_slice(part);
            }
            Some(Frame::Last([])) => break,
            _ => return Err(FormatError::Damaged("it is longer than any can be")),
        }
    }
    let mut rest = &bytes[..];
    let names = (0..packages).map(|_| take_name(&mut rest)).collect::<Option<Vec<String>>>();
    let names = names.ok_or(FormatError::Damaged("the name of a package is none"))?;
    bytes.drain(..bytes.len() - rest.len());
    let files = KeptFiles::of(bytes, files, names.len()).ok_or(FormatError::Damaged("a file is none"))?;
    Ok((FileNo(number), Some(KeptGuest { head, packages: names, files })))
}

fn take_name(from: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(take_number(from)?).ok().filter(|length| (1..=NAME_BYTES_MAX).contains(length))?;
    let (name, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(std::str::from_utf8(name).ok()?.to_owned())
}

impl GuestHead {
    fn encode(&self, packages: u32, files: u32) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        if let Some(stamp) = &self.stamp {
            bytes[..Stamp::BYTES].copy_from_slice(&stamp.encode());
            bytes[32] = 1;
        }
        bytes[33] = u8::from(self.has_packages) * HAS_PACKAGES;
        bytes[34] = self.tiers;
        let longs = [self.hashing, self.databases].into_iter().chain(self.counts);
        for (place, number) in bytes[40..128].as_chunks_mut().0.iter_mut().zip(longs) {
            *place = number.to_le_bytes();
        }
        bytes[128..132].copy_from_slice(&packages.to_le_bytes());
        bytes[132..].copy_from_slice(&files.to_le_bytes());
        bytes
    }

    /// Returns the head, and the numbers of packages and files.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(GuestHead, u32, u32), FormatError> {
        let stamp = Stamp::decode(bytes.first_chunk().expect("the first of them"));
        let stamp = match bytes[32] {
            0 => None,
            1 => Some(stamp),
            _ => return Err(FormatError::Damaged("its state is none of those that there are")),
        };
        let mut longs = bytes[40..128].as_chunks().0.iter().map(|long| u64::from_le_bytes(*long));
        let mut long = || longs.next().unwrap_or_default();
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let head = GuestHead {
            stamp,
            has_packages: bytes[33] & HAS_PACKAGES != 0,
            tiers: bytes[34],
            hashing: long(),
            databases: long(),
            counts: std::array::from_fn(|_| long()),
        };
        Ok((head, half(128), half(132)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_block::Timestamp;
    use onefold_substrate::{Access, Files, Names};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};

    use super::file::tests::{of_no_package, packaged};
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn substrate() -> SimulatedSubstrate<'static> {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
        SimulatedFileSystem::new(&options).observe().substrate
    }

    fn head() -> GuestHead {
        let time = Timestamp { seconds: 5, nanoseconds: 6 };
        GuestHead {
            stamp: Some(Stamp { length: 1 << 30, modified: time, changed: time }),
            has_packages: true,
            tiers: 0b10_1110,
            hashing: u64::MAX,
            databases: 1,
            counts: [1, 2, 3, 4, 5, 6, 7, 8, 9],
        }
    }

    fn guest(files: u32) -> KeptGuest {
        let packages = vec!["a 1 amd64".to_owned(), "ü 2 all".to_owned()];
        let mut guest = KeptGuest { head: head(), packages, files: KeptFiles::default() };
        for at in 0..files {
            let (file, pieces) = if at.is_multiple_of(2) { packaged() } else { of_no_package() };
            guest.files.push(&KeptFile { file: u64::from(at), ..file }, &pieces);
        }
        guest
    }

    fn written(substrate: &SimulatedSubstrate<'static>, guest: &KeptGuest) {
        let path = Path::new("guest");
        let _ = substrate.remove(path);
        let length = write(substrate, substrate.create(path).unwrap(), UUID, FileNo(5), guest).unwrap();
        assert_eq!(substrate.stat(&substrate.open(path, Access::Read).unwrap()).unwrap().length, length);
    }

    /// These bytes are on disk: they never change.
    #[test]
    fn the_head_matches_its_stored_vector() {
        let long = |number: u8| [number, 0, 0, 0, 0, 0, 0, 0];
        let time = [&long(5)[..], &[6, 0, 0, 0]].concat();
        let stamp = [&[0, 0, 0, 0x40, 0, 0, 0, 0][..], &time, &time].concat();
        let counts = (1..=9).flat_map(long).collect::<Vec<_>>();
        let fixed = [&[1, 1, 0b10_1110, 0, 0, 0, 0, 0][..], &[0xff; 8], &long(1), &counts].concat();
        let expected = [&stamp[..], &fixed, &[2, 0, 0, 0, 3, 1, 0, 0]].concat();
        assert_eq!(head().encode(2, 259)[..], expected);
        assert_eq!(GuestHead::decode(&head().encode(2, 259)).unwrap(), (head(), 2, 259));
        let unsettled = GuestHead { stamp: None, has_packages: false, ..head() };
        assert_eq!(GuestHead::decode(&unsettled.encode(0, 0)).unwrap().0, unsettled);
    }

    #[test]
    fn guests_survive_their_encoding_and_only_wanted_ones_are_read() {
        let substrate = substrate();
        let open = || substrate.open(Path::new("guest"), Access::Read).unwrap();
        for files in [0, 1, 5, 5000] {
            let guest = guest(files);
            written(&substrate, &guest);
            let (number, found) = read(&substrate, open(), &UUID, |found| *found == head(), usize::MAX).unwrap();
            assert_eq!((number, found.as_ref()), (FileNo(5), Some(&guest)));
            let mut next = 0;
            let visited = found.unwrap().files.each(&mut |file, _| {
                assert_eq!(file.file, next);
                next += 1;
                if next == 3 { Err(()) } else { Ok(()) }
            });
            assert_eq!((next, visited.is_err()), (u64::from(files.min(3)), files >= 3));
            assert_eq!(read(&substrate, open(), &UUID, |_| false, usize::MAX).unwrap(), (FileNo(5), None));
            // Each of the two names has a length of one byte.
            let bytes = guest.files.bytes() + 2 + "a 1 amd64".len() + "ü 2 all".len();
            let within = |bytes_max| read(&substrate, open(), &UUID, |_| true, bytes_max).unwrap().1;
            assert_eq!((within(bytes), within(bytes - 1)), (Some(guest), None));
        }
    }

    /// Each name takes memory beside its text. Regression: 32 MiB of empty names took 800 MB.
    #[test]
    fn a_guest_has_only_so_many_packages() {
        let substrate = substrate();
        let with = |packages: usize| {
            let path = Path::new("guest");
            let _ = substrate.remove(path);
            let header = RecordHeader { kind: RecordKind::Guest, identity: UUID, subject: 5 };
            let mut record = RecordWriter::new(&substrate, substrate.create(path).unwrap(), &header);
            record.frame(&head().encode(u32::try_from(packages).unwrap(), 0)).unwrap();
            let names = [1, b'a'].repeat(packages);
            names.chunks(PAYLOAD_BYTES_MAX).try_for_each(|part| record.frame(part)).unwrap();
            record.finish(&[]).unwrap();
            read(&substrate, substrate.open(path, Access::Read).unwrap(), &UUID, |_| true, usize::MAX)
        };
        assert_eq!(with(PACKAGES_MAX).unwrap().1.unwrap().packages.len(), PACKAGES_MAX);
        assert!(matches!(with(PACKAGES_MAX + 1), Err(FormatError::Damaged(_))));
    }

    #[test]
    fn files_of_packages_that_are_not_there_and_texts_that_are_too_short_are_refused() {
        let substrate = substrate();
        let sound = guest(4);
        let unnamed = KeptGuest { packages: vec!["a 1 amd64".to_owned()], ..sound.clone() };
        let (mut longer, mut shorter) = (sound.clone(), sound);
        longer.files.count += 1;
        shorter.files.count -= 1;
        for odd in [unnamed, longer, shorter] {
            written(&substrate, &odd);
            let file = substrate.open(Path::new("guest"), Access::Read).unwrap();
            let found = read(&substrate, file, &UUID, |_| true, usize::MAX);
            assert!(matches!(found, Err(FormatError::Damaged("a file is none"))), "{found:?}");
        }
        assert_eq!(take_name(&mut &[3, b'a', b'b'][..]), None);
        assert_eq!(take_name(&mut &[0, b'a'][..]), None);
        assert_eq!(take_name(&mut &[1, 0xff][..]), None);
        assert_eq!(take_name(&mut &[2, b'a', b'b', 9][..]), Some("ab".to_owned()));
    }
}

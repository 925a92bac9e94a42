//! Claims: the files on which a pass works. A list of their numbers, 4 bytes each, in order, in frames of which the
//! last is empty.

use std::collections::BTreeSet;
use std::io;

use onefold_substrate::Substrate;

use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{FileNo, FormatError};

/// Writes a claim into an empty file. It need not outlive its host.
///
/// # Errors
/// No space; errors of the device.
pub(crate) fn write<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: [u8; 16],
    files: &BTreeSet<FileNo>,
) -> io::Result<()> {
    let header = RecordHeader { kind: RecordKind::Claim, identity, subject: files.len() as u64 };
    let mut writer = RecordWriter::new(substrate, file, &header);
    let bytes: Vec<u8> = files.iter().flat_map(|file| file.0.to_le_bytes()).collect();
    bytes.chunks(PAYLOAD_BYTES_MAX).try_for_each(|frame| writer.frame(frame))?;
    writer.finish(&[]).map(drop)
}

/// Reads a claim.
///
/// # Errors
/// See [`FormatError`].
pub(crate) fn read<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: &[u8; 16],
) -> Result<BTreeSet<FileNo>, FormatError> {
    let mut reader = RecordReader::open(substrate, file, RecordKind::Claim, Some(identity))?;
    let mut files = BTreeSet::new();
    while let Some(Frame::Inner(payload)) = reader.next_frame()? {
        let (numbers, rest) = payload.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(FormatError::Damaged("a number ends too early"));
        }
        files.extend(numbers.iter().map(|bytes| FileNo(u32::from_le_bytes(*bytes))));
    }
    if files.len() as u64 != reader.subject() {
        return Err(FormatError::Damaged("it has not as many files as it says"));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_substrate::Access;

    use onefold_substrate::Files;

    use super::*;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    const UUID: [u8; 16] = [9; 16];

    #[test]
    fn claims_are_read_as_they_were_written() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        for (round, count) in [0, 1, 100_000].into_iter().enumerate() {
            let files: BTreeSet<FileNo> = (0..count).map(|number| FileNo(number * 3)).collect();
            let name = format!("claim{round}");
            write(&substrate, substrate.create(Path::new(&name)).unwrap(), UUID, &files).unwrap();
            let open = || substrate.open(Path::new(&name), Access::Read).unwrap();
            assert_eq!(read(&substrate, open(), &UUID).unwrap(), files);
            assert!(matches!(read(&substrate, open(), &[0; 16]), Err(FormatError::Foreign)));
        }
    }

    #[test]
    fn a_claim_has_these_bytes_and_none_is_read_that_differs() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        let path = Path::new("claim");
        let files = [FileNo(1), FileNo(0x0102_0304)].into();
        write(&substrate, substrate.create(path).unwrap(), UUID, &files).unwrap();
        let mut bytes = [0; 88];
        let file = substrate.open(path, Access::Write).unwrap();
        assert_eq!(substrate.read_at(&file, 0, &mut bytes).unwrap(), 88);
        assert_eq!((&bytes[..12], bytes[32]), (&b"onefold\x1a\x0b\0\x01\0"[..], 2));
        assert_eq!(bytes[72..80], [1, 0, 0, 0, 4, 3, 2, 1]);
        for at in (0..88).filter(|at| !(12..16).contains(at) && !(40..60).contains(at)) {
            let mut spoilt = bytes;
            spoilt[at] ^= 0x41;
            substrate.write_at(&file, 0, &spoilt).unwrap();
            let read = read(&substrate, substrate.open(path, Access::Read).unwrap(), &UUID);
            assert!(read.is_err(), "{at}: {read:?}");
        }
    }
}

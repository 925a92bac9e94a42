//! `identity`: makes the fingerprints of one state folder comparable, and its files recognisable. Written once.
//!
//! One frame, the last:
//!
//! | bytes | field     | notes                                                       |
//! |-------|-----------|-------------------------------------------------------------|
//! | 0..2  | algorithm | 1: BLAKE3 keyed with the key below, its first 96 bits       |
//! | 2..34 | key       | random                                                      |
//!
//! The subject is zero. The UUID is the header's.

use std::fmt;

use onefold_block::FingerprintKey;
use onefold_substrate::Substrate;

use super::FormatError;
use super::record::{Frame, RecordHeader, RecordKind, RecordReader, RecordWriter};

const ALGORITHM_BLAKE3: u16 = 1;
const PAYLOAD_BYTES: usize = 2 + FingerprintKey::BYTES;

/// The identity of a state folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// UUID that each file of the folder names.
    pub uuid: [u8; 16],
    /// Key of fingerprints. It is secret: anybody who knows it can prepare blocks that cost useless comparisons.
    pub key: [u8; FingerprintKey::BYTES],
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("uuid", &self.uuid).finish_non_exhaustive()
    }
}

impl Identity {
    /// Writes the identity to an empty file.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub fn write<S: Substrate>(&self, substrate: &S, file: S::File) -> std::io::Result<()> {
        let header = RecordHeader { kind: RecordKind::Identity, identity: self.uuid, subject: 0 };
        let mut payload = ALGORITHM_BLAKE3.to_le_bytes().to_vec();
        payload.extend_from_slice(&self.key);
        RecordWriter::new(substrate, file, &header).finish(&payload)?;
        Ok(())
    }

    /// Reads the identity.
    ///
    /// # Errors
    /// See [`FormatError`]; `Damaged` if the algorithm is not known.
    pub fn read<S: Substrate>(substrate: &S, file: S::File) -> Result<Identity, FormatError> {
        let mut reader = RecordReader::open(substrate, file, RecordKind::Identity, None)?;
        let uuid = reader.identity();
        let Some(Frame::Last(payload)) = reader.next_frame()? else {
            return Err(FormatError::Damaged("it has more than one frame"));
        };
        let payload: &[u8; PAYLOAD_BYTES] =
            payload.try_into().map_err(|_| FormatError::Damaged("its length is wrong"))?;
        if u16::from_le_bytes([payload[0], payload[1]]) != ALGORITHM_BLAKE3 {
            return Err(FormatError::Damaged("its fingerprints are made in an unknown way"));
        }
        Ok(Identity { uuid, key: payload[2..].try_into().expect("the rest") })
    }
}

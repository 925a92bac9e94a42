//! LUKS, the encryption of Linux (LUKS1 On-Disk Format Specification 1.2.3, LUKS2 On-Disk Format Specification 1.1).
//!
//! | structure | bytes | field |
//! |---|---|---|
//! | both | 0..6, 6..8 | `LUKS` `BA BE`, version, big-endian as all numbers |
//! | LUKS1 | 8..40, 40..72, 108..112 | cipher, mode, bytes of the key |
//! | LUKS2 | 8..16, 24..72 | length of the header with its JSON, label |
//! | LUKS2 | 4096.. | JSON, ended by a zero; `segments` name the cipher |

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{NotRead, head, joined, text};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const NAME: &str = "LUKS";
const MAGIC: &[u8] = b"LUKS\xba\xbe";
const HEADER_BYTES: usize = 4096;
/// Maximum length of the JSON. Usual ones have 3 KiB.
const JSON_BYTES_MAX: usize = 1 << 20;

/// The part of the JSON that names ciphers.
#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    segments: BTreeMap<String, Segment>,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    encryption: Option<String>,
}

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    let header = head(reader, 0, HEADER_BYTES)?;
    if !header.starts_with(MAGIC) {
        return Ok(None);
    }
    let detail = match Bytes(&header).be16(6) {
        Some(1) => version_one(Bytes(&header)),
        Some(2) => Some(version_two(Bytes(&header), reader)?),
        _ => None,
    };
    Ok(Some(NotRead::encrypted(NAME, detail.unwrap_or_default())))
}

fn version_one(header: Bytes<'_>) -> Option<String> {
    let (cipher, mode) = (text(header.part(8, 32)?.0), text(header.part(40, 32)?.0));
    let key_bits = u64::from(header.be32(108)?) * 8;
    Some(format!("version 1, cipher {cipher}-{mode}, key of {key_bits} bits"))
}

fn version_two(header: Bytes<'_>, reader: &VolumeReader<'_>) -> Result<String, GuestError> {
    let length = header.be64(8).and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let json = head(reader, HEADER_BYTES as u64, length.saturating_sub(HEADER_BYTES).min(JSON_BYTES_MAX))?;
    let json = json.split(|byte| *byte == 0).next().unwrap_or_default();
    let segments = serde_json::from_slice::<Metadata>(json).map(|metadata| metadata.segments).unwrap_or_default();
    let mut ciphers: Vec<String> = segments.into_values().filter_map(|segment| segment.encryption).collect();
    ciphers.dedup();
    let cipher = if ciphers.is_empty() { String::new() } else { format!("cipher {}", ciphers.join(" and ")) };
    let label = header.part(24, 48).map(|label| text(label.0)).filter(|label| !label.is_empty());
    Ok(joined(&["version 2".to_owned(), cipher, label.map_or(String::new(), |label| format!("label {label}"))]))
}

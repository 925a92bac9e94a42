//! BitLocker, the encryption of Windows (libbde's "BitLocker Drive Encryption format", sections 2 and 5).
//!
//! | structure | bytes | field |
//! |---|---|---|
//! | boot sector | 3..11 | `-FVE-FS-`, or `MSWIN4.1` on removable media |
//! | boot sector | 160..176, 424..440 | identifier: of fixed disks, of removable media |
//! | boot sector | 176..184, 440..448 | first byte of the metadata: of fixed disks, of removable media |
//! | metadata | 0..8, 100..104 | `-FVE-FS-`, encryption method |

use super::{NotRead, head};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const NAME: &str = "BitLocker";
const MAGIC: &[u8; 8] = b"-FVE-FS-";
const MAGIC_REMOVABLE: &[u8; 8] = b"MSWIN4.1";
/// 4967d63b-2e29-4ad8-8399-f6a339e3d001
const IDENTIFIER: [u8; 16] =
    [0x3b, 0xd6, 0x67, 0x49, 0x29, 0x2e, 0xd8, 0x4a, 0x83, 0x99, 0xf6, 0xa3, 0x39, 0xe3, 0xd0, 0x01];

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    let sector = head(reader, 0, 512)?;
    let view = Bytes(&sector);
    let Some(magic) = view.array::<8>(3) else { return Ok(None) };
    let metadata = if magic == *MAGIC {
        view.le64(176)
    } else if magic == *MAGIC_REMOVABLE && view.array(424) == Some(IDENTIFIER) {
        view.le64(440)
    } else {
        return Ok(None);
    };
    let metadata = head(reader, metadata.unwrap_or(u64::MAX), 104)?;
    let method = Bytes(&metadata).le32(100).filter(|_| metadata.starts_with(MAGIC));
    Ok(Some(NotRead::encrypted(NAME, method.map(cipher).unwrap_or_default())))
}

fn cipher(method: u32) -> String {
    let name = match method {
        0x8000 => "AES-CBC with diffuser, 128 bits",
        0x8001 => "AES-CBC with diffuser, 256 bits",
        0x8002 => "AES-CBC, 128 bits",
        0x8003 => "AES-CBC, 256 bits",
        0x8004 => "AES-XTS, 128 bits",
        0x8005 => "AES-XTS, 256 bits",
        _ => return format!("encryption method {method:#x}"),
    };
    format!("cipher {name}")
}

//! Access control lists. XFS stores them under its own names, and the kernel shows them in the form of all file
//! systems. `tar` needs that form.
//!
//! | on the disk, big-endian         | as shown, little-endian           |
//! |---------------------------------|-----------------------------------|
//! | number of entries (4)           | version 2 (4)                     |
//! | each: tag (4), id (4), permissions (2), zero (2) | each: tag (2), permissions (2), id (4) |

use crate::bytes::Bytes;
use crate::filesystem::ExtendedAttribute;

const SHOWN_VERSION: u32 = 2;
const ENTRY_BYTES: usize = 12;
/// Tags of entries that have an id: a named user and a named group.
const TAGS_WITH_ID: [u16; 2] = [0x02, 0x08];

/// Converts an attribute of the name space `trusted` to a list in the form of the kernel, if it is a list.
pub(super) fn convert(name: &[u8], value: &[u8]) -> Option<Result<ExtendedAttribute, &'static str>> {
    let shown: &[u8] = match name {
        b"SGI_ACL_FILE" => b"system.posix_acl_access",
        b"SGI_ACL_DEFAULT" => b"system.posix_acl_default",
        _ => return None,
    };
    let list = shown_list(Bytes(value)).ok_or("an access control list is damaged");
    Some(list.map(|value| ExtendedAttribute { name: shown.to_vec(), value }))
}

fn shown_list(list: Bytes<'_>) -> Option<Vec<u8>> {
    let count = list.be32(0)? as usize;
    if list.len() < count.checked_mul(ENTRY_BYTES)?.checked_add(4)? {
        return None;
    }
    let mut shown = SHOWN_VERSION.to_le_bytes().to_vec();
    for index in 0..count {
        let at = 4 + index * ENTRY_BYTES;
        let tag = u16::try_from(list.be32(at)?).ok()?;
        let id = if TAGS_WITH_ID.contains(&tag) { list.be32(at + 4)? } else { u32::MAX };
        shown.extend(tag.to_le_bytes());
        shown.extend(list.be16(at + 8)?.to_le_bytes());
        shown.extend(id.to_le_bytes());
    }
    Some(shown)
}

//! Access control lists. The form on disk is shorter than the one for programs.
//!
//! On disk: version 1 (4 bytes), then entries of tag and permissions (2 bytes each). Entries of named users and groups
//! also have their number (4 bytes). Programs see version 2, with a number in every entry (`linux/posix_acl_xattr.h`).
//! Little-endian.

use crate::bytes::Bytes;

const STORED_VERSION: u32 = 1;
const SHOWN_VERSION: u32 = 2;
const NAMED_USER: u16 = 2;
const NAMED_GROUP: u16 = 8;
const NO_NUMBER: u32 = u32::MAX;

/// Returns the list in the form for programs; `None` if the prefix of an attribute does not belong to a list.
pub(super) fn shown(prefix: u8, stored: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
    matches!(prefix, 2 | 3).then(|| convert(Bytes(stored)).ok_or("an access control list makes no sense"))
}

fn convert(stored: Bytes<'_>) -> Option<Vec<u8>> {
    if stored.le32(0)? != STORED_VERSION {
        return None;
    }
    let mut shown = SHOWN_VERSION.to_le_bytes().to_vec();
    let mut at = 4;
    while at < stored.len() {
        let (tag, permissions) = (stored.le16(at)?, stored.le16(at + 2)?);
        at += 4;
        let mut number = NO_NUMBER;
        if matches!(tag, NAMED_USER | NAMED_GROUP) {
            number = stored.le32(at)?;
            at += 4;
        }
        shown.extend(tag.to_le_bytes());
        shown.extend(permissions.to_le_bytes());
        shown.extend(number.to_le_bytes());
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gets_a_number_in_every_entry() {
        let stored = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0];
        let expected =
            [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255];
        assert_eq!(shown(2, &stored), Some(Ok(expected.to_vec())));
        assert_eq!(shown(2, &stored[..14]), Some(Err("an access control list makes no sense")));
        assert_eq!(shown(1, &stored), None);
    }
}

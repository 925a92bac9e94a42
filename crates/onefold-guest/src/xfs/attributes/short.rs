//! Attributes in the inode: length of all of them (2), their number (1), a zero byte; then for each the length of its
//! name (1), of its value (1), flags (1), name, value.

use super::Attributes;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::xfs::Xfs;
use crate::xfs::inode::Fork;

const HEADER_BYTES: usize = 4;

impl Xfs<'_> {
    /// Adds the attributes of an inline fork.
    pub(super) fn short_attributes(&self, fork: &Fork<'_>, attributes: &mut Attributes) -> Result<(), GuestError> {
        let damage = |problem| self.attribute_damage(fork.place, problem);
        let length = fork.bytes.be16(0).map_or(0, usize::from);
        let bytes = fork.bytes.part(0, length).ok_or_else(|| damage("they are longer than their room"))?;
        let mut at = HEADER_BYTES;
        for _ in 0..bytes.u8(2).unwrap_or(0) {
            let attribute = short_attribute(bytes, at);
            let (flags, name, value) = attribute.ok_or_else(|| damage("one of them passes the end"))?;
            attributes.add(flags, name, value).map_err(damage)?;
            at += 3 + name.len() + value.len();
        }
        Ok(())
    }
}

/// Returns the flags, name and value of the attribute at a byte.
fn short_attribute(bytes: Bytes<'_>, at: usize) -> Option<(u8, &[u8], &[u8])> {
    let (name_bytes, value_bytes) = (usize::from(bytes.u8(at)?), usize::from(bytes.u8(at + 1)?));
    let name = bytes.part(at + 3, name_bytes)?;
    let value = bytes.part(at + 3 + name_bytes, value_bytes)?;
    Some((bytes.u8(at + 2)?, name.0, value.0))
}

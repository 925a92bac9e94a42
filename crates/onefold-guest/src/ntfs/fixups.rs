//! Fix-ups: they show whether a structure of several sectors was written completely.
//!
//! Before a structure is written, a number replaces the last two bytes of each 512. The head of the structure stores
//! the original bytes.
//!
//! | bytes of the structure | field |
//! |---|---|
//! | 4..6 | offset of the list |
//! | 6..8 | its length: the number, and the two bytes of each 512 that it replaces |

use crate::bytes::Bytes;

/// Interval whose last two bytes are replaced, regardless of the sectors of the device.
const STRIDE: usize = 512;

/// Undoes the fix-ups of a structure. Fails with the reason.
pub(super) fn undo(structure: &mut [u8]) -> Result<(), &'static str> {
    const SENSELESS: &str = "its fix-ups make no sense";
    let head = Bytes(structure);
    let (Some(offset), Some(count)) = (head.le16(4), head.le16(6)) else { return Err(SENSELESS) };
    let strides = structure.len() / STRIDE;
    let is_aligned = structure.len().is_multiple_of(STRIDE) && offset.is_multiple_of(2);
    if !is_aligned || usize::from(count) != strides + 1 {
        return Err(SENSELESS);
    }
    let list = head.part(usize::from(offset), usize::from(count) * 2).ok_or(SENSELESS)?.0.to_vec();
    // A list that reached the end of the first 512 bytes would replace itself.
    if usize::from(offset) + list.len() > STRIDE - 2 {
        return Err(SENSELESS);
    }
    let (number, kept) = list.split_at(2);
    for (stride, kept) in structure.chunks_exact_mut(STRIDE).zip(kept.chunks_exact(2)) {
        let Some(last) = stride.get_mut(STRIDE - 2..) else { return Err(SENSELESS) };
        if *last != *number {
            return Err("it was not written as a whole");
        }
        last.copy_from_slice(kept);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure() -> Vec<u8> {
        let mut bytes = vec![7; 1024];
        bytes[4..8].copy_from_slice(&[48, 0, 3, 0]);
        bytes[48..54].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        bytes[510..512].copy_from_slice(&[1, 2]);
        bytes[1022..].copy_from_slice(&[1, 2]);
        bytes
    }

    #[test]
    fn the_kept_bytes_come_back() {
        let mut bytes = structure();
        undo(&mut bytes).unwrap();
        assert_eq!((&bytes[509..513], &bytes[1021..]), (&[7, 3, 4, 7][..], &[7, 5, 6][..]));
    }

    #[test]
    fn torn_and_senseless_structures_are_errors() {
        for (at, value) in [(511, 9), (1022, 9), (4, 49), (5, 0xff), (6, 2), (6, 4), (7, 1)] {
            let mut bytes = structure();
            bytes[at] = value;
            assert!(undo(&mut bytes).is_err(), "{at}");
        }
        let mut late = structure();
        late[4..6].copy_from_slice(&506_u16.to_le_bytes());
        assert!(undo(&mut late).is_err());
        assert!(undo(&mut [0; 6]).is_err());
        assert!(undo(&mut [0; 700]).is_err());
    }
}

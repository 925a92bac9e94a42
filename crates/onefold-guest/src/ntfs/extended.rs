//! Extended attributes of OS/2, in which the Linux subsystem of Windows stores properties that NTFS does not have.
//!
//! After MS-FSCC 2.4.16. The number of a device is in NTFS-3G's form.
//!
//! | bytes of an entry | field |
//! |---|---|
//! | 0..4 | distance of the next entry; 0 for the last |
//! | 5, 6..8 | bytes of the name and of the value |
//! | 8.. | name, a zero byte, value |
//!
//! | bytes of the value `$LXDEV` | field |
//! |---|---|
//! | 0..4, 4..8 | major and minor number of a device |

use crate::bytes::Bytes;

/// Maximum length of a list of entries.
pub(super) const BYTES_MAX: u64 = 64 << 10;

const DEVICE: &[u8] = b"$LXDEV";
const NAME: usize = 8;

/// Returns the major and minor number of a device from a list of entries; `None` if there is none, or the list is
/// invalid.
pub(super) fn device(list: &[u8]) -> Option<(u32, u32)> {
    let mut rest = Bytes(list);
    loop {
        let (distance, name_length) = (usize::try_from(rest.le32(0)?).ok()?, usize::from(rest.u8(5)?));
        if rest.part(NAME, name_length)?.0 == DEVICE {
            let value = rest.part(NAME + name_length + 1, usize::from(rest.le16(6)?))?;
            return Some((value.le32(0)?, value.le32(4)?));
        }
        if distance == 0 {
            return None;
        }
        rest = rest.from(distance)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(distance: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut entry = vec![distance, 0, 0, 0, 0, u8::try_from(name.len()).unwrap()];
        entry.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        entry.extend([name, b"\0", value].concat());
        entry.resize(entry.len().max(usize::from(distance)), 0);
        entry
    }

    #[test]
    fn the_number_of_a_device_is_found_among_others() {
        let value = [8, 0, 0, 0, 17, 1, 0, 0];
        let list = [entry(24, b"$LXMOD", &[0; 4]), entry(0, b"$LXDEV", &value)].concat();
        assert_eq!(device(&list), Some((8, 273)));
        for length in 0..list.len() {
            assert_eq!(device(&list[..length]), None, "{length}");
        }
        assert_eq!(device(&entry(0, b"$LXDEV", &value[..7])), None);
        assert_eq!(device(&entry(0, b"$LXDEW", &value)), None);
        assert_eq!(device(&[0xff; 64]), None);
    }
}

//! The checksums of ext4 and of its journal.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Checksums": CRC-32C is continued from piece to
//! piece without an inversion at either end.

/// Returns CRC-32C of `bytes`, continued from `seed`.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Returns CRC-16 (polynomial 0x8005, reflected) of `bytes`, continued from `seed`: group descriptors of `uninit_bg`.
pub(super) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_catalogues() {
        assert_eq!(!crc32c(u32::MAX, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(7, b"1234"), b"56789"), crc32c(7, b"123456789"));
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}

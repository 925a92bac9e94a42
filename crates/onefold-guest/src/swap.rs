//! Swap areas of Linux.
//!
//! The header is the first page (`union swap_header` in Linux' `include/linux/swap.h`, and `mm/swapfile.c`). The size
//! of a page depends on the machine. Numbers have the byte order of the machine, which the version number 1 reveals.
//!
//! | bytes | field |
//! |---|---|
//! | 1024..1028 | version |
//! | 1028..1032 | last page |
//! | 1036..1052 | UUID |
//! | 1052..1068 | label, ended by a zero |
//! | the last 10 of the page | `SWAPSPACE2`, or the signature of a hibernated kernel |

use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, TableKind};
use crate::volume::VolumeReader;

/// The page sizes of machines on which Linux runs, in bytes.
const PAGE_SIZES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const SIGNATURE_BYTES: usize = 10;
/// Version 1 of the area; version 0 ended with Linux 2.4.
const SIGNATURE: &[u8; SIGNATURE_BYTES] = b"SWAPSPACE2";
const SIGNATURE_OLD: &[u8; SIGNATURE_BYTES] = b"SWAP-SPACE";
/// Prefixes of the signatures with which hibernation replaces the usual one: the kernel's own, uswsusp, TuxOnIce.
const HIBERNATED: [&[u8]; 5] =
    [b"S1SUSPEND", b"S2SUSPEND", b"ULSUSPEND", b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c", b"LINHIB0001"];

/// A swap area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Page size of the machine that made it, in bytes.
    pub page_bytes: u64,
    /// Length of the area including its header, in bytes. It may exceed the length of the volume.
    pub size_bytes: u64,
    /// Its UUID as `blkid` prints it; empty if there is none.
    pub uuid: String,
    /// Its label, in bytes of the guest; empty if there is none.
    pub label: Vec<u8>,
    /// Whether it holds a hibernated kernel.
    pub is_hibernated: bool,
}

impl Swap {
    /// Returns the swap area of a volume; `None` if there is none.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub fn open(reader: &VolumeReader<'_>) -> Result<Option<Swap>, GuestError> {
        for page_bytes in PAGE_SIZES {
            if page_bytes as u64 > reader.size_bytes() {
                break;
            }
            let signature = reader.bytes((page_bytes - SIGNATURE_BYTES) as u64, SIGNATURE_BYTES, "swap header")?;
            let is_hibernated = HIBERNATED.iter().any(|known| signature.starts_with(known));
            if is_hibernated || signature == SIGNATURE || signature == SIGNATURE_OLD {
                let header = reader.bytes(0, page_bytes, "swap header")?;
                return Ok(Swap::decode(Bytes(&header), is_hibernated));
            }
        }
        Ok(None)
    }

    /// Returns the area whose first page is `header`.
    fn decode(header: Bytes<'_>, is_hibernated: bool) -> Option<Swap> {
        let is_version_one = header.le32(1024)? == 1 || header.be32(1024)? == 1;
        let last = if header.le32(1024)? == 1 { header.le32(1028)? } else { header.be32(1028)? };
        let page_bytes = header.len() as u64;
        let (uuid, label) =
            if is_version_one { (header.array(1036)?, header.part(1052, 16)?.0) } else { ([0; 16], &[][..]) };
        Some(Swap {
            page_bytes,
            size_bytes: if is_version_one { (u64::from(last) + 1) * page_bytes } else { 0 },
            uuid: if uuid == [0; 16] { String::new() } else { crate::bytes::uuid_text(uuid) },
            label: label.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
            is_hibernated,
        })
    }

    /// Returns the allocation map of a swap area in a volume of `volume_bytes`. Only its header is allocated, because
    /// the next kernel ignores the pages behind it. A hibernated kernel and bytes behind the area count as allocated.
    #[must_use]
    pub fn allocation(&self, volume_bytes: u64) -> Vec<Allocation> {
        let header_end = self.page_bytes.min(volume_bytes);
        // If the length is missing or invalid, the extent of the area is unknown.
        let is_known = self.size_bytes > self.page_bytes && self.size_bytes <= volume_bytes && !self.is_hibernated;
        let end = if is_known { self.size_bytes } else { header_end };
        let rest = if self.is_hibernated { AllocationClass::Data } else { AllocationClass::Outside };
        let runs = [
            (0, header_end, AllocationClass::Table(TableKind::Superblock)),
            (header_end, end, AllocationClass::Free),
            (end, volume_bytes, rest),
        ];
        let runs = runs.into_iter().filter(|(start, end, _)| end > start);
        runs.map(|(start, end, class)| Allocation { start_bytes: start, length_bytes: end - start, class }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(size_bytes: u64, is_hibernated: bool) -> Swap {
        Swap { page_bytes: 4096, size_bytes, uuid: String::new(), label: Vec::new(), is_hibernated }
    }

    fn free_bytes(swap: &Swap, volume_bytes: u64) -> u64 {
        let runs = swap.allocation(volume_bytes);
        assert_eq!(runs.iter().map(|run| run.length_bytes).sum::<u64>(), volume_bytes, "all is covered");
        assert!(runs.is_sorted_by(|one, next| one.end_bytes() == next.start_bytes));
        runs.iter().filter(|run| run.class == AllocationClass::Free).map(|run| run.length_bytes).sum()
    }

    #[test]
    fn pages_behind_the_header_are_free_unless_a_kernel_sleeps_in_them() {
        assert_eq!(free_bytes(&area(1 << 20, false), 1 << 20), (1 << 20) - 4096);
        assert_eq!(free_bytes(&area(1 << 20, false), (1 << 20) + 512), (1 << 20) - 4096);
        assert_eq!(free_bytes(&area(1 << 20, true), 1 << 20), 0);
        assert_eq!(free_bytes(&area(0, false), 1 << 20), 0, "an area of unknown length");
        assert_eq!(free_bytes(&area(2 << 20, false), 1 << 20), 0, "an area longer than its volume");
    }

    #[test]
    fn both_byte_orders_are_read() {
        let mut page = vec![0; 8192];
        page[1024..1032].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 9]);
        page[1052..1055].copy_from_slice(b"big");
        let swap = Swap::decode(Bytes(&page), false).unwrap();
        assert_eq!((swap.page_bytes, swap.size_bytes, swap.label.as_slice()), (8192, 81920, &b"big"[..]));
        page[1024..1032].copy_from_slice(&[1, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(Swap::decode(Bytes(&page), false).unwrap().size_bytes, 81920);
    }
}

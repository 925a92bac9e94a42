//! The architecture of the guest's programs, from the first bytes of an ELF or PE file.
//!
//! | bytes | ELF header |
//! |---|---|
//! | 0..4 | `\x7fELF` |
//! | 4 | 1: 32 bits, 2: 64 bits |
//! | 5 | 1: little-endian, 2: big-endian |
//! | 18..20 | machine, in this byte order |
//!
//! A PE file begins with `MZ`. The number at byte 60 is the place of `PE\0\0`, and the two bytes after it name the
//! machine.

use std::fmt;

use crate::bytes::Bytes;
use crate::filesystem::FileKind;
use crate::tree::{Links, ProblemLog, Tree};

/// Number of bytes of a program that are read. The second header of a PE file is near its beginning.
const HEADER_BYTES: usize = 4096;

/// An architecture, under Linux' name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// x86 with 64 bits, `amd64` in Debian.
    X86_64,
    /// x86 with 32 bits.
    I386,
    /// ARM with 64 bits, `arm64` in Debian.
    Aarch64,
    /// ARM with 32 bits.
    Arm,
    /// RISC-V with 64 bits.
    Riscv64,
    /// POWER with 64 bits, little-endian.
    Ppc64Le,
    /// POWER with 64 bits, big-endian.
    Ppc64,
    /// IBM Z.
    S390x,
    /// LoongArch with 64 bits.
    Loongarch64,
}

impl Architecture {
    /// Returns the name that `uname -m` prints; `i386` for all of 32-bit x86.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::I386 => "i386",
            Architecture::Aarch64 => "aarch64",
            Architecture::Arm => "arm",
            Architecture::Riscv64 => "riscv64",
            Architecture::Ppc64Le => "ppc64le",
            Architecture::Ppc64 => "ppc64",
            Architecture::S390x => "s390x",
            Architecture::Loongarch64 => "loongarch64",
        }
    }

    /// Returns the architecture of a program from its first bytes; `None` if it is unknown.
    #[must_use]
    pub fn of_program(first: &[u8]) -> Option<Architecture> {
        let first = Bytes(first);
        if first.array(0) == Some(*b"\x7fELF") { elf(first) } else { pe(first) }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the architecture of a program.
pub(super) fn of_program(tree: &Tree<'_>, path: &[u8], problems: &ProblemLog) -> Option<Architecture> {
    let found = problems.skip(path, tree.find(path, Links::Follow))?;
    if found.stat.kind != FileKind::Regular {
        return None;
    }
    let mut first = vec![0; HEADER_BYTES];
    let read = tree.system(found.file.system).read(found.file.file, 0, &mut first);
    let length = problems.skip(path, read)?;
    Architecture::of_program(first.get(..length)?)
}

fn elf(first: Bytes<'_>) -> Option<Architecture> {
    let is_64 = first.u8(4)? == 2;
    let is_little = first.u8(5)? == 1;
    let machine = if is_little { first.le16(18)? } else { first.be16(18)? };
    match (machine, is_64, is_little) {
        (62, _, true) => Some(Architecture::X86_64),
        (3, false, true) => Some(Architecture::I386),
        (183, true, true) => Some(Architecture::Aarch64),
        (40, false, true) => Some(Architecture::Arm),
        (243, true, true) => Some(Architecture::Riscv64),
        (21, true, true) => Some(Architecture::Ppc64Le),
        (21, true, false) => Some(Architecture::Ppc64),
        (22, true, false) => Some(Architecture::S390x),
        (258, true, true) => Some(Architecture::Loongarch64),
        _ => None,
    }
}

fn pe(first: Bytes<'_>) -> Option<Architecture> {
    if first.array(0) != Some(*b"MZ") {
        return None;
    }
    let header = first.from(usize::try_from(first.le32(60)?).ok()?)?;
    if header.array(0) != Some(*b"PE\0\0") {
        return None;
    }
    match header.le16(4)? {
        0x8664 => Some(Architecture::X86_64),
        0x014c => Some(Architecture::I386),
        0xaa64 => Some(Architecture::Aarch64),
        0x01c0 | 0x01c4 => Some(Architecture::Arm),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_has_the_architecture_that_it_runs_on() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = Architecture::of_program(&program[..HEADER_BYTES]);
        assert_eq!(found.map(Architecture::name), Some(std::env::consts::ARCH));
    }

    #[test]
    fn headers_name_their_machine() {
        let elf = |bits: u8, order: u8, machine: [u8; 2]| {
            let mut header = vec![0; 20];
            header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits, order]);
            header[18..].copy_from_slice(&machine);
            Architecture::of_program(&header)
        };
        assert_eq!(elf(2, 2, [0, 22]), Some(Architecture::S390x));
        assert_eq!(elf(2, 1, [21, 0]), Some(Architecture::Ppc64Le));
        assert_eq!(elf(1, 1, [22, 0]), None);
        let mut windows = vec![0; 128];
        windows[..2].copy_from_slice(b"MZ");
        windows[60] = 64;
        windows[64..70].copy_from_slice(b"PE\0\0\x64\x86");
        assert_eq!(Architecture::of_program(&windows), Some(Architecture::X86_64));
        windows[60..64].fill(0xff);
        assert_eq!(Architecture::of_program(&windows), None);
        for length in 0..20 {
            assert_eq!(Architecture::of_program(&b"\x7fELF\x02\x01__________________"[..length]), None);
        }
    }
}

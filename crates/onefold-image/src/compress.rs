//! Converts units to the bytes that are stored, and back.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;

use zstd::bulk;
use zstd::zstd_safe::{CParameter, find_frame_compressed_size};

use crate::format::pack::{Codec, UNIT_BYTES_MAX, UnitHeader};

/// Default level of compression.
pub const LEVEL: i32 = 3;

/// Lengths of units for which the default level has tables of its own, in bytes. Beyond 128 KiB the library takes
/// tables that no longer fit into the first caches of a processor, and shorter matches: a tenth more time for 0.5 %.
const TUNED_BYTES: RangeInclusive<usize> = (128 << 10) + 1..=256 << 10;
/// The tables for these lengths: entries of both, by their binary logarithms, and the shortest match in bytes.
const TUNED: [CParameter; 3] = [CParameter::HashLog(15), CParameter::ChainLog(15), CParameter::MinMatch(5)];
/// The library's own choice for other lengths.
const UNTUNED: [CParameter; 3] = [CParameter::HashLog(0), CParameter::ChainLog(0), CParameter::MinMatch(0)];

/// Compresses units. Each thread has its own compressor, whose memory is reused.
pub struct Compressor {
    zstd: bulk::Compressor<'static>,
    level: i32,
    /// Whether the library is set to [`TUNED`].
    is_tuned: bool,
}

impl Compressor {
    /// Returns a compressor with a level of Zstandard.
    ///
    /// # Errors
    /// When the library refuses the level, or there is no memory.
    pub fn new(level: i32) -> io::Result<Compressor> {
        Ok(Compressor { zstd: bulk::Compressor::new(level)?, level, is_tuned: false })
    }

    /// Fills `stored` with the stored form of a unit, and returns its header.
    ///
    /// # Errors
    /// When the library fails.
    ///
    /// # Panics
    /// When `plain` is empty or longer than a unit may be.
    pub fn compress(&mut self, plain: &[u8], stored: &mut Vec<u8>) -> io::Result<UnitHeader> {
        let plain_bytes = u32::try_from(plain.len()).ok().filter(|bytes| (1..=UNIT_BYTES_MAX).contains(bytes));
        let plain_bytes = plain_bytes.expect("a unit has 1 byte to 1 MiB");
        self.tune(plain.len())?;
        stored.clear();
        stored.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        self.zstd.compress_to_buffer(plain, stored)?;
        if stored.len() < plain.len() {
            let stored_bytes = u32::try_from(stored.len()).expect("shorter than the unit");
            return Ok(UnitHeader { codec: Codec::Zstd, stored_bytes, plain_bytes });
        }
        stored.clear();
        stored.extend_from_slice(plain);
        Ok(UnitHeader { codec: Codec::Plain, stored_bytes: plain_bytes, plain_bytes })
    }

    /// Sets the tables for a unit of this length.
    fn tune(&mut self, plain_bytes: usize) -> io::Result<()> {
        let is_tuned = self.level == LEVEL && TUNED_BYTES.contains(&plain_bytes);
        if is_tuned != self.is_tuned {
            let parameters = if is_tuned { TUNED } else { UNTUNED };
            parameters.into_iter().try_for_each(|parameter| self.zstd.set_parameter(parameter))?;
            self.is_tuned = is_tuned;
        }
        Ok(())
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor")
    }
}

/// Decompresses units. Each thread has its own decompressor, whose memory is reused.
pub struct Decompressor {
    zstd: bulk::Decompressor<'static>,
}

impl Decompressor {
    /// Returns a decompressor.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new() -> io::Result<Decompressor> {
        Ok(Decompressor { zstd: bulk::Decompressor::new()? })
    }

    /// Fills `plain` with the bytes of a unit. Returns false if `stored` does not decode to exactly
    /// `header.plain_bytes` bytes. A frame is decompressed directly into a buffer of that length, so a window takes no
    /// extra memory.
    pub fn decompress(&mut self, header: UnitHeader, stored: &[u8], plain: &mut Vec<u8>) -> bool {
        plain.clear();
        if !header.is_valid() || header.stored_bytes as usize != stored.len() {
            return false;
        }
        match header.codec {
            Codec::Plain => plain.extend_from_slice(stored),
            // One frame and nothing else: the library would take more of them, and skip what says it is to be skipped.
            Codec::Zstd if find_frame_compressed_size(stored) != Ok(stored.len()) => {}
            Codec::Zstd => {
                // The library fills the whole buffer that it is given, so the buffer has exactly this length.
                plain.resize(header.plain_bytes as usize, 0);
                match self.zstd.decompress_to_buffer(stored, plain.as_mut_slice()) {
                    Ok(length) => plain.truncate(length),
                    Err(_) => plain.clear(),
                }
            }
        }
        plain.len() == header.plain_bytes as usize
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(plain: &[u8]) -> UnitHeader {
        let mut stored = Vec::new();
        let header = Compressor::new(LEVEL).unwrap().compress(plain, &mut stored).unwrap();
        let mut back = vec![1, 2, 3];
        assert!(Decompressor::new().unwrap().decompress(header, &stored, &mut back));
        assert_eq!(back, plain);
        header
    }

    #[test]
    fn units_return_as_they_were() {
        assert_eq!(through(&[7; 1 << 20]).codec, Codec::Zstd);
        assert!(through(&[7; 1 << 20]).stored_bytes < 1000);
        assert_eq!(through(&[7]).codec, Codec::Plain, "nothing is gained");
    }

    /// Returns text of numbers, in which there is something to find.
    fn text(bytes: usize) -> Vec<u8> {
        let words = (0u64..).map(|at| (at * at % 9973 * 31 % 1009).to_string());
        words.flat_map(|word| [word.as_bytes(), b" "].concat()).take(bytes).collect()
    }

    /// Equal units have one stored form, in whatever order a compressor gets them.
    #[test]
    fn the_stored_form_does_not_depend_on_the_units_before() {
        let lengths = [4096, 131_072, 131_073, 262_144, 262_145, 1 << 20];
        let plains = lengths.map(text);
        let compressed = |compressor: &mut Compressor, plain: &[u8]| {
            let mut stored = Vec::new();
            compressor.compress(plain, &mut stored).unwrap();
            stored
        };
        for level in [1, LEVEL, 6] {
            let alone = plains.each_ref().map(|plain| compressed(&mut Compressor::new(level).unwrap(), plain));
            let mut reused = Compressor::new(level).unwrap();
            for at in [0, 3, 1, 3, 2, 4, 3, 3, 5, 0, 2, 1] {
                assert_eq!(compressed(&mut reused, &plains[at]), alone[at], "level {level}, {} bytes", lengths[at]);
            }
        }
        for plain in &plains {
            through(plain);
        }
    }

    /// The tables for long units apply to the default level, and only to those lengths.
    #[test]
    fn long_units_have_tables_of_their_own() {
        let by_library = |plain: &[u8]| bulk::compress(plain, LEVEL).unwrap();
        let ours = |plain: &[u8]| {
            let mut stored = Vec::new();
            Compressor::new(LEVEL).unwrap().compress(plain, &mut stored).unwrap();
            stored
        };
        for (bytes, is_tuned) in [(131_072, false), (131_073, true), (262_144, true), (262_145, false)] {
            let plain = text(bytes);
            assert_eq!(ours(&plain) != by_library(&plain), is_tuned, "{bytes} bytes");
        }
    }

    /// A frame of level 3, written by version 1.5.7 of the library.
    const KEPT: &str = "\
28b52ffd60b80a55030052c40889212202112282b17231be9817dc8d94a0b96d7f04accc6ae8e9c9cc893da84b39901419000a5050010a\
14a0a0021428404105285080820a50a0000515a040010a2a408102145480020528a800050a5050010a14a0a0021428a0a0821905272810\
80b3ea54a6a0";

    fn byte(digits: &[u8]) -> u8 {
        u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
    }

    /// Stored units stay readable, whatever a newer library writes.
    #[test]
    fn a_kept_frame_is_read() {
        let stored: Vec<u8> = KEPT.as_bytes().chunks(2).map(byte).collect();
        let header =
            UnitHeader { codec: Codec::Zstd, stored_bytes: u32::try_from(stored.len()).unwrap(), plain_bytes: 3000 };
        let expected: Vec<u8> = (0..3000u32).map(|at| u8::try_from(at % 250 * (at % 250) / 7 % 11).unwrap()).collect();
        let mut plain = Vec::new();
        assert!(Decompressor::new().unwrap().decompress(header, &stored, &mut plain));
        assert_eq!(plain, expected);
    }

    /// A frame of one raw block that says its window has 2^`log` bytes, and does not say its length.
    fn frame_of(log: u8, block: &[u8]) -> Vec<u8> {
        let header = u32::try_from(block.len()).unwrap() << 3 | 1;
        [&[0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3][..], &header.to_le_bytes()[..3], block].concat()
    }

    fn reads(stored: &[u8], expected: &[u8]) -> bool {
        let [stored_bytes, plain_bytes] = [stored.len(), expected.len()].map(|length| u32::try_from(length).unwrap());
        let (mut decompressor, mut plain) = (Decompressor::new().unwrap(), Vec::new());
        let header = UnitHeader { codec: Codec::Zstd, stored_bytes, plain_bytes };
        let is_read = decompressor.decompress(header, stored, &mut plain);
        assert!(plain.capacity() <= 2 * expected.len(), "no window takes memory");
        assert!(!is_read || plain == expected);
        is_read
    }

    #[test]
    fn a_giant_window_takes_no_memory() {
        let frame = frame_of(20, &[7; 50]);
        assert!(frame.len() == 59 && !reads(&frame, &[7; 50]), "what got longer is no unit");
        let repeated = |log: u8| [&[0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3][..], &[0x23, 0x1f, 0, 9]].concat();
        assert!(reads(&repeated(20), &[9; 996]));
        assert!(reads(&repeated(31), &[9; 996]), "2 GiB, of which nothing is used");
        assert!(!reads(&repeated(41), &[9; 996]), "no library has such a window");
    }

    #[test]
    fn a_unit_is_one_frame_and_nothing_else() {
        let mut compressor = Compressor::new(LEVEL).unwrap();
        let mut frame = |plain: &[u8]| {
            let mut stored = Vec::new();
            compressor.compress(plain, &mut stored).unwrap();
            stored
        };
        let (one, other) = (frame(&[1; 3000]), frame(&[2; 2000]));
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        assert!(reads(&one, &[1; 3000]));
        assert!(!reads(&[&one[..], &other].concat(), &[[1; 3000].as_slice(), &[2; 2000]].concat()));
        assert!(!reads(&[&one[..], &skippable].concat(), &[1; 3000]));
        assert!(!reads(&[&skippable[..], &one].concat(), &[1; 3000]));
        assert!(!reads(&[&one[..], &[0]].concat(), &[1; 3000]));
    }

    #[test]
    fn a_frame_of_another_length_is_refused() {
        let mut stored = Vec::new();
        let header = Compressor::new(LEVEL).unwrap().compress(&[7; 5000], &mut stored).unwrap();
        let mut decompressor = Decompressor::new().unwrap();
        for plain_bytes in [4999, 5001, 1 << 20] {
            assert!(!decompressor.decompress(UnitHeader { plain_bytes, ..header }, &stored, &mut Vec::new()));
        }
        for length in 0..stored.len() {
            let cut = UnitHeader { stored_bytes: u32::try_from(length).unwrap(), ..header };
            assert!(!decompressor.decompress(cut, &stored[..length], &mut Vec::new()));
        }
        assert!(decompressor.decompress(header, &stored, &mut Vec::new()), "and it still works");
    }
}

//! The hashes of names in the indexes of directories.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Hash Tree Directories". A tree names its hash:
//! 0 legacy, 1 half MD4, 2 TEA. Each exists for signed and for unsigned bytes of names.

/// Hash function of a directory, and how it interprets names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameHash {
    pub(super) kind: HashKind,
    /// Whether bytes of names count as unsigned (0 to 255) or signed (-128 to 127).
    pub(super) is_unsigned: bool,
    pub(super) seed: [u32; 4],
}

/// The hash function of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashKind {
    Legacy,
    HalfMd4,
    Tea,
}

/// The initial state of MD4, if the file system has no seed of its own.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The highest hash marks the end of a directory, so no name may have it.
const END: u32 = 0xffff_fffe;

impl NameHash {
    /// Returns the hash of a name. Its lowest bit is 0, because the tree uses it.
    pub(super) fn of(&self, name: &[u8]) -> u32 {
        let start = if self.seed == [0; 4] { START } else { self.seed };
        let hash = match self.kind {
            HashKind::Legacy => self.legacy(name),
            HashKind::HalfMd4 => pieces(name, 32).fold(start, |state, piece| half_md4(state, self.words(piece)))[1],
            HashKind::Tea => pieces(name, 16).fold(start, |state, piece| tea(state, self.words(piece)))[0],
        };
        let even = hash & !1;
        if even == END { END - 2 } else { even }
    }

    /// Returns a byte of a name as a number.
    fn value(&self, byte: u8) -> u32 {
        if self.is_unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut hash, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for byte in name {
            let product = self.value(*byte).wrapping_mul(7_152_373);
            let next = before.wrapping_add(hash ^ product);
            let next = if next & 0x8000_0000 == 0 { next } else { next.wrapping_sub(0x7fff_ffff) };
            (before, hash) = (hash, next);
        }
        hash << 1
    }

    /// Returns the words for a piece of a name. Padding bytes contain the length of the rest of the name.
    fn words<const N: usize>(&self, NamePiece { bytes, rest_bytes }: NamePiece<'_>) -> [u32; N] {
        let pad = rest_bytes | rest_bytes << 8;
        let pad = pad | pad << 16;
        let mut words = [pad; N];
        for (word, part) in words.iter_mut().zip(bytes.chunks(4)) {
            *word = part.iter().fold(pad, |word, byte| self.value(*byte).wrapping_add(word << 8));
        }
        words
    }
}

/// A piece of a name that is hashed in one step.
struct NamePiece<'n> {
    bytes: &'n [u8],
    /// Number of bytes of the name from this piece on.
    rest_bytes: u32,
}

fn pieces(name: &[u8], length: usize) -> impl Iterator<Item = NamePiece<'_>> {
    name.chunks(length).enumerate().map(move |(index, bytes)| {
        let rest_bytes = u32::try_from(name.len() - index * length).unwrap_or(u32::MAX);
        NamePiece { bytes, rest_bytes }
    })
}

/// A round of TEA (sixteen cycles) over the first two words of the state.
fn tea(state: [u32; 4], key: [u32; 4]) -> [u32; 4] {
    let [mut one, mut two, three, four] = state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        let mix = |value: u32, low: u32, high: u32| {
            (value << 4).wrapping_add(low) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(high)
        };
        one = one.wrapping_add(mix(two, key[0], key[1]));
        two = two.wrapping_add(mix(one, key[2], key[3]));
    }
    [state[0].wrapping_add(one), state[1].wrapping_add(two), three, four]
}

/// MD4's compression with half of its steps: three rounds of eight.
fn half_md4(state: [u32; 4], words: [u32; 8]) -> [u32; 4] {
    type Mix = fn(u32, u32, u32) -> u32;
    let choose: Mix = |x, y, z| z ^ (x & (y ^ z));
    let majority: Mix = |x, y, z| (x & y).wrapping_add((x ^ y) & z);
    let parity: Mix = |x, y, z| x ^ y ^ z;
    let rounds: [(Mix, u32, [u32; 4], [usize; 8]); 3] = [
        (choose, 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
        (majority, 0x5a82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
        (parity, 0x6ed9_eba1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
    ];
    let [mut a, mut b, mut c, mut d] = state;
    for (mix, constant, shifts, order) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    [state[0].wrapping_add(a), state[1].wrapping_add(b), state[2].wrapping_add(c), state[3].wrapping_add(d)]
}

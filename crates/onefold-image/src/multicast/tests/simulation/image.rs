//! The image of a simulation: chunks that may have several forms, and that a machine can verify.

use onefold_block::random::{Random, SeededRandom};

/// The chunks of an image, and the form that each has now.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) plain: Vec<Vec<u8>>,
    forms: Vec<u32>,
    /// How many thousandths of each chunk a disk with an earlier version lacks.
    pub(super) changed: Vec<u64>,
}

impl Image {
    pub(super) fn drawn(chunks: u32, chunk_bytes_max: u64, random: &SeededRandom) -> Image {
        let plain = (0..chunks).map(|_| {
            let mut bytes = vec![0; usize::try_from(1 + random.below(chunk_bytes_max)).unwrap()];
            random.fill(&mut bytes).unwrap();
            bytes
        });
        let plain: Vec<Vec<u8>> = plain.collect();
        // Half of the chunks are unchanged, and a few have changed a little.
        let changed = plain.iter().map(|bytes| [0, 0, 0, 0, 50, 1000, 1000, 1000][usize::from(bytes[0] % 8)]).collect();
        Image { plain, forms: vec![1; chunks as usize], changed }
    }

    /// Returns the length of a chunk's content, and the part that a disk with an earlier version lacks.
    pub(super) fn part(&self, chunk: u32) -> (u64, u64) {
        let bytes = self.plain[chunk as usize].len() as u64;
        (bytes, (bytes * self.changed[chunk as usize]).div_ceil(1000))
    }

    /// Gives some chunks another form.
    pub(super) fn change_forms(&mut self, random: &SeededRandom) {
        self.forms.iter_mut().for_each(|form| *form += u32::try_from(random.below(2)).unwrap());
    }

    /// Returns the form of a chunk and its bytes in that form: the form, then the content, scrambled. Later forms are
    /// shorter or longer.
    pub(super) fn chunk(&self, chunk: u32) -> (u32, Vec<u8>) {
        let form = self.forms[chunk as usize];
        let mut bytes = form.to_le_bytes().to_vec();
        bytes.extend(scrambled(&self.plain[chunk as usize], chunk, form));
        bytes.resize(bytes.len() + form as usize % 4 / 2 * 100, 0);
        (form, bytes)
    }

    /// Returns the content of a chunk, verified, or `None` if the bytes are not those of the chunk.
    pub(super) fn verified(&self, chunk: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let (form, rest) = bytes.split_first_chunk()?;
        let expected = &self.plain[chunk as usize];
        let content = scrambled(rest.get(..expected.len())?, chunk, u32::from_le_bytes(*form));
        (content == *expected).then_some(content)
    }
}

/// Returns bytes with a stream that depends on chunk and form. Twice the same is the bytes again.
fn scrambled(bytes: &[u8], chunk: u32, form: u32) -> Vec<u8> {
    let mut stream = vec![0; bytes.len()];
    SeededRandom::new(u64::from(chunk) << 32 | u64::from(form)).fill(&mut stream).unwrap();
    bytes.iter().zip(stream).map(|(byte, mask)| byte ^ mask).collect()
}

//! The same bytes hashed in several ways: whole files, block by block, and many blocks side by side.
//!
//! The bytes are in memory before the first way begins, so the times are of hashing alone. Every file takes whole
//! blocks, as on a disk; the rest of its last block is zero.

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use md5::{Digest as _, Md5};
use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::fingerprint::FingerprintKey;
use onefold_block::{BLOCK_BYTES, Fingerprint};

/// The files to hash, each in whole blocks.
#[derive(Debug, Default)]
pub struct Contents {
    files: Vec<Vec<u8>>,
}

impl Contents {
    /// Reads the regular files below `folder` in the order of their names, up to `bytes_max` bytes in all.
    ///
    /// # Errors
    /// When a folder or a file cannot be read.
    pub fn read(folder: &Path, bytes_max: u64) -> io::Result<Contents> {
        let mut contents = Contents::default();
        contents.add_folder(folder, &mut (bytes_max / BLOCK_BYTES_U64 * BLOCK_BYTES_U64))?;
        Ok(contents)
    }

    fn add_folder(&mut self, folder: &Path, left: &mut u64) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&entry.path(), left)?;
            } else if kind.is_file() && *left > 0 {
                let mut content = Vec::new();
                fs::File::open(entry.path())?.take(*left).read_to_end(&mut content)?;
                content.resize(content.len().next_multiple_of(BLOCK_BYTES), 0);
                *left -= content.len() as u64;
                self.files.push(content);
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|content| content.len() as u64).sum()
    }

    fn each_file(&self, hash: impl FnMut(&Vec<u8>)) {
        self.files.iter().for_each(hash);
    }

    fn each_block(&self, hash: impl FnMut(&[u8; BLOCK_BYTES])) {
        self.files.iter().flat_map(|content| content.as_chunks().0).for_each(hash);
    }
}

/// Cost of each way, in the order in which they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashCosts {
    /// Number of hashed files.
    pub files: u64,
    /// Bytes that each way hashed.
    pub bytes: u64,
    /// Names of the ways, with their times.
    pub ways: Vec<(&'static str, Duration)>,
}

/// Hashes the contents in each way, one after another, in one thread.
#[must_use]
pub fn hash(contents: &Contents) -> HashCosts {
    let key = FingerprintKey::new([0; FingerprintKey::BYTES]);
    let ways: [(&str, &dyn Fn()); 5] = [
        ("md5_by_file", &|| contents.each_file(|file| _ = black_box(Md5::digest(file)))),
        ("md5_by_block", &|| contents.each_block(|block| _ = black_box(Md5::digest(block)))),
        ("blake3_by_file", &|| contents.each_file(|file| _ = black_box(blake3::hash(file)))),
        ("blake3_by_block", &|| contents.each_block(|block| _ = black_box(key.fingerprint(block)))),
        ("blake3_blocks_side_by_side", &|| {
            let mut fingerprints = Vec::new();
            contents.each_file(|file| {
                fingerprints.resize(file.len() / BLOCK_BYTES, Fingerprint::default());
                key.fingerprint_blocks(file, &mut fingerprints);
                black_box(&fingerprints);
            });
        }),
    ];
    let timed = |run: &dyn Fn()| {
        let started = Instant::now();
        run();
        started.elapsed()
    };
    let ways = ways.iter().map(|(name, run)| (*name, timed(*run))).collect();
    HashCosts { files: contents.files.len() as u64, bytes: contents.bytes(), ways }
}

impl fmt::Display for HashCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{{ "files": {}, "bytes": {}, "seconds": {{ "#, self.files, self.bytes)?;
        for (at, (name, time)) in self.ways.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, r#"{comma}"{name}": {}"#, time.as_secs_f64())?;
        }
        write!(f, " }} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_take_whole_blocks_up_to_a_limit() {
        let folder = std::env::temp_dir().join(format!("onefold-hashing-{}", std::process::id()));
        fs::create_dir_all(folder.join("b")).unwrap();
        fs::write(folder.join("a"), vec![1; BLOCK_BYTES + 1]).unwrap();
        fs::write(folder.join("b/c"), vec![2; 5 * BLOCK_BYTES]).unwrap();
        fs::write(folder.join("d"), [3]).unwrap();
        let lengths = |bytes_max| {
            let contents = Contents::read(&folder, bytes_max).unwrap();
            contents.files.iter().map(|content| content.len() / BLOCK_BYTES).collect::<Vec<_>>()
        };
        assert_eq!(lengths(u64::MAX), [2, 5, 1]);
        assert_eq!(lengths(5 * BLOCK_BYTES_U64 + 1), [2, 3]);
        let hashed = hash(&Contents::read(&folder, u64::MAX).unwrap());
        assert_eq!((hashed.files, hashed.bytes, hashed.ways.len()), (3, 8 * BLOCK_BYTES_U64, 5));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_told_has_each_way_once() {
        let ways = vec![("one", Duration::from_secs(1)), ("two", Duration::from_millis(500))];
        let told = HashCosts { files: 3, bytes: 4096, ways }.to_string();
        assert_eq!(told, r#"{ "files": 3, "bytes": 4096, "seconds": { "one": 1, "two": 0.5 } }"#);
    }
}

//! Tests of the parts together, call by call.

mod faults;
mod loss;
mod rules;
mod sharing;

use std::path::Path;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{Access, At, ComparisonResult, Files, ShareError};

use super::{Host, HostNo, SimulatedFile, SimulatedFileSystem, SimulationOptions};

const B: u64 = BLOCK_BYTES_U64;

/// Returns a file system without images that three hosts may mount.
fn empty(seed: u64) -> SimulatedFileSystem {
    let options = SimulationOptions { seed, hosts: 3, images: 0, ..SimulationOptions::default() };
    SimulatedFileSystem::new(&options)
}

/// Makes a file of these blocks, each filled with a byte, and leaves it open.
fn file<'run>(host: &Host<'run>, path: &str, blocks: &[u8]) -> SimulatedFile<'run> {
    let file = host.substrate.create(Path::new(path)).unwrap();
    host.substrate.write_at(&file, 0, &bytes(blocks)).unwrap();
    file
}

fn bytes(blocks: &[u8]) -> Vec<u8> {
    blocks.iter().flat_map(|byte| [*byte; BLOCK_BYTES]).collect()
}

/// Returns the first byte of each block, after checking that the others equal it.
fn content<'run>(host: &Host<'run>, file: &SimulatedFile<'run>) -> Vec<u8> {
    let length = usize::try_from(host.substrate.stat(file).unwrap().length).unwrap();
    let mut content = vec![0; length + 1];
    assert_eq!(host.substrate.read_at(file, 0, &mut content).unwrap(), length);
    let blocks = content[..length].chunks(BLOCK_BYTES);
    blocks.inspect(|block| assert!(block.iter().all(|byte| *byte == block[0]))).map(|block| block[0]).collect()
}

fn at<'a, 'run>(file: &'a SimulatedFile<'run>, block: u64) -> At<'a, SimulatedFile<'run>> {
    At { file, offset: block * B }
}

fn errno(result: Result<impl std::fmt::Debug, std::io::Error>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

//! `onefold-synthetic`: makes a pool that describes very many blocks without their data, in a sparse file.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::{FileDevice, OpenMode};
use onefold_block::{BlockDevice, BlockNo};
use onefold_pool::Environment;
use onefold_synthetic::{Plan, SyntheticError, describe, save_filter};

/// Makes a pool that describes very many distinct blocks without their data, to measure what size costs.
///
/// `onefold pool check` finds it clean; `check --data` and `scrub` find every block that is described damaged.
#[derive(Debug, Parser)]
struct Arguments {
    /// The sparse file to make; what is there is lost
    file: PathBuf,
    /// Distinct blocks of 4 KiB to describe; 268435456 are 1 TiB
    #[arg(long)]
    blocks: u64,
    /// Fully mapped files that they are shared out to: described-0, described-1 and so on
    #[arg(long, default_value_t = 1)]
    files: u64,
    /// Blocks that stay free, at least
    #[arg(long, default_value_t = 2 << 20)]
    free_blocks: u64,
    /// Leave a saved filter, as a clean unmount does, using this many MiB of memory; without it there is none
    #[arg(long, value_name = "MIB")]
    saved_filter: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                eprintln!("  cause: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), SyntheticError> {
    let plan = Plan { blocks: arguments.blocks, files: arguments.files, free_blocks: arguments.free_blocks };
    let file_error = |source| SyntheticError::Io { action: "make a file for", block: BlockNo(0), source };
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&arguments.file).map_err(file_error)?;
    file.set_len(plan.device_blocks() * BLOCK_BYTES_U64).map_err(file_error)?;
    drop(file);
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&arguments.file, OpenMode::ReadWrite)?);
    let environment = Environment::system();
    let made = describe(&device, &plan, &environment)?;
    if let Some(mib) = arguments.saved_filter {
        save_filter(device, mib << 20, environment)?;
    }
    eprintln!("{} data blocks and {} map nodes in {} block groups", made.data_blocks, made.map_nodes, made.groups);
    Ok(())
}

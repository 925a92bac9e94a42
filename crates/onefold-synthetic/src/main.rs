//! `onefold-synthetic`: tools that the benchmarks need beside the product.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::{FileDevice, OpenMode};
use onefold_block::{BlockDevice, BlockNo};
use onefold_disk::FileDisk;
use onefold_linux::LinuxSubstrate;
use onefold_pool::Environment;
use onefold_substrate::{Access, Files};
use onefold_synthetic::calls::{read_pairs, share_pairs};
use onefold_synthetic::guest;
use onefold_synthetic::hashing::{self, Contents};
use onefold_synthetic::index::{IndexPlan, make_index};
use onefold_synthetic::{Plan, SyntheticError, describe, save_filter};

/// Makes data for benchmarks of size: metadata of very many blocks whose data does not exist.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a pool that describes very many distinct blocks without their data
    ///
    /// `onefold pool check` finds it clean; `check --data` and `scrub` report every described block as damaged.
    Pool(PoolArgs),
    /// Make a sharing index of very many blocks, and a log of new ones for the next `onefold share run` on PATH/new
    Index(IndexArgs),
    /// Have the kernel share the pairs of ranges on standard input: SOURCE TARGET COUNT in each line, in blocks of 4
    /// KiB
    Calls(CallsArgs),
    /// Have the library examine a raw image, and report how long that takes
    Guest(GuestArgs),
    /// Hash the files below a folder in several ways, and report how long each takes
    Hash(HashArgs),
}

#[derive(Args, Debug)]
struct PoolArgs {
    /// The sparse file to make; its content is lost
    file: PathBuf,
    /// Distinct blocks of 4 KiB to describe; 268435456 are 1 TiB
    #[arg(long)]
    blocks: u64,
    /// Number of fully mapped files that share these blocks out among them: described-0, described-1 and so on
    #[arg(long, default_value_t = 1)]
    files: u64,
    /// Minimum number of blocks that stay free
    #[arg(long, default_value_t = 2 << 20)]
    free_blocks: u64,
    /// Leave a saved filter, as a clean unmount does, using this many MiB of memory; by default there is none
    #[arg(long, value_name = "MIB")]
    saved_filter: Option<u64>,
}

#[derive(Args, Debug)]
struct IndexArgs {
    /// The root of an empty file system that can share blocks
    root: PathBuf,
    /// Entries of the index; 268435456 are those of 1 TiB
    #[arg(long)]
    entries: u64,
    /// Number of blocks in the log, none of which is in the index
    #[arg(long)]
    news: u64,
}

#[derive(Args, Debug)]
struct CallsArgs {
    /// The root of the file system
    root: PathBuf,
    /// The source file, relative to the root
    source: PathBuf,
    /// The target file, relative to the root, whose blocks are replaced by those of the source
    target: PathBuf,
    /// Maximum number of bytes in one call
    #[arg(long, default_value_t = 1 << 20)]
    call_bytes: u64,
}

#[derive(Args, Debug)]
struct GuestArgs {
    /// What to list
    #[arg(value_enum)]
    question: Question,
    /// The image
    image: PathBuf,
}

#[derive(Args, Debug)]
struct HashArgs {
    /// The folder
    folder: PathBuf,
    /// Maximum number of bytes to hash
    #[arg(long, default_value_t = 512 << 20)]
    bytes: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Question {
    /// Every extent of every file, in the order of the disk
    Files,
    /// Allocated and free bytes of all file systems, by their bitmaps alone
    Bitmaps,
    /// The use of all bytes, and whether file content was read for that
    Map,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Pool(arguments) => pool(&arguments).map_err(Into::into),
        Command::Index(arguments) => index(&arguments),
        Command::Calls(arguments) => calls(&arguments),
        Command::Guest(arguments) => look(&arguments),
        Command::Hash(arguments) => hash(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  cause: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn pool(arguments: &PoolArgs) -> Result<(), SyntheticError> {
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

fn index(arguments: &IndexArgs) -> Result<(), Box<dyn Error>> {
    let substrate = open(&arguments.root)?;
    let bytes = make_index(&substrate, IndexPlan { entries: arguments.entries, news: arguments.news })?;
    println!(r#"{{ "entries": {}, "bytes": {bytes} }}"#, arguments.entries);
    Ok(())
}

fn calls(arguments: &CallsArgs) -> Result<(), Box<dyn Error>> {
    let substrate = open(&arguments.root)?;
    let pairs = read_pairs(std::io::stdin().lock())?;
    let source = substrate.open(&arguments.source, Access::Read)?;
    let target = substrate.open(&arguments.target, Access::Write)?;
    let called = share_pairs(&substrate, &source, &target, &pairs, arguments.call_bytes)?;
    println!(
        r#"{{ "calls": {}, "bytes": {}, "seconds": {}, "longest_seconds": {} }}"#,
        called.calls,
        called.bytes,
        called.time.as_secs_f64(),
        called.longest.as_secs_f64(),
    );
    Ok(())
}

fn look(arguments: &GuestArgs) -> Result<(), Box<dyn Error>> {
    let disk = FileDisk::new(File::open(&arguments.image)?, &arguments.image)?;
    match arguments.question {
        Question::Files => println!("{}", guest::files(&disk)?),
        Question::Bitmaps => println!("{}", guest::bitmaps(&disk)?),
        Question::Map => println!("{}", guest::map(&disk)?),
    }
    Ok(())
}

fn hash(arguments: &HashArgs) -> Result<(), Box<dyn Error>> {
    let contents = Contents::read(&arguments.folder, arguments.bytes)?;
    println!("{}", hashing::hash(&contents));
    Ok(())
}

fn open(root: &Path) -> Result<LinuxSubstrate, Box<dyn Error>> {
    Ok(LinuxSubstrate::open(root, Path::new(""))?)
}

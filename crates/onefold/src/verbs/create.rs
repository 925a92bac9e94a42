//! `onefold pool create`

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use onefold_block::device::OpenMode;
use onefold_block::shown::ShownOutput;
use onefold_block::{BlockDevice, BlockNo, Show};
use onefold_pool::{CreateOptions, Environment, MEMORY_BYTES_MIN, Pool, PoolError};
use serde_json::json;

use crate::cli::pool::CreateArgs;
use crate::failure::{Failure, Outcome};
use crate::locate::{self, PoolTarget};
use crate::outgoing::{is_among_devices, no_device};
use crate::output::{Report, machine_name};
use crate::size::{ByteSize, grouped, human};
use crate::store::open_device;

const LABEL_BYTES_MAX: usize = 64;

pub(super) fn run(arguments: &CreateArgs) -> Outcome<Report> {
    let path = arguments.path.as_path();
    let cannot = || format!("cannot create a pool in `{}`", path.shown());
    if arguments.label.len() > LABEL_BYTES_MAX {
        return Err(Failure::usage(cannot()).because_of(format!("the label has more than {LABEL_BYTES_MAX} bytes")));
    }
    let target = prepare(path, arguments.size).map_err(|failure| failure.wrap(cannot()))?;
    let created = create(arguments, &target);
    if created.is_err() {
        // The user needs to see the first failure.
        let _ = target.undo(path);
    }
    let device_bytes = created.map_err(|failure| failure.wrap(cannot()))?;
    let text = format!("created a pool of {} in {}", human(device_bytes), path.shown());
    Ok(Report::done(
        text,
        json!({ "path": machine_name(path), "device_bytes": device_bytes, "label": arguments.label }),
    ))
}

/// The file or partition that becomes a pool.
enum CreateTarget {
    /// A file that was made for the pool.
    New,
    /// A file or partition of the user's, with its length and the length that it gets.
    Present { length_bytes: u64, extension: Option<Extension> },
}

impl CreateTarget {
    /// Takes back what was done for a pool that was not created: removes a new file, gives another its length again.
    fn undo(&self, path: &Path) -> io::Result<()> {
        match self {
            CreateTarget::New => fs::remove_file(path),
            CreateTarget::Present { extension: None, .. } => Ok(()),
            CreateTarget::Present { length_bytes, extension: Some(_) } => {
                OpenOptions::new().write(true).open(path)?.set_len(*length_bytes)
            }
        }
    }
}

/// Makes the file if it is not there. Leaves what is there as it is.
fn prepare(path: &Path, size: Option<ByteSize>) -> Outcome<CreateTarget> {
    let io = |error: &io::Error| Failure::of_io(format!("cannot prepare `{}`", path.shown()), error);
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(ByteSize(bytes)) = size else {
                return Err(io(&error).hint("give --size to make the file, as in `--size 100G` (it stays sparse)"));
            };
            if is_among_devices(path) {
                return Err(no_device(format!("cannot prepare `{}`", path.shown())));
            }
            // A user who can read the pool's file can read all files in it, whatever their permissions are.
            let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
            let file = options.open(path).map_err(|error| io(&error))?;
            if let Err(error) = file.set_len(bytes) {
                let _ = fs::remove_file(path);
                return Err(io(&error));
            }
            return Ok(CreateTarget::New);
        }
        Err(error) => return Err(io(&error)),
    };
    match locate::locate(path)? {
        PoolTarget::Offline(_) => {}
        PoolTarget::Served(path) => return Err(locate::served("there is a pool in it".to_owned(), &path)),
        PoolTarget::Mounted { mount, .. } | PoolTarget::Stale(mount) => {
            return Err(Failure::new(format!("a pool in it is mounted at `{}`", mount.mountpoint.shown()))
                .hint("unmount it first with `onefold pool umount`"));
        }
    }
    let extension = size.map(|size| Extension::new(path, metadata.len(), size)).transpose()?;
    Ok(CreateTarget::Present { length_bytes: metadata.len(), extension })
}

/// A greater length of a regular file.
pub(super) struct Extension {
    bytes: u64,
}

impl Extension {
    /// Returns the extension of a file of `length_bytes`. A file is never shortened, as that would cut off its content.
    pub(super) fn new(path: &Path, length_bytes: u64, ByteSize(bytes): ByteSize) -> Outcome<Extension> {
        let cannot = || Extension { bytes }.cannot(path);
        let kind = fs::metadata(path).map_err(|error| Failure::of_io(cannot(), &error))?.file_type();
        if kind.is_block_device() {
            return Err(Failure::usage(cannot()).because_of("it is a partition").hint("leave --size out"));
        }
        if bytes < length_bytes {
            return Err(Failure::usage(cannot()).because_of(format!("it is longer already: {}", human(length_bytes))));
        }
        Ok(Extension { bytes })
    }

    /// Lengthens the file.
    pub(super) fn apply(&self, path: &Path) -> Outcome<()> {
        let resized = OpenOptions::new().write(true).open(path).and_then(|file: File| file.set_len(self.bytes));
        resized.map_err(|error| Failure::of_io(self.cannot(path), &error))
    }

    fn cannot(&self, path: &Path) -> String {
        format!("cannot make `{}` {} long", path.shown(), human(self.bytes))
    }
}

/// Writes the pool. Returns its size.
fn create(arguments: &CreateArgs, target: &CreateTarget) -> Outcome<u64> {
    let path = arguments.path.as_path();
    let device: Arc<dyn BlockDevice> = Arc::new(open_device(path, OpenMode::ReadWrite)?);
    if let CreateTarget::Present { length_bytes, extension } = target {
        // The present content is looked at before the length changes.
        if !arguments.force {
            refuse_what_is_there(Arc::clone(&device))?;
            refuse_signatures(path)?;
            refuse_content(device.as_ref())?;
            refuse_end(path, *length_bytes)?;
        }
        if let Some(extension) = extension {
            extension.apply(path)?;
        }
    }
    let options = CreateOptions {
        label: arguments.label.clone(),
        journal_bytes: arguments.journal_size.map(|size| size.0),
        store_placement: arguments.stores.into(),
        dedup: arguments.dedup.into(),
        root_uid: rustix::process::getuid().as_raw(),
        root_gid: rustix::process::getgid().as_raw(),
        ..CreateOptions::default()
    };
    let pool_failure = |error: &PoolError| Failure::of_pool("the pool was not written", error);
    Pool::create(&device, &options, &Environment::system()).map_err(|error| match error {
        PoolError::DeviceTooSmall { .. } => pool_failure(&error).hint("give a larger --size, or a larger partition"),
        error => pool_failure(&error),
    })?;
    let blocks = device.block_count().map_err(|error| Failure::of_io("cannot measure it", &error))?;
    Ok(blocks.saturating_mul(onefold_block::BLOCK_BYTES as u64))
}

/// Refuses to overwrite a pool, of any version and in any state.
fn refuse_what_is_there(device: Arc<dyn BlockDevice>) -> Outcome<()> {
    let options = onefold_pool::OpenOptions {
        memory_bytes: MEMORY_BYTES_MIN,
        read_only: true,
        background: false,
        ..onefold_pool::OpenOptions::default()
    };
    let there = match Pool::open(device, options, Environment::system()) {
        Err(PoolError::NotAPool(_)) => return Ok(()),
        Err(PoolError::Io { action, block, source }) => {
            let error = PoolError::Io { action, block, source };
            return Err(Failure::of_pool("cannot inspect the present content", &error));
        }
        Ok(_) => "a pool is there already".to_owned(),
        Err(error) => format!("a pool is there already, but: {error}"),
    };
    Err(Failure::new(there).hint("give --force to overwrite it: all that is in it is lost then"))
}

/// Number of places between the ends at which unknown content is looked for.
const SAMPLES: u64 = 1024;
/// Number of blocks that are looked at from each end: there lie the headers of most formats.
const END_BLOCKS: u64 = 256;

/// Refuses to overwrite content that no program recognises. A whole device would take hours to read, so this reads both
/// ends and some blocks between them.
fn refuse_content(device: &dyn BlockDevice) -> Outcome<()> {
    let cannot = |error: &io::Error| Failure::of_io("cannot inspect the present content", error);
    let count = device.block_count().map_err(|error| cannot(&error))?;
    let ends = (0..count.min(END_BLOCKS)).chain(count.saturating_sub(END_BLOCKS)..count);
    let step = (count / SAMPLES).max(1);
    let between = (0..SAMPLES).map(|sample| sample * step).take_while(|&block| block < count);
    let mut content = [0; onefold_block::BLOCK_BYTES];
    for block in ends.chain(between) {
        device.read(BlockNo(block), &mut content).map_err(|error| cannot(&error))?;
        refuse_bytes(&content, block * onefold_block::BLOCK_BYTES_U64)?;
    }
    Ok(())
}

/// Like [`refuse_content`], for the end of a file behind its last whole block.
fn refuse_end(path: &Path, length_bytes: u64) -> Outcome<()> {
    let beyond = length_bytes % onefold_block::BLOCK_BYTES_U64;
    if beyond == 0 {
        return Ok(());
    }
    let mut content = [0; onefold_block::BLOCK_BYTES];
    let content = &mut content[..beyond as usize];
    File::open(path)
        .and_then(|file| file.read_exact_at(content, length_bytes - beyond))
        .map_err(|error| Failure::of_io("cannot inspect the present content", &error))?;
    refuse_bytes(content, length_bytes - beyond)
}

/// Refuses to overwrite bytes that are not zero. They lie at the byte `start`.
fn refuse_bytes(content: &[u8], start: u64) -> Outcome<()> {
    let Some(at) = content.iter().position(|&byte| byte != 0) else { return Ok(()) };
    let byte = grouped(start + at as u64);
    Err(Failure::new(format!("it holds unknown data already, first seen at byte {byte}"))
        .hint("give --force to overwrite it: all that is in it is lost then"))
}

/// Refuses to overwrite a file system, partition table or other content that `blkid` recognises.
fn refuse_signatures(path: &Path) -> Outcome<()> {
    // Users other than root may not have its folder in their PATH. If it is not installed, nothing is known.
    let probe = |program: &str| {
        Command::new(program).args(["-p", "-o", "export", "--"]).arg(path).stdin(Stdio::null()).output()
    };
    let Ok(output) = probe("blkid").or_else(|_| probe("/usr/sbin/blkid")) else { return Ok(()) };
    /// The exit code of blkid for contradictory signatures.
    const AMBIVALENT: i32 = 8;
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<&str> =
        ["TYPE=", "PTTYPE="].iter().filter_map(|key| text.lines().find_map(|line| line.strip_prefix(key))).collect();
    let what = match (found.first(), output.status.code()) {
        (Some(kind), _) => format!("it holds something else already: {}", ShownOutput(kind.as_bytes())),
        (None, Some(AMBIVALENT)) => "it holds several things already".to_owned(),
        (None, _) => return Ok(()),
    };
    Err(Failure::new(what).hint("give --force to overwrite it: all that is in it is lost then"))
}

//! `onefold pool create`

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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
    let is_new = prepare(path, arguments.size).map_err(|failure| failure.wrap(cannot()))?;
    let created = create(arguments, is_new);
    if created.is_err() && is_new {
        // The file is new and empty; the user needs to see the first failure.
        let _ = fs::remove_file(path);
    }
    let device_bytes = created.map_err(|failure| failure.wrap(cannot()))?;
    let text = format!("created a pool of {} in {}", human(device_bytes), path.shown());
    Ok(Report::done(
        text,
        json!({ "path": machine_name(path), "device_bytes": device_bytes, "label": arguments.label }),
    ))
}

/// Makes the file, or lengthens it. Returns whether it is new.
fn prepare(path: &Path, size: Option<ByteSize>) -> Outcome<bool> {
    let io = |error: &io::Error| Failure::of_io(format!("cannot prepare `{}`", path.shown()), error);
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(ByteSize(bytes)) = size else {
                return Err(io(&error).hint("give --size to make the file, as in `--size 100G` (it stays sparse)"));
            };
            // A user who can read the pool's file can read all files in it, whatever their permissions are.
            let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
            let file = options.open(path).map_err(|error| io(&error))?;
            if let Err(error) = file.set_len(bytes) {
                let _ = fs::remove_file(path);
                return Err(io(&error));
            }
            return Ok(true);
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
    if let Some(size) = size {
        extend(path, metadata.len(), size)?;
    }
    Ok(false)
}

/// Lengthens a regular file. Never shortens it, as that would cut off its content.
pub(super) fn extend(path: &Path, length_bytes: u64, ByteSize(bytes): ByteSize) -> Outcome<()> {
    let cannot = || format!("cannot make `{}` {} long", path.shown(), human(bytes));
    let kind = fs::metadata(path).map_err(|error| Failure::of_io(cannot(), &error))?.file_type();
    if kind.is_block_device() {
        return Err(Failure::usage(cannot()).because_of("it is a partition").hint("leave --size out"));
    }
    if bytes < length_bytes {
        return Err(Failure::usage(cannot()).because_of(format!("it is longer already: {}", human(length_bytes))));
    }
    let resize = OpenOptions::new().write(true).open(path).and_then(|file: File| file.set_len(bytes));
    resize.map_err(|error| Failure::of_io(cannot(), &error))
}

/// Writes the pool. Returns its size.
fn create(arguments: &CreateArgs, is_new: bool) -> Outcome<u64> {
    let path = arguments.path.as_path();
    let device: Arc<dyn BlockDevice> = Arc::new(open_device(path, OpenMode::ReadWrite)?);
    if !is_new && !arguments.force {
        refuse_what_is_there(Arc::clone(&device))?;
        refuse_signatures(path)?;
        refuse_content(device.as_ref())?;
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
        if let Some(at) = content.iter().position(|&byte| byte != 0) {
            let byte = block * onefold_block::BLOCK_BYTES_U64 + at as u64;
            return Err(Failure::new(format!("it holds unknown data already, first seen at byte {}", grouped(byte)))
                .hint("give --force to overwrite it: all that is in it is lost then"));
        }
    }
    Ok(())
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

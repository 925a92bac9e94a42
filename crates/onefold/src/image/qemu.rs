//! All other formats through QEMU's own `qemu-img`, which turns them into a raw file that is gone afterwards.
//!
//! `qemu-img` is given the whole tree of nodes: the driver and the open file (`/proc/self/fd/N`, inherited) of every layer,
//! and the layer below it or none. So it recognises no format and follows no name. Three drivers know no names; that of
//! VMDK obeys descriptors, which [`super::vmdk`] prevents: a descriptor is replaced by a stand-in, and a file with a header
//! that another user can change is copied first, so that it is what was checked.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::Show;
use onefold_block::shown::ShownOutput;
use onefold_pool::{FILE_BYTES_MAX, PoolError};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Deserialize;
use serde_json::{Value, json};

use super::chain::{Chain, Member};
use super::child::{PROGRAM, Running, read_bounded};
use super::file::{ImageFile, descriptor_path};
use super::room::{TemporaryFile, TemporarySink};
use super::vmdk::{Descriptor, Head};
use crate::cli::values::ImageFormat;
use crate::copy::copy;
use crate::disk::{Disk, FileDisk};
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

/// `qemu-img info` only reads headers; an image that keeps it busy for longer is made to.
const INFO_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of its answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Time between two looks at a run: whether it has ended, and whether there is room for more.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const SECTOR_BYTES: u64 = 512;

/// A raw copy of an image, deleted when dropped.
pub(super) struct Converted {
    disk: FileDisk,
}

impl Disk for Converted {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<Range<u64>>> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Outcome<()> {
        self.disk.read(offset, into)
    }
}

/// Converts an image into a temporary sparse raw file; `further` are folders that it may refer to besides its own.
///
/// The file is as long as the disk from the start, and the conversion can neither lengthen it nor fill the file system.
pub(super) fn convert(image: ImageFile, format: ImageFormat, further: &[PathBuf], meter: &Meter) -> Outcome<Converted> {
    let path = image.path.clone();
    let cannot = || format!("cannot read the {} image `{}`", format.name(), path.shown());
    let (layers, size_bytes) = open_layers(image, format, further, meter, &cannot)?;
    if size_bytes > FILE_BYTES_MAX {
        return Err(Failure::of_pool(cannot(), &PoolError::FileTooLarge));
    }
    let length = size_bytes.next_multiple_of(SECTOR_BYTES);
    let copy = TemporaryFile::create(length)?;
    let target = format!("driver=raw,size={length},file.driver=file,file.filename={}", descriptor_path(&copy.file));
    // The target exists, so its length is only checked.
    let arguments = ["convert", "-p", "-S", "4k", "-n", "--target-is-zero", "--target-image-opts"].map(str::to_owned);
    let arguments = [&arguments[..], &[format!("json:{}", tree(&layers)), target]].concat();
    let mut files: Vec<&File> = layers.iter().flat_map(|layer| &layer.files).collect();
    files.push(&copy.file);
    let running = Running::start(&arguments, &files).map_err(|error| not_started(cannot(), &error))?;
    // That its length stays is sure already; this is for a `qemu-img` that is led astray.
    running.limit_file_length(length).map_err(|error| Failure::of_io(cannot(), &error))?;
    follow(running, meter, length, &copy, &cannot)?;
    Ok(Converted { disk: FileDisk::new(copy.file, &path)? })
}

/// One layer of an image, as `qemu-img` gets it.
#[derive(Debug)]
struct Layer {
    driver: &'static str,
    /// Its file, then the extents that the file names by their descriptors.
    files: Vec<File>,
    is_device: bool,
}

impl Layer {
    fn of_file(driver: &'static str, file: ImageFile) -> Layer {
        let is_device = file.metadata().file_type().is_block_device();
        Layer { driver, files: vec![file.file], is_device }
    }

    /// Returns its node, above the node `backing`.
    fn node(&self, backing: &Value) -> Value {
        let driver = if self.is_device { "host_device" } else { "file" };
        let file = json!({ "driver": driver, "filename": descriptor_path(&self.files[0]) });
        json!({ "driver": self.driver, "read-only": true, "file": file, "backing": backing })
    }
}

/// Returns the nodes of a chain, of which the first layer is the image itself.
fn tree(layers: &[Layer]) -> Value {
    layers.iter().rev().fold(Value::Null, |below, layer| layer.node(&below))
}

/// Opens all layers of an image, and returns them with the length of the disk in bytes.
fn open_layers(
    image: ImageFile,
    format: ImageFormat,
    further: &[PathBuf],
    meter: &Meter,
    cannot: &dyn Fn() -> String,
) -> Outcome<(Vec<Layer>, u64)> {
    let mut chain = Chain::start(&image, further)?;
    let mut next = Member { folder: chain.image_folder(), file: image };
    let mut layers = Vec::new();
    let mut size_bytes = None;
    loop {
        let Member { file, folder } = next;
        let (layer, named) = match format {
            ImageFormat::Vmdk => open_vmdk(file, &folder, &chain, meter, cannot)?,
            _ => (open_single(file, format, cannot)?, None),
        };
        let info = Info::of(&layer, cannot)?;
        layers.push(layer);
        size_bytes.get_or_insert(info.virtual_size);
        let Some(parent) = named.or(info.backing_filename) else { break };
        if format != ImageFormat::Vmdk {
            return Err(differencing(cannot(), &parent));
        }
        next = chain.follow(&parent, &folder).map_err(|why| why.failure(cannot()))?;
    }
    Ok((layers, size_bytes.unwrap_or(0)))
}

/// Returns the layer of a file in one of the formats that never name another file to `qemu-img`.
fn open_single(file: ImageFile, format: ImageFormat, cannot: &dyn Fn() -> String) -> Outcome<Layer> {
    let mut footer = [0; 64];
    // A file that is shorter is refused by `qemu-img`.
    if format == ImageFormat::Vpc && file.file.read_exact_at(&mut footer, 0).is_ok() {
        let is_differencing = footer.starts_with(b"conectix") && footer[60..64] == 4_u32.to_be_bytes();
        if is_differencing {
            return Err(differencing(cannot(), "another VHD"));
        }
    }
    Ok(Layer::of_file(format.name(), file))
}

/// Returns the failure of an image that holds only the difference to a parent.
fn differencing(cannot: String, parent: &str) -> Failure {
    Failure::new(cannot)
        .because_of(format!("it holds only what differs from its parent, {}", parent.shown()))
        .hint("merge it with its parent first, with the program that made it")
}

/// Returns the layer of a VMDK file with its extents, and the name of its parent if a descriptor of its own names one.
fn open_vmdk(
    file: ImageFile,
    folder: &Path,
    chain: &Chain,
    meter: &Meter,
    cannot: &dyn Fn() -> String,
) -> Outcome<(Layer, Option<String>)> {
    let head = Head::read(&file.file).map_err(|error| Failure::of_io(cannot(), &error))?;
    if head != Head::Other {
        return Ok((Layer::of_file("vmdk", checked_vmdk(file, &[Head::Sparse], meter, cannot)?), None));
    }
    let unreadable =
        |failure: Failure| failure.hint("`qemu-img convert` makes one file of the disk, which can be imported");
    let descriptor = Descriptor::read(&file.file)
        .map_err(|error| Failure::of_io(cannot(), &error))?
        .map_err(|error| unreadable(Failure::new(cannot()).because(&error)))?;
    let mut extents = Vec::new();
    for extent in &descriptor.extents {
        let opened = chain.open(&extent.name, folder).map_err(|why| why.failure(cannot()))?.file;
        // Of an extent, `qemu-img` reads only the header that the kind of the extent says.
        let file = match extent.has_header() {
            true => checked_vmdk(opened, &[Head::Sparse, Head::Other], meter, cannot)?,
            false => opened,
        };
        extents.push(file.file);
    }
    let paths: Vec<String> = extents.iter().map(descriptor_path).collect();
    let stand_in = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("onefold-vmdk", MemfdFlags::CLOEXEC)?);
        file.write_all(descriptor.stand_in(&paths).as_bytes())?;
        Ok(file)
    };
    let mut files = vec![stand_in().map_err(|error| Failure::of_io(cannot(), &error))?];
    files.append(&mut extents);
    Ok((Layer { driver: "vmdk", files, is_device: false }, descriptor.parent))
}

/// Returns a VMDK file that begins with one of `heads`, and stays so.
fn checked_vmdk(file: ImageFile, heads: &[Head], meter: &Meter, cannot: &dyn Fn() -> String) -> Outcome<ImageFile> {
    let file = if file.others_may_write() { copied(file, meter)? } else { file };
    let head = Head::read(&file.file).map_err(|error| Failure::of_io(cannot(), &error))?;
    if heads.contains(&head) {
        return Ok(file);
    }
    let path = file.path.shown();
    let cause = match head {
        Head::Inner => format!("the header of `{path}` leads to a descriptor inside the file"),
        Head::Sparse | Head::Other => format!("`{path}` changed while it was read"),
    };
    Err(Failure::new(cannot()).because_of(cause).hint("`qemu-img convert` makes an ordinary image of it"))
}

/// Returns a private copy of a file.
fn copied(file: ImageFile, meter: &Meter) -> Outcome<ImageFile> {
    let disk = FileDisk::new(file.file, &file.path)?;
    let copied = TemporaryFile::create(disk.size_bytes())?;
    copy(&disk, &TemporarySink::new(&copied, &file.path, disk.size_bytes())?, meter)?;
    ImageFile::of_open(copied.file, &file.path)
        .map_err(|error| Failure::of_io(format!("cannot read the copy of `{}`", file.path.shown()), &error))
}

/// What `qemu-img info` says about one layer alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    virtual_size: u64,
    backing_filename: Option<String>,
}

impl Info {
    /// Asks about a layer. The program opens nothing but the layer's own files.
    fn of(layer: &Layer, cannot: &dyn Fn() -> String) -> Outcome<Info> {
        let node = format!("json:{}", layer.node(&Value::Null));
        let arguments = ["info".to_owned(), "--output=json".to_owned(), node];
        let files: Vec<&File> = layer.files.iter().collect();
        let mut running = Running::start(&arguments, &files).map_err(|error| not_started(cannot(), &error))?;
        let answer = running.output().map(|output| thread::spawn(move || read_bounded(output, ANSWER_BYTES_MAX)));
        let started = Instant::now();
        let status = loop {
            match running.poll().map_err(|error| Failure::of_io(cannot(), &error))? {
                Some(status) => break status,
                None if started.elapsed() < INFO_TIME_MAX => thread::sleep(POLL_INTERVAL),
                None => return Err(Failure::new(cannot()).because_of("qemu-img did not come to an end with it")),
            }
        };
        if !status.success() {
            return Err(complained(cannot(), &running.complaint()));
        }
        let answer = answer.and_then(|thread| thread.join().ok()).unwrap_or_default();
        serde_json::from_str(&answer).map_err(|error| Failure::new(cannot()).because(&error))
    }
}

/// Follows a conversion to its end, and stops it when the user wants to or there is no more room.
fn follow(
    mut running: Running,
    meter: &Meter,
    length: u64,
    copy: &TemporaryFile,
    cannot: &dyn Fn() -> String,
) -> Outcome<()> {
    let done = Arc::new(AtomicU64::new(0));
    if let Some(output) = running.output() {
        let done = Arc::clone(&done);
        thread::spawn(move || read_progress(output, &done));
    }
    let status = loop {
        if let Some(status) = running.poll().map_err(|error| Failure::of_io(cannot(), &error))? {
            break status;
        }
        if meter.show_bytes(length / 100 * done.load(Ordering::Relaxed), length) == ControlFlow::Break(()) {
            return Err(Failure::interrupted("converting").hint("nothing was written to the pool"));
        }
        copy.check_room()?;
        thread::sleep(POLL_INTERVAL);
    };
    meter.finish();
    if status.success() { Ok(()) } else { Err(complained(cannot(), &running.complaint())) }
}

/// Notes how many percent are done: `qemu-img -p` prints "    (12.34/100%)" again and again.
fn read_progress(output: ChildStdout, done: &AtomicU64) {
    let mut text = Vec::new();
    for byte in std::io::BufReader::new(output).bytes() {
        let Ok(byte) = byte else { break };
        text.push(byte);
        if byte != b')' && text.len() < 64 {
            continue;
        }
        if let Some(percent) = percent(&text) {
            done.store(percent, Ordering::Relaxed);
        }
        text.clear();
    }
}

fn percent(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, number) = text.rsplit_once('(')?;
    number.split(['.', '/']).next()?.trim().parse().ok().filter(|percent| *percent <= 100)
}

fn not_started(cannot: String, error: &std::io::Error) -> Failure {
    let failure = Failure::new(cannot).because_of(format!("cannot start {PROGRAM}: {error}"));
    match error.kind() {
        std::io::ErrorKind::NotFound => failure.hint("install QEMU's tools (Debian: `apt-get install qemu-utils`)"),
        _ => failure,
    }
}

fn complained(cannot: String, complaint: &str) -> Failure {
    let failure = match ShownOutput(complaint.as_bytes()).to_string() {
        complaint if complaint.is_empty() => Failure::new(cannot),
        complaint => Failure::new(cannot).because_of(complaint),
    };
    failure.hint("`qemu-img info --backing-chain` and `qemu-img check` tell more about the image")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn progress_is_read_from_what_qemu_img_prints() {
        assert_eq!(percent(b"    (0.00/100%)"), Some(0));
        assert_eq!(percent(b"\r    (57.31/100%)"), Some(57));
        assert_eq!(percent(b"(100.00/100%)"), Some(100));
        assert_eq!(percent(b"(101.00/100%)"), None);
        assert_eq!(percent(b"warning)"), None);
        assert_eq!(percent(&[0xff, b')']), None);
    }

    #[test]
    fn every_layer_is_stated_and_the_last_has_none_below_it() {
        let layer = || Layer { driver: "vmdk", files: vec![tempfile::tempfile().unwrap()], is_device: false };
        let layers = [layer(), layer()];
        let number = |at: usize| format!("/proc/self/fd/{}", layers[at].files[0].as_raw_fd());
        let tree = tree(&layers);
        assert_eq!(tree["driver"], "vmdk");
        assert_eq!(tree["file"], json!({ "driver": "file", "filename": number(0) }));
        assert_eq!(tree["backing"]["file"]["filename"], number(1));
        assert_eq!(tree["backing"].get("backing"), Some(&Value::Null));
    }
}

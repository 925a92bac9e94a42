//! Images made by `qemu-img`, read here and compared with what `qemu-img` itself makes of them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onefold_block::Show;

use super::*;
use crate::copy::copy;
use crate::disk::{FileSink, Sink};
use crate::interrupt::Interrupt;

/// Tells whether `qemu-img` is there; tests without it say so.
fn has_qemu_img() -> bool {
    let found = Command::new("qemu-img").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: qemu-img is not installed (Debian: qemu-utils)");
    }
    found
}

fn qemu_img(arguments: &[&str]) {
    let output = Command::new("qemu-img").args(arguments).output().unwrap();
    assert!(output.status.success(), "qemu-img {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn quiet(doing: String) -> Meter {
    Meter::new(doing, true, Interrupt::default())
}

fn open_any(path: &Path) -> Outcome<OpenImage> {
    open(path, None, &[], &quiet)
}

fn failure(path: &Path) -> String {
    match open_any(path) {
        Ok(_) => panic!("{} opened", path.shown()),
        Err(failure) => failure.to_string(),
    }
}

/// Reads all of a disk, holes as zeros.
fn content(disk: &dyn Disk) -> Vec<u8> {
    let bytes = std::sync::Mutex::new(vec![0; usize::try_from(disk.size_bytes()).unwrap()]);
    struct Into<'a>(&'a std::sync::Mutex<Vec<u8>>);
    impl Sink for Into<'_> {
        fn write(&self, offset: u64, from: &[u8]) -> Outcome<()> {
            let offset = usize::try_from(offset).unwrap();
            self.0.lock().unwrap()[offset..offset + from.len()].copy_from_slice(from);
            Ok(())
        }
    }
    copy(disk, &Into(&bytes), &quiet(String::new())).unwrap();
    bytes.into_inner().unwrap()
}

/// A folder with a sparse raw image: 5 MiB and one sector, data in two places, repeating blocks, a hole.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let file = File::create(folder.path("base.raw")).unwrap();
        file.set_len((5 << 20) + 512).unwrap();
        let data: Vec<u8> = (0..700_000_u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
        file.write_all_at(&data[..1 << 20], 4096).unwrap();
        file.write_all_at(&data[1 << 20..2 << 20], 3 << 20).unwrap();
        file.write_all_at(b"the end", (5 << 20) + 500).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn raw(&self) -> Vec<u8> {
        fs::read(self.path("base.raw")).unwrap()
    }
}

#[test]
fn every_format_reads_as_the_disk_it_was_made_from() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let kinds = [
        ("a.qcow2", "qcow2", "", "qcow2"),
        ("a-compressed.qcow2", "qcow2", "compression_type=zlib", "qcow2"),
        ("a-old.qcow2", "qcow2", "compat=0.10", "qcow2"),
        ("a-small.qcow2", "qcow2", "cluster_size=512", "qcow2"),
        ("a.vmdk", "vmdk", "", "vmdk"),
        ("a-stream.vmdk", "vmdk", "subformat=streamOptimized", "vmdk"),
        ("a-flat.vmdk", "vmdk", "subformat=monolithicFlat", "vmdk"),
        ("a.vdi", "vdi", "", "vdi"),
        ("a.vhdx", "vhdx", "", "vhdx"),
    ];
    for (name, format, options, expected) in kinds {
        let path = folder.path(name);
        let mut arguments = vec!["convert", "-f", "raw", "-O", format];
        if name.contains("compressed") {
            arguments.push("-c");
        }
        if !options.is_empty() {
            arguments.extend(["-o", options]);
        }
        let base = folder.path("base.raw");
        arguments.extend([text(&base), text(&path)]);
        qemu_img(&arguments);
        let image = open_any(&path).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(image.format.name(), expected, "{name}");
        let read = content(image.disk.as_ref());
        let raw = folder.raw();
        assert!(read[..raw.len()] == raw, "{name} differs");
        // VDI and VHDX round the length up.
        assert!(read[raw.len()..].iter().all(|&byte| byte == 0), "{name} has more");
    }
}

#[test]
fn a_chain_of_backing_files_reads_as_its_top() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let (middle, top) = (folder.path("middle.qcow2"), folder.path("top.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.raw", text(&middle)]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "middle.qcow2", text(&top)]);
    let output = Command::new("qemu-io").args(["-c", "write -P 7 1M 64k", text(&top)]).output();
    assert!(output.unwrap().status.success());
    let image = open_any(&top).unwrap();
    let mut expected = folder.raw();
    expected[1 << 20..(1 << 20) + (64 << 10)].fill(7);
    assert!(content(image.disk.as_ref()) == expected);
}

#[test]
fn a_loop_in_the_backing_chain_is_an_error_and_no_hang() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let (one, two) = (folder.path("one.qcow2"), folder.path("two.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", text(&one), "1M"]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "one.qcow2", text(&two)]);
    qemu_img(&["rebase", "-u", "-F", "qcow2", "-b", "two.qcow2", text(&one)]);
    assert!(failure(&one).contains("it is a loop"), "{}", failure(&one));
    qemu_img(&["rebase", "-u", "-F", "qcow2", "-b", "one.qcow2", text(&one)]);
    assert!(failure(&one).contains("it is a loop"), "{}", failure(&one));
    // As a raw image its bytes are only bytes.
    assert!(open(&one, Some(ImageFormat::Raw), &[], &quiet).is_ok());
}

#[test]
fn an_image_does_not_lead_outside_its_directory_unless_allowed() {
    if !has_qemu_img() {
        return;
    }
    let (folder, other) = (Folder::new(), Folder::new());
    let image = folder.path("a.qcow2");
    let secret = other.path("base.raw");
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", text(&secret), text(&image)]);
    assert!(failure(&image).contains("outside"), "{}", failure(&image));
    let allowed = open(&image, None, &[other.0.path().to_owned()], &quiet).unwrap();
    assert!(content(allowed.disk.as_ref()) == other.raw());

    let descriptor = folder.path("a.vmdk");
    let extent = format!("RW 100 FLAT \"{}\" 0", text(&secret));
    let vmdk = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n{extent}\n"
    );
    fs::write(&descriptor, vmdk).unwrap();
    assert!(failure(&descriptor).contains("outside"), "{}", failure(&descriptor));
}

#[test]
fn a_backing_file_that_is_missing_or_a_pipe_is_an_error() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let image = folder.path("a.qcow2");
    qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "gone.raw", text(&image), "1M"]);
    assert!(failure(&image).contains("cannot find"), "{}", failure(&image));
    assert!(Command::new("mkfifo").arg(folder.path("gone.raw")).status().unwrap().success());
    assert!(failure(&image).contains("neither a file nor a block device"), "{}", failure(&image));
    assert!(failure(&folder.path("gone.raw")).contains("neither a file nor a block device"));
}

#[test]
fn what_is_written_as_qcow2_is_read_by_qemu_as_the_same_disk() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let path = folder.path("base.raw");
    let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
    let out = folder.path("out.qcow2");
    File::create(&out).unwrap();
    let sink = Qcow2Sink::create(&out, disk.size_bytes()).unwrap();
    copy(&disk, &sink, &quiet(String::new())).unwrap();
    sink.sync().unwrap();
    drop(sink);
    qemu_img(&["check", "-q", text(&out)]);
    qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2", text(&path), text(&out)]);
}

#[test]
fn a_raw_image_stays_sparse_and_equal() {
    let folder = Folder::new();
    let image = open_any(&folder.path("base.raw")).unwrap();
    assert_eq!(image.format, ImageFormat::Raw);
    let out = folder.path("out.raw");
    let sink = FileSink::new(File::create(&out).unwrap(), &out, image.disk.size_bytes()).unwrap();
    let copied = copy(image.disk.as_ref(), &sink, &quiet(String::new())).unwrap();
    assert!(fs::read(&out).unwrap() == folder.raw());
    assert!(copied.zero_bytes >= 2 << 20, "{copied:?}");
}

#[test]
fn a_qcow2_of_random_bytes_is_an_error_or_a_disk_but_never_a_panic() {
    if !has_qemu_img() {
        return;
    }
    let folder = Folder::new();
    let image = folder.path("a.qcow2");
    qemu_img(&["convert", "-O", "qcow2", "-o", "cluster_size=4096", text(&folder.path("base.raw")), text(&image)]);
    let sound = fs::read(&image).unwrap();
    let broken = folder.path("broken.qcow2");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for round in 0..300 {
        let mut bytes = sound.clone();
        // The header, and the tables behind it, are what decides.
        let within = if round % 2 == 0 { 112 } else { 32 << 10 };
        for _ in 0..1 + random(4) {
            let at = random(within);
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        fs::write(&broken, &bytes).unwrap();
        let Ok(image) = open(&broken, Some(ImageFormat::Qcow2), &[], &quiet) else { continue };
        // A size that was made up is not read to its end.
        let mut offset = 0;
        let mut into = vec![0; 64 << 10];
        for _ in 0..200 {
            let Ok(Some(data)) = image.disk.next_data(offset) else { break };
            if image.disk.read(data.start, &mut into).is_err() {
                break;
            }
            offset = data.start.saturating_add(64 << 10);
        }
    }
}

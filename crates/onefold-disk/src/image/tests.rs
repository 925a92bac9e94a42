//! Images made by `qemu-img`, read here and compared with what `qemu-img` itself reads.

use std::error::Error;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onefold_block::Show;

use super::*;
use crate::again::RepeatedWork;
use crate::copy::copy;
use crate::disk::Sink;
use crate::progress::Progress;
use crate::qcow2::Qcow2Sink;
use crate::raw::FileSink;

/// Returns whether `qemu-img` is installed; tests without it report that.
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

fn quiet(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn open_at(path: &Path, format: Option<ImageFormat>, further: &[PathBuf]) -> Result<OpenImage, DiskError> {
    let file = ImageFile::named(path).map_err(|error| DiskError::Other(error.into()))?;
    open(file, format, further, &quiet)
}

fn open_any(path: &Path) -> Result<OpenImage, DiskError> {
    open_at(path, None, &[])
}

fn failure(path: &Path) -> String {
    match open_any(path) {
        Ok(_) => panic!("{} opened", path.shown()),
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            text
        }
    }
}

/// Reads all of a disk, holes as zeros.
fn content(disk: &dyn Disk) -> Vec<u8> {
    let bytes = std::sync::Mutex::new(vec![0; usize::try_from(disk.size_bytes()).unwrap()]);
    struct ByteSink<'a>(&'a std::sync::Mutex<Vec<u8>>);
    impl Sink for ByteSink<'_> {
        fn write(&self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
            let offset = usize::try_from(offset).unwrap();
            self.0.lock().unwrap()[offset..offset + from.len()].copy_from_slice(from);
            Ok(())
        }
    }
    copy(disk, &ByteSink(&bytes), &quiet).unwrap();
    bytes.into_inner().unwrap()
}

/// A folder with a sparse raw image: 5 MiB and one sector, data in two places, repeating blocks, a hole.
struct ImageFolder(tempfile::TempDir);

impl ImageFolder {
    fn new() -> ImageFolder {
        let folder = ImageFolder(tempfile::tempdir().unwrap());
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
    let folder = ImageFolder::new();
    let kinds = [
        ("a.qcow2", "qcow2", "", "qcow2"),
        ("a-compressed.qcow2", "qcow2", "compression_type=zlib", "qcow2"),
        ("a-old.qcow2", "qcow2", "compat=0.10", "qcow2"),
        ("a-small.qcow2", "qcow2", "cluster_size=512", "qcow2"),
        ("a.vmdk", "vmdk", "", "vmdk"),
        ("a-stream.vmdk", "vmdk", "subformat=streamOptimized", "vmdk"),
        ("a-flat.vmdk", "vmdk", "subformat=monolithicFlat", "vmdk"),
        ("a-pieces.vmdk", "vmdk", "subformat=twoGbMaxExtentSparse", "vmdk"),
        ("a-flat-pieces.vmdk", "vmdk", "subformat=twoGbMaxExtentFlat", "vmdk"),
        ("a.vdi", "vdi", "", "vdi"),
        ("a.vhdx", "vhdx", "", "vhdx"),
        ("a.vhd", "vpc", "force_size=on", "vpc"),
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
    let folder = ImageFolder::new();
    let (middle, top) = (folder.path("middle.qcow2"), folder.path("top.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.raw", text(&middle)]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "middle.qcow2", text(&top)]);
    let output = Command::new("qemu-io").args(["-c", "write -P 7 1M 64k", text(&top)]).output();
    assert!(output.unwrap().status.success());
    let image = open_any(&top).unwrap();
    let mut expected = folder.raw();
    expected[1 << 20..(1 << 20) + (64 << 10)].fill(7);
    assert!(content(image.disk.as_ref()) == expected);
    assert!(!image.is_one_file);
    let others: Vec<PathBuf> = image.others.iter().map(|other| other.path.clone()).collect();
    let real = |name: &str| fs::canonicalize(folder.path(name)).unwrap();
    assert_eq!(others, [real("middle.qcow2"), real("base.raw")]);
    assert_eq!(image.others[1].metadata.len(), folder.raw().len() as u64);
    let base = open_any(&folder.path("base.raw")).unwrap();
    assert!(base.is_one_file && base.others.is_empty());
}

#[test]
fn a_loop_in_the_backing_chain_is_an_error_and_no_hang() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    let (one, two) = (folder.path("one.qcow2"), folder.path("two.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", text(&one), "1M"]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "one.qcow2", text(&two)]);
    qemu_img(&["rebase", "-u", "-F", "qcow2", "-b", "two.qcow2", text(&one)]);
    assert!(failure(&one).contains("it is a loop"), "{}", failure(&one));
    qemu_img(&["rebase", "-u", "-F", "qcow2", "-b", "one.qcow2", text(&one)]);
    assert!(failure(&one).contains("it is a loop"), "{}", failure(&one));
    // As a raw image, its bytes are plain data.
    assert!(open_at(&one, Some(ImageFormat::Raw), &[]).is_ok());
}

#[test]
fn an_image_does_not_lead_outside_its_directory_unless_allowed() {
    if !has_qemu_img() {
        return;
    }
    let (folder, other) = (ImageFolder::new(), ImageFolder::new());
    let image = folder.path("a.qcow2");
    let secret = other.path("base.raw");
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", text(&secret), text(&image)]);
    assert!(failure(&image).contains("outside"), "{}", failure(&image));
    let allowed = open_at(&image, None, &[other.0.path().to_owned()]).unwrap();
    assert!(content(allowed.disk.as_ref()) == other.raw());

    let descriptor = folder.path("a.vmdk");
    let extent = format!("RW 100 FLAT \"{}\" 0", text(&secret));
    let vmdk = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n{extent}\n"
    );
    fs::write(&descriptor, vmdk).unwrap();
    assert!(failure(&descriptor).contains("outside"), "{}", failure(&descriptor));
}

/// A descriptor of a VMDK disk of 100 sectors with one flat extent.
fn flat_vmdk(extent: &str) -> String {
    format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
         RW 100 FLAT \"{extent}\" 0\n"
    )
}

#[test]
fn extents_of_a_vmdk_follow_the_rules_of_backing_files() {
    if !has_qemu_img() {
        return;
    }
    let (folder, other) = (ImageFolder::new(), ImageFolder::new());
    let image = folder.path("a.vmdk");
    fs::create_dir(folder.path("below")).unwrap();
    fs::copy(folder.path("base.raw"), folder.path("below/base.raw")).unwrap();
    std::os::unix::fs::symlink("base.raw", folder.path("link")).unwrap();
    let secret = other.path("base.raw");
    for (extent, said) in [
        ("below/base.raw", "outside"),
        (text(&secret), "outside"),
        ("link", "symbolic link"),
        ("gone", "cannot find"),
        ("nbd:localhost:1", "protocol"),
        ("json:{}", "protocol"),
        ("file:base.raw", "protocol"),
    ] {
        fs::write(&image, flat_vmdk(extent)).unwrap();
        assert!(failure(&image).contains(said), "{extent}: {}", failure(&image));
    }
    fs::write(&image, flat_vmdk(text(&secret))).unwrap();
    let allowed = open_at(&image, None, &[other.0.path().to_owned()]).unwrap();
    assert!(content(allowed.disk.as_ref()) == other.raw()[..51200]);
    fs::write(&image, flat_vmdk("base.raw")).unwrap();
    assert!(content(open_any(&image).unwrap().disk.as_ref()) == folder.raw()[..51200]);
    fs::write(&image, flat_vmdk("base.raw").replace("RW", "RDONLY")).unwrap();
    assert!(failure(&image).contains("cannot be read: RDONLY 100"), "{}", failure(&image));
    fs::write(&image, "no descriptor").unwrap();
    assert!(open_at(&image, Some(ImageFormat::Vmdk), &[]).is_err());
}

/// Returns a sparse header without capacity, which makes `qemu-img` obey a descriptor in the same file.
fn vmdk_with_inner_descriptor(extent: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"KDMV");
    bytes[4] = 1;
    bytes[28] = 1;
    let descriptor = flat_vmdk(extent);
    bytes[512..512 + descriptor.len()].copy_from_slice(descriptor.as_bytes());
    bytes
}

#[test]
fn a_descriptor_inside_a_sparse_vmdk_is_not_obeyed() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    let inner = vmdk_with_inner_descriptor("base.raw");
    fs::write(folder.path("a.vmdk"), &inner).unwrap();
    let said = failure(&folder.path("a.vmdk"));
    assert!(said.contains("descriptor inside the file") && said.contains("a.vmdk"), "{said}");
    // The same, as an extent of another descriptor.
    let outer = flat_vmdk("a.vmdk")
        .replace("FLAT", "SPARSE")
        .replace(" 0\n", "\n")
        .replace("monolithicFlat", "twoGbMaxExtentSparse");
    fs::write(folder.path("b.vmdk"), outer).unwrap();
    let said = failure(&folder.path("b.vmdk"));
    assert!(said.contains("descriptor inside the file"), "{said}");
}

#[test]
fn a_vmdk_that_changes_after_it_was_checked_leads_nowhere() {
    if !has_qemu_img() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a file away");
        return;
    }
    let folder = ImageFolder::new();
    let (image, secret) = (folder.path("a.vmdk"), folder.path("secret"));
    fs::write(&secret, [b'S'; 51200]).unwrap();
    qemu_img(&["convert", "-f", "raw", "-O", "vmdk", text(&folder.path("base.raw")), text(&image)]);
    let sound = fs::read(&image).unwrap()[..4096].to_vec();
    let inner = vmdk_with_inner_descriptor(text(&secret));
    std::os::unix::fs::chown(&image, Some(65534), None).unwrap();
    let writer = File::options().write(true).open(&image).unwrap();
    // Both heads stay long enough for either program to see one and then the other.
    let again = RepeatedWork::default();
    std::thread::scope(|scope| {
        let _stop = again.stop_when_dropped();
        scope.spawn(|| {
            again.run(|| {
                for head in [&inner, &sound] {
                    writer.write_all_at(head, 0).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
            });
        });
        let mut opened = 0;
        for _ in 0..30 {
            if let Ok(image) = open_any(&image) {
                assert!(content(image.disk.as_ref())[..512] != [b'S'; 512], "the secret was read");
                opened += 1;
            }
        }
        assert!(opened > 0, "no conversion came to its end");
    });
}

#[test]
fn parents_of_a_vmdk_follow_the_rules_of_backing_files() {
    if !has_qemu_img() {
        return;
    }
    let (folder, other) = (ImageFolder::new(), ImageFolder::new());
    for folder in [&folder, &other] {
        qemu_img(&[
            "convert",
            "-f",
            "raw",
            "-O",
            "vmdk",
            text(&folder.path("base.raw")),
            text(&folder.path("base.vmdk")),
        ]);
    }
    let (middle, top) = (folder.path("middle.vmdk"), folder.path("top.vmdk"));
    qemu_img(&["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b", text(&folder.path("base.vmdk")), text(&middle)]);
    qemu_img(&["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b", text(&middle), text(&top)]);
    let raw = folder.raw();
    assert!(content(open_any(&top).unwrap().disk.as_ref())[..raw.len()] == raw);

    let astray = folder.path("astray.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b", text(&other.path("base.vmdk")), text(&astray)]);
    assert!(failure(&astray).contains("outside"), "{}", failure(&astray));
    let allowed = open_at(&astray, None, &[other.0.path().to_owned()]).unwrap();
    assert!(content(allowed.disk.as_ref())[..raw.len()] == other.raw());

    // The parent's name is in the descriptor inside the file.
    let renamed = |to: &str| {
        let mut bytes = fs::read(&top).unwrap();
        let key = b"parentFileNameHint=\"";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len();
        let end = at + bytes[at..].iter().position(|&byte| byte == b'"').unwrap();
        bytes[at..end].fill(b'/');
        bytes[end - to.len()..end].copy_from_slice(to.as_bytes());
        if to.contains(':') {
            bytes[at..end].fill(b'x');
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
        let path = folder.path("renamed.vmdk");
        fs::write(&path, bytes).unwrap();
        failure(&path)
    };
    assert!(renamed("/etc/passwd").contains("outside"), "{}", renamed("/etc/passwd"));
    assert!(renamed("nbd:x").contains("protocol"), "{}", renamed("nbd:x"));
}

#[test]
fn a_vhd_that_needs_its_parent_is_refused() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    let image = folder.path("a.vhd");
    qemu_img(&["convert", "-f", "raw", "-O", "vpc", text(&folder.path("base.raw")), text(&image)]);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&4_u32.to_be_bytes(), 60).unwrap();
    assert!(failure(&image).contains("differs from its parent"), "{}", failure(&image));
}

#[test]
fn a_disk_longer_than_any_file_of_a_pool_is_refused_before_it_is_copied() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    let image = folder.path("a.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", text(&image), "1T"]);
    assert_eq!(open_any(&image).unwrap().disk.size_bytes(), 1 << 40, "holes cost nothing");
    let large = folder.path("a.vhdx");
    qemu_img(&["create", "-q", "-f", "vhdx", text(&large), "20T"]);
    assert!(failure(&large).contains("file too large"), "{}", failure(&large));
}

#[test]
fn a_data_file_follows_the_rules_of_backing_files() {
    if !has_qemu_img() {
        return;
    }
    let (folder, other) = (ImageFolder::new(), ImageFolder::new());
    let image = folder.path("a.qcow2");
    let data = |name: &str| format!("data_file={name}");
    let inside = folder.path("data");
    qemu_img(&["convert", "-O", "qcow2", "-o", &data(text(&inside)), text(&folder.path("base.raw")), text(&image)]);
    assert!(content(open_any(&image).unwrap().disk.as_ref()) == folder.raw());
    fs::rename(&inside, folder.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &inside).unwrap();
    assert!(failure(&image).contains("symbolic link"), "{}", failure(&image));

    let outside = other.path("data");
    fs::remove_file(&image).unwrap();
    qemu_img(&["convert", "-O", "qcow2", "-o", &data(text(&outside)), text(&folder.path("base.raw")), text(&image)]);
    assert!(failure(&image).contains("outside"), "{}", failure(&image));
    let allowed = open_at(&image, None, &[other.0.path().to_owned()]).unwrap();
    assert!(content(allowed.disk.as_ref()) == folder.raw());
    assert!(!allowed.is_one_file);
}

#[test]
fn backing_files_below_the_folder_links_and_protocols_are_refused() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    fs::create_dir(folder.path(".ssh")).unwrap();
    fs::copy(folder.path("base.raw"), folder.path(".ssh/id_ed25519")).unwrap();
    std::os::unix::fs::symlink("base.raw", folder.path("link")).unwrap();
    fs::copy(folder.path("base.raw"), folder.path("file:base.raw")).unwrap();
    let image = folder.path("evil.qcow2");
    for (name, said) in [
        (".ssh/id_ed25519", "outside"),
        ("link", "symbolic link"),
        ("file:base.raw", "protocol"),
        ("nbd:localhost:10809", "protocol"),
        ("json:{\"driver\":\"raw\"}", "protocol"),
    ] {
        let _ = fs::remove_file(&image);
        qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", name, text(&image), "1M"]);
        assert!(failure(&image).contains(said), "{name}: {}", failure(&image));
        let followed = open_at(&image, None, &[folder.0.path().to_owned()]);
        assert_eq!(followed.is_ok(), name.starts_with('.'), "{name} below a folder that was named");
    }
}

#[test]
fn a_backing_file_of_another_format_is_refused_and_not_read_as_raw() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
    let image = folder.path("a.qcow2");
    qemu_img(&["create", "-q", "-f", "vmdk", text(&folder.path("base.vmdk")), "1M"]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "vmdk", "-b", "base.vmdk", text(&image)]);
    assert!(failure(&image).contains("the format vmdk"), "{}", failure(&image));
    // Without a stated format, reading it as raw would give another disk than the one QEMU shows.
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(4).position(|window| window == [0xe2, 0x79, 0x2a, 0xca]).unwrap();
    bytes[at..at + 4].copy_from_slice(b"none");
    fs::write(&image, bytes).unwrap();
    assert!(failure(&image).contains("the format vmdk"), "{}", failure(&image));
}

/// Regression: the image was opened once for its format and again for its content, and was replaced in between.
#[test]
fn an_image_that_is_replaced_after_opening_stays_the_one_that_was_opened() {
    let folder = ImageFolder::new();
    let file = ImageFile::named(&folder.path("base.raw")).unwrap();
    let raw = folder.raw();
    fs::rename(folder.path("base.raw"), folder.path("kept")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path("base.raw")).unwrap();
    let image = open(file, None, &[], &quiet).unwrap();
    assert!(content(image.disk.as_ref()) == raw);
}

#[test]
fn a_backing_file_that_is_missing_or_a_pipe_is_an_error() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
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
    let folder = ImageFolder::new();
    let path = folder.path("base.raw");
    let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
    let out = folder.path("out.qcow2");
    let file = File::options().read(true).write(true).create_new(true).open(&out).unwrap();
    let sink = Qcow2Sink::create(file, &out, disk.size_bytes()).unwrap();
    copy(&disk, &sink, &quiet).unwrap();
    sink.sync().unwrap();
    drop(sink);
    qemu_img(&["check", "-q", text(&out)]);
    qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2", text(&path), text(&out)]);
}

#[test]
fn a_raw_image_stays_sparse_and_equal() {
    let folder = ImageFolder::new();
    let image = open_any(&folder.path("base.raw")).unwrap();
    assert_eq!(image.format, ImageFormat::Raw);
    let out = folder.path("out.raw");
    let sink = FileSink::new(File::create(&out).unwrap(), &out, image.disk.size_bytes()).unwrap();
    let copied = copy(image.disk.as_ref(), &sink, &quiet).unwrap();
    assert!(fs::read(&out).unwrap() == folder.raw());
    assert!(copied.zero_bytes >= 2 << 20, "{copied:?}");
}

#[test]
fn a_qcow2_of_random_bytes_is_an_error_or_a_disk_but_never_a_panic() {
    if !has_qemu_img() {
        return;
    }
    let folder = ImageFolder::new();
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
        // The header and the tables behind it decide the outcome.
        let within = if round % 2 == 0 { 112 } else { 32 << 10 };
        for _ in 0..1 + random(4) {
            let at = random(within);
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        fs::write(&broken, &bytes).unwrap();
        let Ok(image) = open_at(&broken, Some(ImageFormat::Qcow2), &[]) else { continue };
        // A false size is not read to its end.
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

/// A hostile image names a file of another user. An image that is opened alone has no other file.
#[test]
fn an_image_that_is_opened_alone_tells_the_places_of_its_clusters() {
    if !has_qemu_img() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(path("raw"), &content).unwrap();
    let [raw, plain, packed, overlay] = ["raw", "plain", "packed", "overlay"].map(path);
    qemu_img(&["convert", "-O", "qcow2", text(&raw), text(&plain)]);
    qemu_img(&["convert", "-c", "-O", "qcow2", text(&raw), text(&packed)]);
    qemu_img(&["create", "-f", "qcow2", "-b", text(&raw), "-F", "raw", text(&overlay)]);
    let alone = |path: &Path| open_alone(File::open(path).unwrap(), path);
    let (disk, file) = (alone(&plain).unwrap(), fs::read(&plain).unwrap());
    for at in [0, 4096, 100_000, (1 << 20) - 512] {
        let place = usize::try_from(disk.in_file(at as u64).unwrap().offset.unwrap()).unwrap();
        assert_eq!(file[place..place + 512], content[at..at + 512], "{at}");
    }
    assert!(open_any(&plain).unwrap().is_one_file);
    let (disk, mut bytes) = (alone(&packed).unwrap(), [0; 512]);
    assert_eq!(disk.in_file(0).unwrap().offset, None);
    disk.read(4096, &mut bytes).unwrap();
    assert_eq!(bytes, content[4096..4608]);
    let refused = alone(&overlay).err().unwrap();
    assert!(refused.source().unwrap().to_string().contains("backing file"), "{refused}");
}

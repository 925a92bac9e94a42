//! VMDK images that `qemu-img` writes: the disk goes into a temporary raw file, and from there into the image.
//!
//! The image is an open file that may have no name yet. `qemu-img` takes the name under which it got the file for that
//! of the image's only extent, and writes it into the descriptor within the image. Afterwards the descriptor gets the
//! right name.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use super::child::QemuProcess;
use super::{ImageLabel, SECTOR_BYTES, follow};
use crate::copy::{CopyResult, copy};
use crate::disk::Disk;
use crate::error::{DiskError, ImageAction, ImageError};
use crate::format::ImageFormat;
use crate::image_file::descriptor_path;
use crate::progress::OnProgress;
use crate::temporary::{TemporaryFile, TemporarySink};

/// Place and length of the descriptor within an image that `qemu-img` makes, in bytes (VMware's "Virtual Disk Format
/// 5.0", sparse extents). The header states both in sectors.
const DESCRIPTOR_OFFSET: u64 = SECTOR_BYTES;
const DESCRIPTOR_BYTES: usize = 20 * 512;
/// Name of an extent whose file has a name that a descriptor cannot hold.
const UNFIT_NAME: &str = "disk.vmdk";

/// Writes all of `disk` into the empty `file` as a VMDK image in one sparse extent, and makes it durable. `path` is the
/// name that the file will have. The length is rounded up to sectors of 512 bytes.
///
/// # Errors
/// When the disk is empty or cannot be read, the folder for temporary files has too little room for its data,
/// `qemu-img` is missing or fails, or `progress` stops the work.
pub fn write_vmdk(
    disk: &dyn Disk,
    file: &File,
    path: &Path,
    progress: OnProgress<'_>,
) -> Result<CopyResult, DiskError> {
    let subject = ImageLabel { action: ImageAction::Write, format: ImageFormat::Vmdk, path };
    let length = disk.size_bytes().next_multiple_of(SECTOR_BYTES);
    if length == 0 {
        return Err(subject.cannot(ImageError::Empty));
    }
    let raw = TemporaryFile::create(length)?;
    let copied = copy(disk, &TemporarySink::new(&raw, path, length)?, progress)?;
    let source = format!("driver=raw,file.driver=file,file.filename={}", descriptor_path(&raw.file));
    let options = ["convert", "-p", "-S", "4k", "--image-opts", "-O", "vmdk", "-o", "subformat=monolithicSparse"];
    let arguments = [&options.map(str::to_owned)[..], &[source, descriptor_path(file)]].concat();
    // `qemu-img` opens the file anew, for which the permissions that it is to have may not suffice.
    let cannot = |error: io::Error| subject.cannot(error);
    let permissions = file.metadata().map_err(cannot)?.permissions();
    file.set_permissions(Permissions::from_mode(0o600)).map_err(cannot)?;
    let running = QemuProcess::start(&arguments, &[&raw.file, file]).map_err(|error| subject.cannot(error))?;
    follow(running, subject, length, None, progress)?;
    let named = name_extent(file, path).and_then(|()| file.set_permissions(permissions));
    named.and_then(|()| file.sync_all()).map_err(cannot)?;
    Ok(copied)
}

/// Writes the name of the image into its descriptor.
fn name_extent(file: &File, path: &Path) -> io::Result<()> {
    let mut bytes = vec![0; DESCRIPTOR_BYTES];
    file.read_exact_at(&mut bytes, DESCRIPTOR_OFFSET)?;
    let renamed = std::str::from_utf8(&bytes).ok().and_then(|text| with_extent_name(text, extent_name(path)));
    let mut renamed = renamed.ok_or_else(|| io::Error::other("its descriptor has an unknown form"))?.into_bytes();
    renamed.resize(DESCRIPTOR_BYTES, 0);
    file.write_all_at(&renamed, DESCRIPTOR_OFFSET)
}

/// Returns the name that the descriptor gives to the file.
fn extent_name(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|name| !name.contains(|c: char| c == '"' || c.is_control())).unwrap_or(UNFIT_NAME)
}

/// Returns a descriptor with one extent, padded with zeros, with another name of that extent. `None` if it has another
/// form, or would become too long.
fn with_extent_name(text: &str, name: &str) -> Option<String> {
    let text = text.trim_end_matches('\0');
    let is_extent = |line: &&str| line.starts_with("RW ") && line.contains(" SPARSE \"");
    let mut extents = text.lines().filter(is_extent);
    let (line, None) = (extents.next()?, extents.next()) else { return None };
    let (kind, _) = line.split_once('"')?;
    let renamed = text.replacen(line, &format!("{kind}\"{name}\""), 1);
    (renamed.len() <= DESCRIPTOR_BYTES && !text.contains('\0')).then_some(renamed)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    use onefold_block::random::Random;
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::raw::FileDisk;

    #[test]
    fn an_extent_gets_the_name_of_its_image() {
        let text = "version=1\nRW 614400 SPARSE \"4\"\n\n#DDB\nddb.adapterType = \"ide\"\n\0\0";
        let named = "version=1\nRW 614400 SPARSE \"web 1.vmdk\"\n\n#DDB\nddb.adapterType = \"ide\"\n";
        assert_eq!(with_extent_name(text, "web 1.vmdk").as_deref(), Some(named));
        assert_eq!(with_extent_name("version=1\n", "a.vmdk"), None);
        assert_eq!(with_extent_name("RW 1 SPARSE \"a\"\nRW 1 SPARSE \"b\"\n", "a.vmdk"), None);
        assert_eq!(with_extent_name(text, &"a".repeat(DESCRIPTOR_BYTES)), None);
        for (path, name) in [("/a/web.vmdk", "web.vmdk"), ("a\"b.vmdk", UNFIT_NAME), ("a\nb.vmdk", UNFIT_NAME)] {
            assert_eq!(extent_name(Path::new(path)), name);
        }
    }

    /// `qemu-img`, which others trust to read VMDK, finds the same disk in the image.
    #[test]
    fn the_disk_of_a_written_image_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let [raw, vmdk] = ["disk.raw", "disk.vmdk"].map(|name| folder.path().join(name));
        let mut noise = vec![0; 300_000];
        SeededRandom::new(5).fill(&mut noise).unwrap();
        let source = File::create_new(&raw).unwrap();
        // Its length is none of whole sectors.
        source.set_len(40_000_001).unwrap();
        source.write_all_at(&noise, 12_345_678).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o400).open(&vmdk).unwrap();
        let disk = FileDisk::new(File::open(&raw).unwrap(), &raw).unwrap();
        let written = write_vmdk(&disk, &file, &vmdk, &|_| ControlFlow::Continue(()));
        if let Err(DiskError::Image { source: ImageError::NotStarted(error), .. }) = &written {
            return eprintln!("SKIPPED: {error}");
        }
        assert!(written.unwrap().written_bytes >= 300_000);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o400);
        source.set_len(40_000_001_u64.next_multiple_of(SECTOR_BYTES)).unwrap();
        let mut compare = Command::new("qemu-img");
        let compared = compare.args(["compare", "-f", "raw", "-F", "vmdk"]).args([&raw, &vmdk]).output().unwrap();
        assert!(compared.status.success(), "{compared:?}");
        let information = Command::new("qemu-img").arg("info").arg(&vmdk).output().unwrap();
        let information = String::from_utf8(information.stdout).unwrap();
        assert!(information.contains("filename:") && information.contains("monolithicSparse"), "{information}");
        let mut head = vec![0; 4096];
        file.read_exact_at(&mut head, 0).unwrap();
        assert!(String::from_utf8_lossy(&head).contains(" SPARSE \"disk.vmdk\"\n"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path().join("disk.raw");
        File::create_new(&raw).unwrap().set_len(1 << 20).unwrap();
        let disk = FileDisk::new(File::open(&raw).unwrap(), &raw).unwrap();
        // A directory is no file that `qemu-img` can fill.
        let failed = write_vmdk(&disk, &File::open(folder.path()).unwrap(), &raw, &|_| ControlFlow::Continue(()));
        let error = failed.unwrap_err();
        assert!(matches!(error, DiskError::Image { action: ImageAction::Write, .. }), "{error}");
    }

    #[test]
    fn an_empty_disk_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path().join("disk.raw");
        let disk = FileDisk::new(File::create_new(&raw).and_then(|_| File::open(&raw)).unwrap(), &raw).unwrap();
        let refused = write_vmdk(&disk, &tempfile::tempfile().unwrap(), &raw, &|_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(DiskError::Image { source: ImageError::Empty, .. })), "{refused:?}");
    }
}

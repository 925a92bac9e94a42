//! The layers of an image in the form that `qemu-img` gets: open files, each with the driver that reads it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};

use super::ImageLabel;
use super::info::LayerDescription;
use crate::chain::ImageChain;
use crate::copy::copy;
use crate::disk::Disk;
use crate::error::{DiskError, FileAction, ImageError};
use crate::folders::ImageMember;
use crate::format::ImageFormat;
use crate::image_file::{ImageFile, descriptor_path};
use crate::progress::OnProgress;
use crate::raw::FileDisk;
use crate::temporary::{TemporaryFile, TemporarySink};
use crate::vmdk::{Descriptor, VmdkHead};

/// One layer of an image, in the form that `qemu-img` gets.
#[derive(Debug)]
pub(super) struct Layer {
    driver: &'static str,
    /// Its file, followed by the extents that the file's descriptor names.
    pub(super) files: Vec<File>,
    is_device: bool,
}

impl Layer {
    fn of_file(driver: &'static str, file: ImageFile) -> Layer {
        let is_device = file.metadata().file_type().is_block_device();
        Layer { driver, files: vec![file.file], is_device }
    }

    /// Returns the layer's node, on top of the node `backing`.
    fn node(&self, backing: &Value) -> Value {
        let driver = if self.is_device { "host_device" } else { "file" };
        let file = json!({ "driver": driver, "filename": descriptor_path(&self.files[0]) });
        json!({ "driver": self.driver, "read-only": true, "file": file, "backing": backing })
    }
}

/// Returns the nodes of a chain whose first layer is the image itself.
pub(super) fn tree(layers: &[Layer]) -> Value {
    layers.iter().rev().fold(Value::Null, |below, layer| layer.node(&below))
}

/// Opens all layers of an image, and returns them with the length of the disk in bytes.
pub(super) fn open_layers(
    image: ImageFile,
    subject: ImageLabel<'_>,
    chain: &mut ImageChain,
    progress: OnProgress<'_>,
) -> Result<(Vec<Layer>, u64), DiskError> {
    let mut next = ImageMember { folder: chain.image_folder(), file: image };
    let mut layers = Vec::new();
    let mut size_bytes = None;
    loop {
        let ImageMember { file, folder } = next;
        let (layer, named) = match subject.format {
            ImageFormat::Vmdk => open_vmdk(file, &folder, chain, subject, progress)?,
            format => (open_single(file, format).map_err(|why| subject.cannot(why))?, None),
        };
        let node = format!("json:{}", layer.node(&Value::Null));
        let info = LayerDescription::of(&node, &layer.files).map_err(|why| subject.cannot(why))?;
        layers.push(layer);
        size_bytes.get_or_insert(info.virtual_size);
        let Some(parent) = named.or(info.backing_filename) else { break };
        if subject.format != ImageFormat::Vmdk {
            return Err(subject.cannot(ImageError::Differencing { parent }));
        }
        next = chain.follow(&parent, &folder).map_err(|why| subject.cannot(why))?;
    }
    Ok((layers, size_bytes.unwrap_or(0)))
}

/// Returns the layer of a file whose format never makes `qemu-img` open another file.
fn open_single(file: ImageFile, format: ImageFormat) -> Result<Layer, ImageError> {
    let mut footer = [0; 64];
    // `qemu-img` refuses a shorter file.
    if format == ImageFormat::Vpc && file.file.read_exact_at(&mut footer, 0).is_ok() {
        let is_differencing = footer.starts_with(b"conectix") && footer[60..64] == 4_u32.to_be_bytes();
        if is_differencing {
            return Err(ImageError::Differencing { parent: "another VHD".to_owned() });
        }
    }
    Ok(Layer::of_file(format.name(), file))
}

/// Returns the layer of a VMDK file with its extents, and the name of its parent if its separate descriptor has one.
fn open_vmdk(
    file: ImageFile,
    folder: &Path,
    chain: &mut ImageChain,
    subject: ImageLabel<'_>,
    progress: OnProgress<'_>,
) -> Result<(Layer, Option<String>), DiskError> {
    let head = VmdkHead::read(&file.file).map_err(|error| subject.cannot(error))?;
    if head != VmdkHead::Other {
        return Ok((Layer::of_file("vmdk", checked_vmdk(file, &[VmdkHead::Sparse], subject, progress)?), None));
    }
    let descriptor = Descriptor::read(&file.file).map_err(|error| subject.cannot(error))?;
    let descriptor = descriptor.map_err(|why| subject.cannot(why))?;
    let mut extents = Vec::new();
    for extent in &descriptor.extents {
        let opened = chain.open(&extent.name, folder).map_err(|why| subject.cannot(why))?.file;
        // For an extent, `qemu-img` reads only the header that the extent's kind implies.
        let file = match extent.has_header() {
            true => checked_vmdk(opened, &[VmdkHead::Sparse, VmdkHead::Other], subject, progress)?,
            false => opened,
        };
        extents.push(file.file);
    }
    let paths: Vec<String> = extents.iter().map(descriptor_path).collect();
    let stand_in = || -> io::Result<File> {
        let mut file = File::from(memfd_create("onefold-vmdk", MemfdFlags::CLOEXEC)?);
        file.write_all(descriptor.stand_in(&paths).as_bytes())?;
        Ok(file)
    };
    let mut files = vec![stand_in().map_err(|error| subject.cannot(error))?];
    files.append(&mut extents);
    Ok((Layer { driver: "vmdk", files, is_device: false }, descriptor.parent))
}

/// Returns a VMDK file that begins with one of `heads`, and makes sure that it stays so.
fn checked_vmdk(
    file: ImageFile,
    heads: &[VmdkHead],
    subject: ImageLabel<'_>,
    progress: OnProgress<'_>,
) -> Result<ImageFile, DiskError> {
    let file = if file.others_may_write() { copied(file, progress)? } else { file };
    let head = VmdkHead::read(&file.file).map_err(|error| subject.cannot(error))?;
    if heads.contains(&head) {
        return Ok(file);
    }
    Err(subject.cannot(match head {
        VmdkHead::Inner => ImageError::InnerDescriptor(file.path),
        VmdkHead::Sparse | VmdkHead::Other => ImageError::Changed(file.path),
    }))
}

/// Returns a private copy of a file.
fn copied(file: ImageFile, progress: OnProgress<'_>) -> Result<ImageFile, DiskError> {
    let disk = FileDisk::new(file.file, &file.path)?;
    let copied = TemporaryFile::create(disk.size_bytes())?;
    copy(&disk, &TemporarySink::new(&copied, &file.path, disk.size_bytes())?, progress)?;
    ImageFile::of_open(copied.file, &file.path).map_err(|source| DiskError::File {
        action: FileAction::ReadCopy,
        path: file.path,
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

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

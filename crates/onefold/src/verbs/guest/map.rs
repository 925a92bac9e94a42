//! `onefold guest map`

use std::fmt::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use onefold_block::Show;
use onefold_disk::{Disk, DiskError};
use onefold_guest::filesystem::{Extent, ExtentKind, FileKind, FileStat, Timestamp, VerityDigest};
use onefold_guest::tree::{Links, ResolvedFile};
use onefold_guest::volume::{DiskRange, VolumeReader};
use serde_json::{Value, json};

use super::describe::{extent_kind_name, file_members, kind_name, origin};
use super::scene::Scene;
use super::streaming;
use crate::calendar;
use crate::cli::Talk;
use crate::cli::guest::GuestMapArgs;
use crate::failure::Outcome;
use crate::output::{Report, TextTable};

/// Maximum number of extents that are reported. A file with more was made to have them.
const EXTENTS_MAX: usize = 1 << 20;

pub(super) fn run(arguments: &GuestMapArgs, talk: Talk) -> Outcome<Report> {
    streaming::with_scene(&arguments.image, talk, |scene, ending| {
        let path = arguments.path.as_bytes();
        let found = scene.find(path, Links::Follow).or_else(|failure| streaming::failed(scene, ending, failure))?;
        let map = FileMap::read(scene, &found);
        if let Some(error) = &map.error {
            ending.failed_path(path, error);
        }
        if map.is_cut {
            ending
                .warn(format!("`{}` has more than {EXTENTS_MAX} extents; only the first ones are shown", path.shown()));
        }
        let volume = scene.volume(found.file.system).map_or_else(String::new, |volume| origin(&volume.volume.origin));
        let verity = scene.tree.system(found.file.system).verity(found.file.file).unwrap_or_else(|error| {
            ending.failed_path(path, &error);
            None
        });
        scene.look_at(ending);
        let mut json = file_members(&found.path, &found.stat, None);
        if let Some(digest) = &verity {
            json.insert("verity".to_owned(), digest.to_string().into());
        }
        json.insert("number".to_owned(), found.file.file.0.into());
        json.insert("volume".to_owned(), volume.as_str().into());
        json.insert("extents".to_owned(), map.parts.iter().map(FilePart::json).collect());
        json.extend(ending.tell());
        Ok(Report { text: map.text(&found, verity.as_ref(), &volume), json: Value::Object(json), exit: ending.exit() })
    })
}

/// The places of a file.
struct FileMap {
    block_bytes: u64,
    extents: Vec<Extent>,
    parts: Vec<FilePart>,
    error: Option<onefold_guest::error::GuestError>,
    is_cut: bool,
}

/// A part of a file that is contiguous on the disk.
struct FilePart {
    offset: u64,
    range: DiskRange,
    kind: ExtentKind,
    /// Its offset in the image file, if it is stored there unchanged.
    in_file: Option<u64>,
}

impl FilePart {
    fn json(&self) -> Value {
        json!({
            "offset": self.offset,
            "length_bytes": self.range.length_bytes,
            "place": self.range.start_bytes,
            "kind": extent_kind_name(self.kind),
            "in_file": self.in_file,
        })
    }
}

impl FileMap {
    fn read(scene: &Scene<'_, '_>, found: &ResolvedFile) -> FileMap {
        let system = scene.tree.system(found.file.system);
        let volume = scene.volume(found.file.system);
        let block_bytes = system.facts().block_bytes.max(1);
        let mut map = FileMap { block_bytes, extents: Vec::new(), parts: Vec::new(), error: None, is_cut: false };
        let mut failed = None;
        let outcome = system.each_extent(found.file.file, &mut |extent| {
            // Extents beyond the end of the volume have no parts.
            if map.extents.len() >= EXTENTS_MAX || map.parts.len() >= EXTENTS_MAX {
                map.is_cut = true;
                return ControlFlow::Break(());
            }
            match map.add(extent, volume.map(|volume| &volume.reader), scene.guest.disk()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error.into());
                    ControlFlow::Break(())
                }
            }
        });
        map.error = outcome.err().or(failed);
        map
    }

    fn add(&mut self, extent: Extent, reader: Option<&VolumeReader<'_>>, disk: &dyn Disk) -> Result<(), DiskError> {
        self.extents.push(extent);
        let Some(reader) = reader else { return Ok(()) };
        let mut ranges = Vec::new();
        reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| ranges.push(range));
        let mut offset = extent.offset;
        for mut rest in ranges {
            while rest.length_bytes > 0 && self.parts.len() < EXTENTS_MAX {
                let in_file = disk.in_file(rest.start_bytes)?;
                let length_bytes = if in_file.length_bytes == 0 { rest.length_bytes } else { in_file.length_bytes };
                let range = DiskRange { length_bytes: length_bytes.min(rest.length_bytes), ..rest };
                self.parts.push(FilePart { offset, range, kind: extent.kind, in_file: in_file.offset });
                offset = offset.saturating_add(range.length_bytes);
                rest.start_bytes += range.length_bytes;
                rest.length_bytes -= range.length_bytes;
            }
        }
        Ok(())
    }

    /// Returns the map in the form of `debugfs -R stat`, followed by the places on the disk in bytes.
    fn text(&self, found: &ResolvedFile, verity: Option<&VerityDigest>, volume: &str) -> String {
        let mut text = head(found);
        if let Some(digest) = verity {
            text.push_str(&format!("\nVerity: {digest}"));
        }
        let blocks: Vec<String> = self
            .extents
            .iter()
            .filter(|extent| extent.kind != ExtentKind::Inline)
            .map(|extent| self.blocks(extent))
            .collect();
        let total: u64 = self.extents.iter().map(|extent| extent.length_bytes / self.block_bytes).sum();
        // Writing into a string does not fail.
        let _ = write!(text, "\nBLOCKS:\n{}\nTOTAL: {total}\n", blocks.join(", "));
        let _ = write!(text, "\nin bytes, in {volume}:\n{}", self.table());
        text
    }

    /// Returns an extent in the form of debugfs: `(0-11):854508-854519`, with `[u]` for an unwritten one.
    fn blocks(&self, extent: &Extent) -> String {
        let span = |first: u64| {
            let (first, count) = (first / self.block_bytes, extent.length_bytes.div_ceil(self.block_bytes));
            match count {
                0 | 1 => first.to_string(),
                _ => format!("{first}-{}", first.saturating_add(count - 1)),
            }
        };
        let unwritten = if extent.kind == ExtentKind::Unwritten { "[u]" } else { "" };
        format!("({}{unwritten}):{}", span(extent.offset), span(extent.place))
    }

    fn table(&self) -> TextTable {
        let mut table = TextTable::new(["kind", "in the file", "on the disk", "in the image", "length"]);
        for part in &self.parts {
            let DiskRange { start_bytes, length_bytes } = part.range;
            let in_file = part.in_file.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
            let [offset, place, length] = [part.offset, start_bytes, length_bytes].map(|number| number.to_string());
            table.row([extent_kind_name(part.kind).to_owned(), offset, place, in_file, length]);
        }
        table
    }
}

/// Returns the first lines of `debugfs -R stat`.
fn head(found: &ResolvedFile) -> String {
    let FileStat { kind, mode, generation, user, group, size_bytes, links, allocated_bytes, .. } = &found.stat;
    let kind = if *kind == FileKind::Regular { "regular" } else { kind_name(*kind) };
    let mut text = format!(
        "Inode: {}   Type: {kind}   Mode: {:04o}   Generation: {generation}\n\
         User: {user}   Group: {group}   Size: {size_bytes}\n\
         Links: {links}   Blockcount: {}",
        found.file.file.0,
        mode & 0o7777,
        allocated_bytes / 512,
    );
    let times = [
        ("ctime", Some(found.stat.changed)),
        ("atime", Some(found.stat.accessed)),
        ("mtime", Some(found.stat.modified)),
    ];
    for (name, time) in times.into_iter().chain([("crtime", found.stat.created)]) {
        if let Some(Timestamp { seconds, .. }) = time {
            let _ = write!(text, "\n{name:>6}: {seconds:#010x} -- {}", calendar::iso(seconds));
        }
    }
    text
}

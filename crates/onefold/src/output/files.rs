//! Tables of what the blocks of images belong to, for people; facts that a user can act on come first.

use std::cmp::Reverse;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_report::{
    BlockPlace, FilesAnalysis, GroupName, GroupShare, ImageFiles, MisalignedBytes, PackageVersions, PartShare,
    ShareBytes,
};

use super::TextTable;
use crate::size::{grouped, human};

/// Maximum number of rows in a table of packages and folders.
const PARTS_MAX: usize = 10;
/// Maximum number of packages in several versions, of images, and of blocks that are named.
const NAMED_MAX: usize = 5;

/// Returns the findings for people.
pub(super) fn text(found: &FilesAnalysis) -> String {
    let mut parts = Vec::new();
    parts.extend(stale(found));
    parts.extend(misaligned(&found.misaligned));
    let shared = |share: &ShareBytes| share.shared_with_others_bytes;
    parts.extend(largest(found, "most shared with other images", shared));
    parts.extend(largest(found, "most found in one image only", |share| share.only_here_bytes));
    parts.extend(largest(found, "most repeated within an image", |share| share.repeated_within_bytes));
    parts.push(groups(found));
    parts.push(classes(&found.images));
    parts.extend(versions(&found.versions));
    parts.extend(top_blocks(found));
    parts.extend(doubts(&found.images));
    parts.join("\n\n")
}

/// Returns the group of this name.
fn group(groups: &[GroupShare], name: GroupName) -> Option<&GroupShare> {
    groups.iter().find(|group| group.name == name)
}

fn stale(found: &FilesAnalysis) -> Option<String> {
    let stale = group(&found.total.groups, GroupName::Stale)?;
    let part = |part: &PartShare| format!("{} in {}", human(part.share.bytes), part.name.shown());
    let parts: Vec<String> = stale.parts.iter().map(part).collect();
    let bytes_of = |image: &ImageFiles| image.bytes.classes.stale_bytes;
    let mut images: Vec<&ImageFiles> = found.images.iter().filter(|image| bytes_of(image) > 0).collect();
    images.sort_by_key(|image| Reverse(bytes_of(image)));
    let image = |image: &&ImageFiles| format!("{} ({})", image.name.shown(), human(bytes_of(image)));
    let named: Vec<String> = images.iter().take(NAMED_MAX).map(image).collect();
    let more = if images.len() > NAMED_MAX { ", and others" } else { "" };
    Some(format!(
        "stale: {} are free and not zero ({}); trimming in the guest would save them\n  most of it in {}{more}",
        human(stale.share.bytes),
        parts.join(", "),
        named.join(", ")
    ))
}

fn misaligned(causes: &[MisalignedBytes]) -> Option<String> {
    let line = |cause: &MisalignedBytes| {
        let gain = cause.gained_bytes.map_or_else(String::new, |gained| match gained {
            0 => "; moving it to a whole block would save nothing more".to_owned(),
            gained => format!("; moving it to a whole block would save {}", human(gained)),
        });
        format!("misaligned: {}: {}{gain}", human(cause.bytes), cause.cause.title())
    };
    (!causes.is_empty()).then(|| causes.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Returns the cells of a share: all, shared, only here, repeated.
fn cells(share: &ShareBytes) -> [String; 4] {
    [share.bytes, share.shared_with_others_bytes, share.only_here_bytes, share.repeated_within_bytes].map(human)
}

/// Returns the packages, folders and kinds with the most bytes by `by`.
fn largest(found: &FilesAnalysis, heading: &str, by: fn(&ShareBytes) -> u64) -> Option<String> {
    let mut parts: Vec<(GroupName, &PartShare)> = Vec::new();
    for group in &found.total.groups {
        parts.extend(group.parts.iter().map(|part| (group.name, part)));
    }
    parts.retain(|(_, part)| by(&part.share) > 0);
    if parts.is_empty() {
        return None;
    }
    parts.sort_by_key(|(_, part)| Reverse(by(&part.share)));
    let mut table = TextTable::new([heading, "all", "shared", "only here", "repeated"]);
    for (name, part) in parts.into_iter().take(PARTS_MAX) {
        let [all, shared, only_here, repeated] = cells(&part.share);
        table.row([part_name(name, &part.name), all, shared, only_here, repeated]);
    }
    Some(table.to_string())
}

/// Returns the name of a part, with its group if it is ambiguous.
fn part_name(group: GroupName, part: &str) -> String {
    match group {
        GroupName::Packages => part.shown().to_string(),
        GroupName::Files if part.starts_with('/') => format!("{} (no package)", part.shown()),
        group => format!("{}: {}", group.title(), part.shown()),
    }
}

fn groups(found: &FilesAnalysis) -> String {
    let mut table = TextTable::new(["what the bytes are", "all", "shared", "only here", "repeated"]);
    for group in &found.total.groups {
        let [all, shared, only_here, repeated] = cells(&group.share);
        table.row([group.name.title().to_owned(), all, shared, only_here, repeated]);
    }
    format!(
        "{table}\nshared: contents that other images have; only here: contents of one image; repeated: within an image; a block \
         of\n4 KiB counts for the first of its uses that is not free"
    )
}

fn classes(images: &[ImageFiles]) -> String {
    let mut table = TextTable::new(["image", "file data", "metadata", "swap", "gaps", "stale", "zero", "not read"]);
    for image in images {
        let classes = &image.bytes.classes;
        table.row([
            image.name.shown().to_string(),
            human(classes.file_data_bytes),
            human(classes.metadata_bytes),
            human(classes.swap_bytes),
            human(classes.gap_bytes),
            human(classes.stale_bytes),
            human(classes.zero_bytes),
            human(classes.not_read_bytes),
        ]);
    }
    table.to_string()
}

fn versions(packages: &[PackageVersions]) -> Option<String> {
    if packages.is_empty() {
        return None;
    }
    let line = |package: &PackageVersions| {
        let version = |version: &onefold_report::PackageVersion| {
            format!("{} in {}", version.version.as_str().shown(), grouped(version.images.len() as u64))
        };
        let versions: Vec<String> = package.versions.iter().take(NAMED_MAX).map(version).collect();
        let more = if package.versions.len() > NAMED_MAX { ", and others" } else { "" };
        format!("\n  {}: {}{more}", package.name.as_str().shown(), versions.join(", "))
    };
    let mut most: Vec<&PackageVersions> = packages.iter().collect();
    most.sort_by_key(|package| Reverse(package.versions.len()));
    let lines: String = most.into_iter().take(NAMED_MAX).map(line).collect();
    Some(format!("packages in several versions, with the number of images: {}{lines}", grouped(packages.len() as u64)))
}

fn top_blocks(found: &FilesAnalysis) -> Option<String> {
    let line = |block: &onefold_report::TopBlockFiles| {
        let first = block.places.first()?;
        Some(format!("\n  {} times, first in {}", grouped(block.times), place(first)))
    };
    let lines: String = found.top_blocks.iter().take(NAMED_MAX).filter_map(line).collect();
    (!lines.is_empty()).then(|| format!("most repeated blocks:{lines}"))
}

fn place(place: &BlockPlace) -> String {
    let part = place.parts.first().map_or_else(|| place.group.title().to_owned(), |part| part_name(place.group, part));
    let path = place.path.as_ref().map_or_else(String::new, |path| format!(", `{}`", path.shown()));
    format!("{}, byte {}: {part}{path}", place.image.shown(), grouped(place.offset_bytes))
}

fn doubts(images: &[ImageFiles]) -> Option<String> {
    let mut lines = Vec::new();
    for image in images {
        if image.is_in_use {
            lines.push(format!("warning: {} is in use: the owners of its blocks may have changed", image.name.shown()));
        }
        let doubt = |doubt: &String| format!("warning: {}: {}", image.name.shown(), ShownText::line(doubt));
        lines.extend(image.doubts.iter().map(doubt));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

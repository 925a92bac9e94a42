//! The clusters of every file, against `ntfscluster`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{ExtentKind, FileKind, FileSystem};
use onefold_guest::ntfs::Ntfs;

use super::tree;
use crate::fixtures::Images;

/// Clusters that lie one after the other: the first one in the file, the first one in the volume, their number.
type ClusterRun = (u64, u64, u64);

/// Adds a run, to the last one where it continues that.
fn push(runs: &mut Vec<ClusterRun>, (first, cluster, count): ClusterRun) {
    match runs.last_mut() {
        Some(last) if last.0 + last.2 == first && last.1 + last.2 == cluster => last.2 += count,
        _ => runs.push((first, cluster, count)),
    }
}

/// Returns the runs of main streams that `ntfscluster` printed, by the number of the file.
fn printed_runs(printed: &str) -> BTreeMap<u64, Vec<ClusterRun>> {
    let mut files: BTreeMap<u64, Vec<ClusterRun>> = BTreeMap::new();
    let (mut file, mut is_data) = (0, false);
    for line in printed.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["file", number] => file = number.parse().unwrap(),
            [kind, "-", _] => is_data = *kind == "0x80",
            [first, cluster, count] if is_data => {
                if let [Ok(first), Ok(cluster), Ok(count)] = [first, cluster, count].map(|number| number.parse()) {
                    push(files.entry(file).or_default(), (first, cluster, count));
                }
            }
            _ => {}
        }
    }
    files
}

/// Maximum number of files for which a program of its own is started.
const FILES_MAX: usize = 1000;

/// Checks that the extents of every file are its runs: by `ntfscluster` for the first files, all by their lengths.
pub(super) fn assert_runs(ntfs: &Ntfs<'_>, images: &Images) {
    let block_bytes = ntfs.facts().block_bytes;
    let mut found: BTreeMap<u64, Vec<ClusterRun>> = BTreeMap::new();
    for (file, stat) in tree(ntfs).into_values().filter(|(_, stat)| stat.kind == FileKind::Regular) {
        ntfs.each_extent(file, &mut |extent| {
            if extent.kind != ExtentKind::Inline {
                let run = [extent.offset, extent.place, extent.length_bytes].map(|bytes| bytes / block_bytes);
                push(found.entry(file.0).or_default(), run.into());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(stat.allocated_bytes == found.get(&file.0).map_or(0, |runs| stored(runs) * block_bytes), "{file:?}");
    }
    let numbers = found.keys().map(u64::to_string).take(FILES_MAX).collect::<Vec<_>>();
    let script = "for file; do echo \"file $file\"; ntfscluster -q -f -I \"$file\" image; done";
    let printed = printed_runs(&images.script(script, &numbers));
    assert!(!printed.is_empty());
    for (file, runs) in found.iter().take(FILES_MAX) {
        assert!(printed.get(file) == Some(runs), "{file}: {runs:?}, and not {:?}", printed.get(file));
    }
}

/// Returns the number of clusters in runs.
fn stored(runs: &[ClusterRun]) -> u64 {
    runs.iter().map(|run| run.2).sum()
}

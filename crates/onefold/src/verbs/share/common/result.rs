//! The final reports of the verbs for common volumes.

use std::collections::BTreeMap;
use std::path::Path;

use onefold_block::Show;
use onefold_share::files::common::{ChangeCounts, Contents};
use serde_json::{Value, json};

use crate::output::{TextTable, machine_name};
use crate::size::human;

/// The packages in a volume.
pub(super) struct PackageListing {
    packages: BTreeMap<String, PackageSums>,
    contents: u64,
    bytes: u64,
}

/// The contents of a package in a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PackageSums {
    names: u64,
    bytes: u64,
    /// Number of names of content that a user added.
    added: u64,
}

impl PackageListing {
    pub(super) fn of(contents: &Contents) -> PackageListing {
        let mut packages = BTreeMap::<String, PackageSums>::new();
        let mut bytes: u64 = 0;
        for ((_, length), content) in contents.iter() {
            bytes = bytes.saturating_add(*length);
            for path in &content.paths {
                let sums = packages.entry(path.split('/').nth(2).unwrap_or_default().to_owned()).or_default();
                sums.names += 1;
                sums.added += u64::from(content.is_added);
                sums.bytes = sums.bytes.saturating_add(*length);
            }
        }
        PackageListing { packages, contents: contents.len() as u64, bytes }
    }

    pub(super) fn text(&self, volume: &Path) -> String {
        let mut table = TextTable::new(["package", "files", "bytes", "by"]);
        for (package, PackageSums { names, bytes, added }) in &self.packages {
            let by = match added {
                0 => "found on two disks",
                _ => "added by a user",
            };
            table.row([package.clone(), names.to_string(), human(*bytes), by.to_owned()]);
        }
        let sums = format!("{} in {} contents of `{}`", human(self.bytes), self.contents, volume.shown());
        if self.packages.is_empty() {
            format!("nothing is in `{}`", volume.shown())
        } else {
            format!("{table}\n{sums}")
        }
    }

    pub(super) fn json(&self, root: &Path, volume: &Path) -> Value {
        json!({
            "root": machine_name(root),
            "path": machine_name(volume),
            "contents": self.contents,
            "bytes": self.bytes,
            "packages": self.packages.iter().map(|(package, sums)| json!({
                "package": package,
                "files": sums.names,
                "bytes": sums.bytes,
                "added_files": sums.added,
            })).collect::<Vec<_>>(),
        })
    }
}

/// Returns the result of a change, for machines.
pub(super) fn changed_json(root: &Path, volume: &Path, changed: &ChangeCounts) -> Value {
    let ChangeCounts { added, added_bytes, linked, differed, refused, removed } = changed;
    json!({
        "root": machine_name(root),
        "path": machine_name(volume),
        "added": added,
        "added_bytes": added_bytes,
        "linked": linked,
        "differed": differed,
        "refused": refused,
        "removed": removed,
    })
}

//! The systems installed on a disk.

use std::fmt::Write;

use onefold_block::Show;
use onefold_guest::guest::Guest;
use onefold_guest::machine::{Kernel, Machine, MachineKind, machines};
use serde_json::{Value, json};

use crate::verbs::guest::describe::{hex, path_members};
use crate::verbs::guest::ending::Ending;
use crate::verbs::guest::scene::ReadableVolumes;

/// The report about the systems.
pub(super) struct Systems(Vec<SystemReport>);

struct SystemReport {
    kind: &'static str,
    name: Option<String>,
    host_name: Option<Vec<u8>>,
    architecture: Option<&'static str>,
    kernels: Vec<Vec<u8>>,
    /// The mount point of each volume, and its name.
    mounts: Vec<(Vec<u8>, String)>,
    missing: Vec<(Vec<u8>, Vec<u8>)>,
    problems: Vec<String>,
}

impl Systems {
    /// Finds the systems, and reports their unreadable parts.
    pub(super) fn of(guest: &Guest<'_>, ending: &mut Ending) -> Systems {
        let readable = ReadableVolumes::of(guest);
        let machines = machines(&readable.volumes);
        machines.iter().for_each(|machine| ending.problems(&machine.problems));
        Systems(machines.iter().map(|machine| SystemReport::of(machine, &readable)).collect())
    }

    /// Adds the lines about all systems.
    pub(super) fn text(&self, text: &mut String) {
        self.0.iter().for_each(|system| system.text(text));
    }

    pub(super) fn json(&self) -> Vec<Value> {
        self.0.iter().map(SystemReport::json).collect()
    }
}

impl SystemReport {
    fn of(machine: &Machine<'_>, readable: &ReadableVolumes<'_>) -> SystemReport {
        let release = machine.release.as_ref();
        SystemReport {
            kind: match machine.kind {
                MachineKind::Linux => "Linux",
                MachineKind::Windows => "Windows",
            },
            name: release.map(|release| release.pretty_name.clone()).filter(|name| !name.is_empty()),
            host_name: machine.host_name.clone(),
            architecture: machine.architecture.map(|architecture| architecture.name()),
            kernels: machine.kernels.iter().map(|kernel: &Kernel| kernel.version.clone()).collect(),
            mounts: machine.mounts.iter().map(|mount| (mount.path.clone(), readable.name(mount.volume))).collect(),
            missing: machine
                .missing
                .iter()
                .map(|missing| (missing.entry.path.clone(), missing.entry.source_text.clone()))
                .collect(),
            problems: machine.problems.first().iter().map(ToString::to_string).collect(),
        }
    }

    fn text(&self, text: &mut String) {
        // Writing into a string does not fail.
        let name = self.name.as_deref().unwrap_or(self.kind);
        let _ = write!(text, "  system: {}", name.shown());
        if let Some(architecture) = self.architecture {
            let _ = write!(text, ", {architecture}");
        }
        if let Some(host_name) = &self.host_name {
            let _ = write!(text, ", host name `{}`", host_name.shown());
        }
        text.push('\n');
        if !self.kernels.is_empty() {
            let kernels: Vec<String> = self.kernels.iter().map(|version| version.shown().to_string()).collect();
            let _ = writeln!(text, "  kernels: {}", kernels.join(", "));
        }
        for (path, volume) in &self.mounts {
            let _ = writeln!(text, "  {} is {volume}", path.shown());
        }
        for (path, source) in &self.missing {
            let _ = writeln!(text, "  {} is not on this disk: {}", path.shown(), source.shown());
        }
        for problem in &self.problems {
            let _ = writeln!(text, "  problem: {}", problem.shown());
        }
    }

    fn json(&self) -> Value {
        let lossy = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let mount = |(path, volume): &(Vec<u8>, String)| {
            let mut members = path_members("path", path);
            members.insert("volume".to_owned(), volume.as_str().into());
            Value::Object(members)
        };
        let missing = |(path, source): &(Vec<u8>, Vec<u8>)| {
            let mut members = path_members("path", path);
            members.extend(path_members("source", source));
            Value::Object(members)
        };
        let members = json!({
            "kind": self.kind,
            "name": self.name,
            "host_name": null,
            "architecture": self.architecture,
            "kernels": self.kernels.iter().map(lossy).collect::<Vec<_>>(),
            "mounts": self.mounts.iter().map(mount).collect::<Vec<_>>(),
            "missing": self.missing.iter().map(missing).collect::<Vec<_>>(),
            "problems": self.problems,
        });
        let mut members = members.as_object().cloned().unwrap_or_default();
        members.extend(self.host_name.iter().flat_map(|name| path_members("host_name", name)));
        if self.kernels.iter().any(|kernel| std::str::from_utf8(kernel).is_err()) {
            members.insert("kernels_hex".to_owned(), self.kernels.iter().map(|kernel| hex(kernel)).collect());
        }
        Value::Object(members)
    }
}

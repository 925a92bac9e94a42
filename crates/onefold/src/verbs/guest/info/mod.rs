//! `onefold guest info`

mod figures;
mod systems;

use std::fmt::Write;
use std::ops::ControlFlow;

use onefold_block::Show;
use onefold_guest::content::VolumeContent;
use onefold_guest::filesystem::State;
use onefold_guest::guest::{Group, Guest, GuestVolume};
use onefold_guest::lvm::{LogicalMapping, LogicalVolume, VolumeGroup};
use serde_json::{Map, Value, json};

use super::describe::{content, origin, path_members};
use super::ending::Ending;
use super::many;
use super::open::GuestImage;
use crate::cli::Talk;
use crate::cli::guest::GuestInfoArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, TextTable};
use crate::size::human;

use figures::Figures;
use systems::Systems;

pub(super) fn run(arguments: &GuestInfoArgs, talk: Talk) -> Outcome<Report> {
    let (mut texts, mut images): (Vec<String>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut ending = Ending::new(many::are_several(&arguments.images.paths));
    many::each(&arguments.images, talk, &mut ending, |image, guest, ending| {
        let volumes = many::volumes(image, guest, &arguments.images.open)?;
        let cannot = || format!("cannot read the allocation maps of `{}`", image.path().shown());
        let figures = Figures::of(guest, arguments.stale).map_err(|error| Failure::of_guest(cannot(), &error))?;
        let systems = Systems::of(guest, ending);
        let is_in_use = image.is_in_use();
        let info = ImageInfo { image, guest, volumes, figures, systems, is_in_use };
        texts.push(info.text());
        images.push(Value::Object(info.json()));
        ending.look_at(image, guest, 0..guest.volumes().len());
        Ok(ControlFlow::Continue(()))
    })?;
    let mut json = ending.tell();
    json.insert("images".to_owned(), images.into());
    Ok(Report { text: texts.join("\n\n"), json: Value::Object(json), exit: ending.exit() })
}

/// The report about one image.
struct ImageInfo<'i, 'g, 'a> {
    image: &'i GuestImage,
    guest: &'g Guest<'a>,
    /// The reported volumes, with their indices.
    volumes: Vec<(usize, &'g GuestVolume<'a>)>,
    figures: Figures,
    systems: Systems,
    /// Whether the image may have changed meanwhile, so that its figures are of several moments.
    is_in_use: bool,
}

impl ImageInfo<'_, '_, '_> {
    fn text(&self) -> String {
        let table = match self.guest.table() {
            Some(table) => format!("{} with sectors of {} bytes", table.scheme.name(), table.sector_bytes),
            None => "no partition table".to_owned(),
        };
        let size = human(self.guest.disk().size_bytes());
        let mut text = format!("{}: {}, {size}, {table}\n", self.image.path().shown(), self.image.format);
        // Writing into a string does not fail.
        for problem in self.guest.table().iter().flat_map(|table| &table.problems) {
            let _ = writeln!(text, "  {problem}");
        }
        if self.guest.volumes().is_empty() {
            text.push_str("  the disk is empty\n");
            return text.trim_end().to_owned();
        }
        let _ = writeln!(text, "{}", self.table());
        for (at, volume) in &self.volumes {
            text.push_str(&details(volume, self.guest.whole_because(*at)));
        }
        if self.is_in_use {
            text.push_str("  the image is in use: figures with a question mark mix several moments\n");
        }
        self.guest.groups().iter().for_each(|group| text.push_str(&group_lines(group)));
        self.systems.text(&mut text);
        self.figures.text(&mut text, self.guest.volumes().iter().map(|volume| origin(&volume.volume.origin)));
        text.trim_end().to_owned()
    }

    fn table(&self) -> TextTable {
        let mut headings =
            TextTable::new(["volume", "begins at", "size", "holds", "allocated", "free", "misaligned", "state"]);
        for (at, volume) in &self.volumes {
            let figures = self.figures.of_volume(*at);
            headings.row([
                origin(&volume.volume.origin),
                volume.volume.ranges.first().map_or(0, |range| range.start_bytes).to_string(),
                human(volume.volume.size_bytes()),
                holds(&volume.content),
                self.marked(figures.allocated_bytes),
                self.marked(figures.free_bytes),
                self.marked(figures.misaligned_bytes),
                self.state_name(*at, volume).to_owned(),
            ]);
        }
        headings
    }

    /// Returns a number of bytes for people, with a mark if it may mix several moments.
    fn marked(&self, bytes: u64) -> String {
        let mark = if self.is_in_use { " ?" } else { "" };
        format!("{}{mark}", human(bytes))
    }

    /// Returns how far the maps of a volume can be trusted. `at` is its index in the guest.
    fn state_name(&self, at: usize, volume: &GuestVolume<'_>) -> &'static str {
        let is_certain = !self.is_in_use && self.guest.whole_because(at).is_none();
        match &volume.content {
            VolumeContent::PhysicalVolume(physical) if !physical.damage.is_empty() => "unsure",
            VolumeContent::FileSystem(_) | VolumeContent::Swap(_) | VolumeContent::PhysicalVolume(_) if is_certain => {
                "certain"
            }
            VolumeContent::FileSystem(_) | VolumeContent::Swap(_) | VolumeContent::PhysicalVolume(_) => "unsure",
            VolumeContent::NotRead(_) => "not read",
            VolumeContent::Unknown => "unknown",
            VolumeContent::Failed(_) => "failed",
        }
    }

    fn json(&self) -> Map<String, Value> {
        let table = self.guest.table();
        let problems: Vec<String> = table.iter().flat_map(|table| &table.problems).map(ToString::to_string).collect();
        let volumes = self.volumes.iter().map(|(at, volume)| {
            let mut members = volume_json(volume, self.state_name(*at, volume), self.is_in_use);
            members.insert("counts_whole_because".to_owned(), self.guest.whole_because(*at).into());
            members.extend(self.figures.of_volume(*at).json());
            Value::Object(members)
        });
        let members = json!({
            "image": self.image.name(),
            "format": self.image.format,
            "size_bytes": self.guest.disk().size_bytes(),
            "partition_table": table.map(|table| table.scheme.name()),
            "sector_bytes": table.map(|table| table.sector_bytes),
            "partition_problems": problems,
            "volumes": volumes.collect::<Vec<Value>>(),
            "groups": self.guest.groups().iter().map(group_json).collect::<Vec<Value>>(),
            "systems": self.systems.json(),
            "in_use": self.is_in_use,
        });
        let mut members = members.as_object().cloned().unwrap_or_default();
        members.extend(self.figures.json());
        members
    }
}

/// Returns the content of a volume for the table. Another line has the reason of a failure.
fn holds(found: &VolumeContent<'_>) -> String {
    match found {
        VolumeContent::Failed(_) => "something that cannot be read".to_owned(),
        found => content(found),
    }
}

fn is_encrypted(content: &VolumeContent<'_>) -> bool {
    matches!(content, VolumeContent::NotRead(found) if found.is_encrypted)
}

/// Returns further lines about a volume: from its table and its file system, and why it counts as a whole.
fn details(volume: &GuestVolume<'_>, whole_because: Option<String>) -> String {
    let mut lines = Vec::new();
    if let Some(partition) = &volume.partition {
        let kind = partition.kind.name().map_or_else(|| format!("{:?}", partition.kind), str::to_owned);
        let name =
            if partition.name.is_empty() { String::new() } else { format!(", named `{}`", partition.name.shown()) };
        lines.push(format!("made for {kind}{name}"));
    }
    if let Some(system) = volume.file_system() {
        let facts = system.facts();
        let label = if facts.label.is_empty() { String::new() } else { format!(", label `{}`", facts.label.shown()) };
        lines.push(format!("UUID {}{label}, blocks of {} bytes", facts.uuid.shown(), facts.block_bytes));
        lines.push(format!("features: {}", facts.features.join(" ").shown()));
    }
    if is_encrypted(&volume.content) {
        lines.push("encrypted: its blocks equal those of no other disk, so it shares nothing".to_owned());
    }
    if let Some(why) = whole_because {
        lines.push(format!("counts as allocated whole: {}", why.shown()));
    }
    let name = origin(&volume.volume.origin);
    lines.iter().map(|line| format!("  {name}: {line}\n")).collect()
}

/// Returns the lines about a group of logical volumes.
fn group_lines(group: &Group) -> String {
    let mut lines = String::new();
    let VolumeGroup { name, doubts, unsure, logical, .. } = &group.group;
    for doubt in doubts.iter().chain(unsure) {
        // Writing into a string does not fail.
        let _ = writeln!(lines, "  group {}: {}", name.shown(), doubt.shown());
    }
    for volume in logical {
        if let LogicalMapping::NotRead(why) = &volume.mapping {
            let size = human(volume.size_bytes);
            let _ =
                writeln!(lines, "  volume {}/{}: {size}, not read: {}", name.shown(), volume.name.shown(), why.shown());
        }
    }
    lines
}

fn group_json(group: &Group) -> Value {
    let VolumeGroup { name, uuid, doubts, unsure, logical, .. } = &group.group;
    let volume = |volume: &LogicalVolume| {
        let why = match &volume.mapping {
            LogicalMapping::Read(_) => None,
            LogicalMapping::NotRead(why) => Some(why),
        };
        json!({ "name": volume.name, "size_bytes": volume.size_bytes, "not_read_because": why })
    };
    let volumes: Vec<Value> = logical.iter().map(volume).collect();
    json!({ "name": name, "uuid": uuid, "doubts": doubts, "unsure": unsure, "volumes": volumes })
}

fn volume_json(volume: &GuestVolume<'_>, state: &str, is_in_use: bool) -> Map<String, Value> {
    let facts = volume.file_system().map(|system| system.facts());
    let mut doubts: Vec<String> = match volume.file_system().map(|system| system.state()) {
        Some(State::Unsure(doubts)) => doubts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    doubts.extend(is_in_use.then(|| "the image is in use".to_owned()));
    let partition = volume.partition.as_ref();
    let ranges = |range: &onefold_guest::volume::DiskRange| json!([range.start_bytes, range.length_bytes]);
    let members = json!({
        "volume": origin(&volume.volume.origin),
        "ranges": volume.volume.ranges.iter().map(ranges).collect::<Vec<Value>>(),
        "size_bytes": volume.volume.size_bytes(),
        "partition_type": partition.map(|partition| partition.kind.name()),
        "partition_name": partition.map(|partition| partition.name.as_str()),
        "holds": content(&volume.content),
        "state": state,
        "doubts": doubts,
        "is_encrypted": is_encrypted(&volume.content),
        "label": null,
        "uuid": facts.map(|facts| facts.uuid.as_str()),
        "block_bytes": facts.map(|facts| facts.block_bytes),
        "features": facts.map(|facts| &facts.features),
    });
    let mut members = members.as_object().cloned().unwrap_or_default();
    members.extend(facts.map(|facts| path_members("label", &facts.label)).unwrap_or_default());
    members
}

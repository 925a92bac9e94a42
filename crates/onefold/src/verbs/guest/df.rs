//! `onefold guest df`

use std::ops::ControlFlow;

use onefold_block::Show;
use onefold_guest::filesystem::FileSystemFacts;
use onefold_guest::guest::GuestVolume;
use serde_json::{Value, json};

use super::describe::origin;
use super::ending::Ending;
use super::many;
use super::open::GuestImage;
use crate::cli::Talk;
use crate::cli::guest::GuestImagesArgs;
use crate::failure::Outcome;
use crate::output::{Report, TextTable};
use crate::size::human;

pub(super) fn run(arguments: &GuestImagesArgs, talk: Talk) -> Outcome<Report> {
    let mut table =
        TextTable::new(["image", "volume", "type", "size", "used", "free", "used %", "files", "files used"]);
    let mut rows: Vec<Value> = Vec::new();
    let mut ending = Ending::new(many::are_several(&arguments.paths));
    many::each(arguments, talk, &mut ending, |image, guest, ending| {
        let before = rows.len();
        let volumes = many::volumes(image, guest, &arguments.open)?;
        let is_in_use = image.is_in_use();
        for (at, volume) in &volumes {
            let Some(system) = volume.file_system() else { continue };
            let full = UsageRow::of(system.facts(), !is_in_use && guest.whole_because(*at).is_none());
            table.row(full.cells(image, volume));
            rows.push(full.json(image, volume));
        }
        ending.look_at(image, guest, volumes.iter().map(|(at, _)| *at));
        if rows.len() == before {
            ending.warn_by_name(format!("`{}` has no file system that can be read", image.path().shown()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut json = ending.tell();
    json.insert("file_systems".to_owned(), rows.into());
    Ok(Report { text: table.to_string(), json: Value::Object(json), exit: ending.exit() })
}

/// The usage of a file system.
struct UsageRow<'f> {
    facts: &'f FileSystemFacts,
    /// `None` if the free bytes are unknown.
    used_bytes: Option<u64>,
    /// Whether the figures are up to date, and of one moment.
    is_certain: bool,
}

impl UsageRow<'_> {
    fn of(facts: &FileSystemFacts, is_certain: bool) -> UsageRow<'_> {
        let used_bytes = facts.free_bytes.map(|free_bytes| facts.size_bytes.saturating_sub(free_bytes));
        UsageRow { facts, used_bytes, is_certain }
    }

    fn percent(&self, used_bytes: u64) -> u64 {
        let of = u128::from(self.facts.size_bytes.max(1));
        u64::try_from((u128::from(used_bytes) * 100).div_ceil(of)).unwrap_or(100)
    }

    fn cells(&self, image: &GuestImage, volume: &GuestVolume<'_>) -> [String; 9] {
        let known = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        // Sizes and the number of possible files do not change while a machine runs.
        let mark = if self.is_certain { "" } else { " ?" };
        let marked = |cell: Option<String>| known(cell.map(|cell| format!("{cell}{mark}")));
        [
            image.path().shown().to_string(),
            origin(&volume.volume.origin),
            self.facts.kind.name().to_owned(),
            human(self.facts.size_bytes),
            marked(self.used_bytes.map(human)),
            marked(self.facts.free_bytes.map(human)),
            marked(self.used_bytes.map(|bytes| format!("{} %", self.percent(bytes)))),
            known(self.facts.files_max.map(|count| count.to_string())),
            marked(self.facts.files_used.map(|count| count.to_string())),
        ]
    }

    fn json(&self, image: &GuestImage, volume: &GuestVolume<'_>) -> Value {
        json!({
            "image": image.name(),
            "volume": origin(&volume.volume.origin),
            "type": self.facts.kind.name(),
            "size_bytes": self.facts.size_bytes,
            "used_bytes": self.used_bytes,
            "free_bytes": self.facts.free_bytes,
            "files_max": self.facts.files_max,
            "files_used": self.facts.files_used,
            "is_certain": self.is_certain,
            "in_use": image.is_in_use(),
        })
    }
}

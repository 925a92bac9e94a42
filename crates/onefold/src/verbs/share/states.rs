//! The states of blocks, as `onefold share status` reports them.

use std::path::Path;

use onefold_block::Show;
use onefold_linux::LinuxSubstrate;
use onefold_share::block_state::{self, BlockState, CountError, CountOptions, ImageStates, States};
use onefold_share::state::State;
use serde_json::{Value, json};

use super::open::state_failure;
use super::status::noun;
use super::user_paths::UserPaths;
use crate::failure::{Failure, Outcome};
use crate::output::{TextTable, machine_name};
use crate::size::{grouped, human};

/// Maximum number of images named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;
/// Memory for sorting maps.
pub(super) const MEMORY_BYTES: usize = 64 << 20;

/// Counts the bytes of each image by state. `since` is the template of images for which none is recorded.
pub(super) fn count(
    cannot: &str,
    state: &State<'_, LinuxSubstrate>,
    since: Option<&Path>,
    paths: &UserPaths,
) -> Outcome<States> {
    let temporary_folder = &onefold_disk::temporary_folder();
    let options = CountOptions { since, temporary_folder, memory_bytes: MEMORY_BYTES };
    block_state::count(state, &options).map_err(|error| match error {
        CountError::State(error) => state_failure(cannot, error, paths),
        CountError::Template(error) => Failure::of_io(cannot, &error),
        CountError::Temporary(error) => {
            Failure::of_io(cannot, &error).hint("have $TMPDIR name a folder with more room")
        }
    })
}

/// Returns the states for people, to follow other text.
pub(super) fn text(states: &States, paths: &UserPaths) -> String {
    let absent = (states.absent > 0).then(|| absent_line(states.absent));
    if states.images.is_empty() {
        return absent.map_or_else(String::new, |line| format!("\n\n{line}"));
    }
    let mut table = TextTable::new(["image", "template", "own", "common", "shared"]);
    for ImageStates { path, bytes, .. } in states.images.iter().take(NAMED_MAX) {
        let cells = [bytes.template, bytes.own, bytes.common, bytes.shared].map(human);
        let [template, own, common, shared] = cells;
        table.row([paths.of(path).shown().to_string(), template, own, common, shared]);
    }
    let mut lines = vec![table.to_string()];
    if states.images.len() > NAMED_MAX {
        lines.push(format!("and {} more images; `--json` has them all", grouped_len(states.images.len() - NAMED_MAX)));
    }
    let unplaced = states.images.iter().map(|image| image.bytes.unplaced).fold(0, u64::saturating_add);
    if unplaced > 0 {
        lines.push(format!("{} more have no place that the file system reports, and no known state", human(unplaced)));
    }
    for volume in &states.volumes {
        let (held, used) = (human(volume.held), human(volume.used));
        lines.push(format!("common volume `{}`: {held}, of which images use {used}", paths.of(&volume.path).shown()));
    }
    if states.unmapped > 0 {
        let files = noun(states.unmapped, "file");
        lines.push(format!("the maps of {} {files} cannot be read", grouped(states.unmapped)));
    }
    if states.unknown_templates > 0 {
        let images = noun(states.unknown_templates, "image");
        lines.push(format!(
            "the recorded templates of {} {images} are not known here: name one with `--since`, or scan its folder",
            grouped(states.unknown_templates)
        ));
    }
    lines.extend(absent);
    format!("\n\n{}", lines.join("\n"))
}

/// Returns the line about known files that have moved or gone.
pub(super) fn absent_line(count: u64) -> String {
    let (files, them) = if count == 1 { ("file is", "it") } else { ("files are", "them") };
    format!("{} known {files} not where the last scan found {them}: scan first", grouped(count))
}

fn grouped_len(count: usize) -> String {
    grouped(count as u64)
}

/// Returns the images for machines.
pub(super) fn images_json(states: &States) -> Value {
    let image = |image: &ImageStates| {
        json!({
            "path": machine_name(&image.path),
            "template": image.template.as_ref().map(machine_name),
            "template_bytes": image.bytes.template,
            "own_bytes": image.bytes.own,
            "common_bytes": image.bytes.common,
            "shared_bytes": image.bytes.shared,
            "unplaced_bytes": image.bytes.unplaced,
        })
    };
    states.images.iter().map(image).collect()
}

/// Returns the common volumes for machines.
pub(super) fn volumes_json(states: &States) -> Value {
    let volumes = states.volumes.iter();
    volumes
        .map(|volume| {
            json!({ "path": machine_name(&volume.path), "held_bytes": volume.held, "used_bytes": volume.used })
        })
        .collect()
}

/// Returns the name of a state, for people and machines.
pub(super) fn name(state: BlockState) -> &'static str {
    match state {
        BlockState::Template => "template",
        BlockState::Own => "own",
        BlockState::Common => "common",
        BlockState::Shared => "shared",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use onefold_share::block_state::{StateBytes, VolumeUse};

    use super::*;

    fn image(path: &str, bytes: StateBytes) -> ImageStates {
        let template = Some(PathBuf::from("gold.raw"));
        ImageStates { path: PathBuf::from(path), template, length: 1 << 30, bytes }
    }

    fn paths() -> UserPaths {
        UserPaths::new(Path::new("/"), &[PathBuf::from(".")], &[PathBuf::new()])
    }

    #[test]
    fn the_text_has_a_row_for_each_image_and_a_line_for_each_volume() {
        let bytes = StateBytes { template: 4096, own: 8192, common: 0, shared: 1 << 20, unplaced: 4096 };
        let volume = VolumeUse { path: PathBuf::from("vm/common"), held: 8192, used: 4096 };
        let images = vec![image("vm/a.raw", bytes)];
        let volumes = vec![volume];
        let states = States { images, volumes, taken: 8192, unmapped: 1, absent: 2, unknown_templates: 1 };
        let text = text(&states, &paths());
        for part in [
            "\n\nimage     template       own  common    shared\nvm/a.raw  4.00 KiB  8.00 KiB     0 B  1.00 MiB\n",
            "4.00 KiB more have no place",
            "common volume `vm/common`: 8.00 KiB, of which images use 4.00 KiB",
            "the maps of 1 file cannot be read",
            "the recorded templates of 1 image are not known here",
            "2 known files are not where the last scan found them",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(images_json(&states)[0]["shared_bytes"], 1 << 20);
        assert_eq!(images_json(&states)[0]["template"], "gold.raw");
        assert_eq!(volumes_json(&states)[0]["used_bytes"], 4096);
    }

    #[test]
    fn the_text_names_some_images_and_the_json_all() {
        let images = (0..30).map(|number| image(&format!("{number}.raw"), StateBytes::default())).collect();
        let states = States { images, ..States::default() };
        let text = text(&states, &paths());
        assert!(text.contains("19.raw") && !text.contains("20.raw") && text.contains("and 10 more"), "{text}");
        assert_eq!(images_json(&states).as_array().map(Vec::len), Some(30));
        assert_eq!(super::text(&States::default(), &paths()), "");
    }
}

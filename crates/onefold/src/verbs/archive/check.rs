//! `onefold archive check`

use onefold_block::Show;
use onefold_block::random::{Random, SystemRandom};
use onefold_image::archive::{CheckOptions, CheckReport, Damage, Sample};
use onefold_image::format::pack::PACK_BYTES;
use serde_json::{Value, json};

use super::hits;
use super::watched::WatchedArchive;
use crate::cli::Talk;
use crate::cli::archive::CheckArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::{counted, grouped, human};

pub(super) fn run(arguments: &CheckArgs, talk: Talk) -> Outcome<Report> {
    let path = &arguments.archive;
    let watched = WatchedArchive::open(path, arguments.rate.map(|rate| rate.0))?;
    let archive = &watched.archive;
    let sample = match arguments.sample {
        Some(millionths) => Some(Sample { millionths, seed: seed(arguments)? }),
        None => None,
    };
    let meter = Meter::new(format!("checking {}", path.shown()), talk.quiet, watched.interrupt.clone());
    let mut checked = (0, 0);
    let mut on_progress = |done: u64, total: u64| {
        checked = (done, total);
        // Packs are most of the work, and have about this length.
        let _ = meter.show_bytes(done.saturating_mul(PACK_BYTES), total.saturating_mul(PACK_BYTES));
    };
    let found = match sample {
        Some(sample) => archive.check_sample(sample, &mut on_progress),
        None => archive.check(CheckOptions { data: arguments.data }, &mut on_progress),
    };
    meter.finish();
    let cannot = format!("cannot check the archive `{}`", path.shown());
    let found = found.map_err(|error| Failure::of_archive(&cannot, &error));
    let found = found.and_then(|found| watched.unless_cut_short(found, &cannot)).map_err(|failure| {
        watched.failure(failure, &checked_text(checked), "run the command again to check all of it")
    })?;
    let hits = hits::find(archive, &found);
    let json = json!({
        "archive": machine_name(path),
        "seed": sample.map(|sample| sample.seed),
        "images": found.images,
        "packs": found.packs,
        "units": found.units,
        "copies": found.copies,
        "leftovers": found.leftovers,
        "verified_bytes": found.verified_bytes,
        "damages": found.damages.iter().map(damage_json).collect::<Vec<Value>>(),
        "further_damages": found.further_damages,
        "hits": hits::json(&hits),
    });
    let is_sound = found.damages.is_empty() && found.further_damages == 0;
    let mut text = damages_text(&found) + &hits::text(&hits);
    let exit = if watched.is_cut_short() {
        text.push_str("interrupted: the check is complete, but not all files that the damage hits are known\n");
        Exit::Interrupted
    } else if is_sound {
        Exit::Done
    } else {
        Exit::Damage
    };
    if let Some(Sample { seed, .. }) = sample {
        text.push_str(&format!("a random part was read; --seed {seed} reads it again\n"));
    }
    text.push_str(&summary(&found, arguments.data || sample.is_some()));
    Ok(Report { text, json, exit })
}

/// Returns how far an interrupted check came.
fn checked_text((done, total): (u64, u64)) -> String {
    match total {
        0 => "nothing was checked".to_owned(),
        _ => format!("checked {} of {} packs and images", grouped(done), grouped(total)),
    }
}

/// Returns what decides which part is read.
fn seed(arguments: &CheckArgs) -> Outcome<u64> {
    if let Some(seed) = arguments.seed {
        return Ok(seed);
    }
    let mut bytes = [0; 8];
    SystemRandom.fill(&mut bytes).map_err(|error| Failure::of_io("cannot get random bytes", &error))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns a damage for programs.
pub(super) fn damage_json(damage: &Damage) -> Value {
    let images: Vec<String> = damage.images.iter().map(ToString::to_string).collect();
    json!({ "object": damage.object, "what": damage.what, "images": images })
}

/// Returns a line for each damage.
pub(super) fn damages_text(found: &CheckReport) -> String {
    let mut text = String::new();
    for damage in &found.damages {
        text.push_str(&format!("damaged: {}: {}", damage.object, damage.what));
        if !damage.images.is_empty() {
            let images: Vec<String> = damage.images.iter().map(ToString::to_string).collect();
            text.push_str(&format!("; hits {}", images.join(", ")));
        }
        text.push('\n');
    }
    if found.further_damages > 0 {
        text.push_str(&format!("damaged: {} further ones\n", grouped(found.further_damages)));
    }
    text
}

/// Returns the last line.
fn summary(found: &CheckReport, has_read_data: bool) -> String {
    let mut text = String::new();
    let (images, units) = (counted(found.images, "image"), counted(found.units, "unit"));
    text.push_str(&format!("{images}, {units} in {}", counted(found.packs, "pack")));
    if has_read_data {
        text.push_str(&format!(", {} read and verified", human(found.verified_bytes)));
    }
    if found.leftovers > 0 {
        text.push_str(&format!("; {} of no image", counted(found.leftovers, "pack")));
    }
    text.push_str(match found.damages.is_empty() && found.further_damages == 0 {
        true => ": no damage",
        false => ": damaged",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_image::{ImageName, ImageVersion};

    #[test]
    fn damage_is_listed_with_the_images_that_it_hits() {
        let web = ImageVersion { name: ImageName::new("web").unwrap(), version: 2 };
        let damage = Damage { object: "packs/00/11".to_owned(), what: "it is missing".to_owned(), images: vec![web] };
        let found = CheckReport { damages: vec![damage], further_damages: 7, ..CheckReport::default() };
        let said = damages_text(&found) + &summary(&found, false);
        assert!(said.starts_with("damaged: packs/00/11: it is missing; hits web@2\ndamaged: 7 further"), "{said}");
        assert!(said.ends_with(": damaged"), "{said}");
        assert!(summary(&CheckReport::default(), true).ends_with(": no damage"));
    }
}

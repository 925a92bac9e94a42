//! Export of a damaged image: what cannot be read becomes zeros, and is listed.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

use onefold_block::Show;
use onefold_image::ArchivedDisk;
use onefold_image::archive::{Archive, ImageRecord};
use onefold_image::format::manifest::Manifest;
use serde_json::{Value, json};

use super::exported_file::{FILE_MODE, own_name};
use crate::cli::Talk;
use crate::cli::image::ExportArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::outgoing::{OutgoingImage, format_of, is_stream, path_of};
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::{grouped, human};

/// Maximum number of gaps that are listed for people. The document has all.
const GAPS_SHOWN_MAX: usize = 1000;

pub(super) fn run(
    arguments: &ExportArgs,
    archive: &Arc<Archive>,
    record: &ImageRecord,
    manifest: &Manifest,
    talk: Talk,
) -> Outcome<Report> {
    if is_stream(&arguments.output) {
        return Err(Failure::usage("cannot export a damaged image to standard output")
            .because_of("the gaps are listed there")
            .hint("give a file"));
    }
    let cache_bytes = usize::try_from(arguments.memory.0).unwrap_or(usize::MAX);
    let disk = ArchivedDisk::damaged(archive.clone(), manifest.clone(), cache_bytes);
    let own = own_name(record.image.name.as_str(), arguments.format);
    let output = path_of(&arguments.output, OsStr::new(&own), false)?;
    let format = format_of(&output, &disk, arguments.format)?;
    let meter = Meter::new(format!("exporting {}", record.image), talk.quiet, Interrupt::watch());
    let written = OutgoingImage::create(&output, &disk, Some(format), FILE_MODE)?.write(&disk, &meter)?;
    let gaps = disk.gaps();
    let json = json!({
        "image": record.image.to_string(),
        "output": machine_name(&output),
        "format": format.name(),
        "size_bytes": manifest.size_bytes,
        "written_bytes": written.written_bytes,
        "gaps": gaps.iter().map(|gap| json!({ "offset": gap.start, "length_bytes": gap.end - gap.start })).collect::<Vec<Value>>(),
    });
    let done = format!("exported {} to {}: {}", record.image, output.shown(), human(manifest.size_bytes));
    let exit = if gaps.is_empty() { Exit::Done } else { Exit::Damage };
    Ok(Report { text: text(&done, &gaps), json, exit })
}

fn text(done: &str, gaps: &[Range<u64>]) -> String {
    if gaps.is_empty() {
        return format!("{done}, without a gap");
    }
    let mut text = String::new();
    for gap in gaps.iter().take(GAPS_SHOWN_MAX) {
        text.push_str(&format!("gap: {} bytes from byte {}\n", gap.end - gap.start, gap.start));
    }
    if gaps.len() > GAPS_SHOWN_MAX {
        text.push_str(&format!("{} further gaps; --json lists all\n", grouped((gaps.len() - GAPS_SHOWN_MAX) as u64)));
    }
    let lost = gaps.iter().map(|gap| gap.end - gap.start).fold(0, u64::saturating_add);
    text.push_str(&format!("{done}; {} in {} gaps read as zeros", human(lost), grouped(gaps.len() as u64)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_listed_as_far_as_people_read() {
        assert_eq!(text("done", &[]), "done, without a gap");
        let said = text("done", &[512..1024, 4096..8192]);
        assert!(said.starts_with("gap: 512 bytes from byte 512\ngap: 4096 bytes from byte 4096\ndone; "), "{said}");
        let many: Vec<Range<u64>> = (0..1500).map(|number| number * 10..number * 10 + 1).collect();
        assert!(text("done", &many).contains("500 further gaps"));
    }
}

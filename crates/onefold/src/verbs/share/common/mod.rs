//! `onefold share common`

mod add;
mod failure;
mod result;
mod used;

use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_linux::{LinuxFile, LinuxSubstrate};
use onefold_share::files::common::{self, Volume};
use onefold_substrate::{Files, Names, Sharing, SubstrateKind, UserNo};
use serde_json::json;

pub(super) use self::used::{RunImages, UsedVolume};

use self::failure::{common_failure, unsupported};
use self::result::{PackageListing, changed_json};
use super::open::OpenFileSystem;
use super::status::noun;
use crate::cli::Talk;
use crate::cli::share_common::{ShareCommonCommand, ShareCommonCreateArgs, ShareCommonLookArgs, ShareCommonRemoveArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::size::human;

pub(crate) fn run(command: &ShareCommonCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ShareCommonCommand::Create(arguments) => create(arguments),
        ShareCommonCommand::Add(arguments) => add::run(arguments, talk),
        ShareCommonCommand::Ls(arguments) => ls(arguments),
        ShareCommonCommand::Check(arguments) => check(arguments),
        ShareCommonCommand::Rm(arguments) => rm(arguments),
    }
}

/// Opens the file system of a volume, and returns the volume's path there.
fn file_system(cannot: &str, path: &Path) -> Outcome<(OpenFileSystem, PathBuf)> {
    let file_system = OpenFileSystem::open(cannot, &[path.to_owned()])?;
    check_kind(cannot, &file_system)?;
    let volume = common::find(&file_system.substrate, file_system.first())
        .map_err(|error| common_failure(cannot, error, &file_system.user_paths))?;
    Ok((file_system, volume))
}

/// Refuses kinds of file systems without common volumes.
fn check_kind(cannot: &str, file_system: &OpenFileSystem) -> Outcome<()> {
    let kind = file_system.substrate.abilities().kind;
    if matches!(kind, SubstrateKind::Xfs | SubstrateKind::Btrfs) { Ok(()) } else { Err(unsupported(cannot, kind)) }
}

/// Opens the volume at a path.
fn opened(cannot: &str, path: &Path) -> Outcome<(OpenFileSystem, Volume<LinuxFile>)> {
    let (file_system, volume) = file_system(cannot, path)?;
    let volume = common::open(&file_system.substrate, &volume)
        .map_err(|error| common_failure(cannot, error, &file_system.user_paths))?;
    Ok((file_system, volume))
}

fn create(arguments: &ShareCommonCreateArgs) -> Outcome<Report> {
    let path = &arguments.path;
    let cannot = format!("cannot make the common volume `{}`", path.shown());
    let no_name = || Failure::usage(cannot.clone()).because_of("it is not a file name");
    let name = path.file_name().ok_or_else(no_name)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file_system = OpenFileSystem::open(&cannot, &[folder.to_owned()])?;
    check_kind(&cannot, &file_system)?;
    let volume = file_system.first().join(name);
    let owner = owner_of_volumes(&cannot, &file_system.substrate, file_system.first())?;
    let made = common::create(&file_system.substrate, &SystemRandom, &volume, arguments.size.0, owner);
    made.map_err(|error| common_failure(&cannot, error, &file_system.user_paths))?;
    let length = human(arguments.size.0.max(common::LENGTH_MIN));
    let text = format!("made `{}` for {owner}: room for {length}, none of it taken", path.shown());
    let json = json!({ "root": machine_name(&file_system.root), "path": machine_name(&volume), "owner": owner.0 });
    Ok(Report::done(text, json))
}

/// Returns the user who will own a new volume in a folder.
fn owner_of_volumes(cannot: &str, substrate: &LinuxSubstrate, folder: &Path) -> Outcome<UserNo> {
    match substrate.user() {
        UserNo::ROOT => {
            let protection = substrate.path_protection(folder).map_err(|error| Failure::of_io(cannot, &error))?;
            Ok(protection.owner)
        }
        user => Ok(user),
    }
}

fn ls(arguments: &ShareCommonLookArgs) -> Outcome<Report> {
    let cannot = format!("cannot list a common volume in `{}`", arguments.path.shown());
    let (file_system, volume) = opened(&cannot, &arguments.path)?;
    let listing = PackageListing::of(volume.contents());
    Ok(Report::done(listing.text(volume.path()), listing.json(&file_system.root, volume.path())))
}

fn check(arguments: &ShareCommonLookArgs) -> Outcome<Report> {
    let cannot = format!("cannot check a common volume in `{}`", arguments.path.shown());
    let (file_system, volume) = opened(&cannot, &arguments.path)?;
    let bytes = common::check(&file_system.substrate, &volume)
        .map_err(|error| common_failure(&cannot, error, &file_system.user_paths))?;
    let count = volume.contents().len() as u64;
    let (contents, path) = (noun(count, "content"), volume.path().shown());
    let text = format!("`{path}` is sound: {count} {contents} with {} match their digests", human(bytes));
    let json = json!({
        "root": machine_name(&file_system.root),
        "path": machine_name(volume.path()),
        "contents": count,
        "bytes": bytes,
    });
    Ok(Report::done(text, json))
}

fn rm(arguments: &ShareCommonRemoveArgs) -> Outcome<Report> {
    let cannot = format!("cannot remove packages from a common volume in `{}`", arguments.path.shown());
    let (file_system, volume) = file_system(&cannot, &arguments.path)?;
    let wants = |folder: &str| {
        let name = folder.split_once('_').map_or(folder, |(name, _)| name);
        arguments.packages.iter().any(|package| package == folder || package == name)
    };
    let removed = common::remove(&file_system.substrate, &SystemRandom, &volume, &wants);
    let removed = removed.map_err(|error| common_failure(&cannot, error, &file_system.user_paths))?;
    if removed.removed == 0 {
        return Err(Failure::new(cannot)
            .because_of("it has no content of these packages")
            .hint("`onefold share common ls` lists its packages"));
    }
    let text = format!("removed {} {} from `{}`", removed.removed, noun(removed.removed, "content"), volume.shown());
    Ok(Report::done(text, changed_json(&file_system.root, &volume, &removed)))
}

//! Images of a server, for `onefold image install`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onefold_net::{AccessToken, GroupOptions, MulticastKey, RemoteArchive, RemoteOptions};

use super::installable::InstallableImage;
use super::{choose, signed};
use crate::cli::Talk;
use crate::cli::image::InstallArgs;
use crate::cli::image_server::ImageServerOptions;
use crate::cli::place::StoreOptions;
use crate::failure::{Failure, Outcome};
use crate::output::print_note;
use crate::verbs::archive::place::{PATIENCE, tell_of_waits, waiting_limit};

/// How long a server that has never answered is waited for, if nothing else is asked: its address may be wrong.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);

/// Divisor for the share of the memory that chunks get which come by multicast.
pub(super) const GROUP_SHARE: u64 = 2;

/// Returns the address of the server that an argument names instead of an archive.
pub(super) fn server(archive: &Path) -> Option<&str> {
    archive.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"))
}

/// Finds an image at a server, and fails unless the user accepts it.
pub(super) fn find_accepted(server: &str, arguments: &InstallArgs, talk: Talk) -> Outcome<InstallableImage> {
    let cannot = || "cannot use the server of images".to_owned();
    let key = multicast_key(server, arguments)?;
    let opened = RemoteArchive::open(server, options(&arguments.store, &arguments.server)?);
    let archive = opened.map_err(|error| Failure::of_net(cannot(), &error))?;
    let archive = archive.map_err(|error| Failure::of_archive(cannot(), &error))?;
    let record = choose(archive.records(), &arguments.image, "on the server")?;
    let manifest = archive.manifest(&record);
    let (manifest, object) =
        manifest.map_err(|error| Failure::of_archive(format!("cannot read the image `{}`", record.image), &error))?;
    signed::require_of_server(&record, arguments.acceptance, |keys| {
        archive.signers(&record, &object, keys.iter().copied())
    })?;
    let report = Some(archive.report_place(&record));
    if key.is_none() && !archive.sends_by_multicast() {
        return Ok(InstallableImage { record, manifest, source: Arc::new(archive.into_images()), group: None, report });
    }
    let is_quiet = talk.quiet;
    let on_note = move |text: &str| {
        if !is_quiet {
            print_note(text);
        }
    };
    let memory_bytes = usize::try_from(arguments.memory.0 / GROUP_SHARE).unwrap_or(usize::MAX);
    let options = GroupOptions { key, memory_bytes, on_note: Arc::new(on_note) };
    let (images, group) = archive.into_group_images(&record, options);
    Ok(InstallableImage { record, manifest, source: Arc::new(images), group: Some(group), report })
}

/// Returns the key of multicast of a server without TLS, if one is given.
fn multicast_key(server: &str, arguments: &InstallArgs) -> Outcome<Option<MulticastKey>> {
    let cannot = || "cannot receive by multicast";
    let Some(path) = &arguments.multicast_key else { return Ok(None) };
    if server.starts_with("https:") {
        return Err(Failure::usage(cannot())
            .because_of("--multicast-key is for servers without TLS")
            .hint("leave it out: over TLS the server hands out the keys"));
    }
    MulticastKey::read(path).map(Some).map_err(|error| Failure::of_net(cannot(), &error))
}

/// Returns how the server is reached.
pub(super) fn options(given: &StoreOptions, server: &ImageServerOptions) -> Outcome<RemoteOptions> {
    if given.endpoint.is_some() || given.region.is_some() || given.one_writer {
        return Err(Failure::usage("cannot use the server of images")
            .because_of("--endpoint, --region and --one-writer are for buckets"));
    }
    let patience = given.patience.unwrap_or(PATIENCE);
    let first_patience = given.patience.unwrap_or(FIRST_PATIENCE);
    let limit = match given.patience {
        Some(patience) => waiting_limit(patience),
        None => format!("{} if it has never answered, else {}", waiting_limit(first_patience), waiting_limit(patience)),
    };
    let on_wait = tell_of_waits("the server", limit);
    let token = server.token_file.as_deref().map(AccessToken::read).transpose();
    Ok(RemoteOptions {
        ca: given.ca.clone(),
        pin: server.pin,
        token: token.map_err(|error| Failure::of_net("cannot use the token", &error))?,
        allow_http: given.allow_http,
        patience,
        first_patience,
        on_wait,
    })
}

//! `onefold image serve`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onefold_block::Show;
use onefold_image::archive::ArchiveError;
use onefold_image::format::multicast::RepairCode;
use onefold_image::multicast::SessionStart;
use onefold_image::served::ChunkMethod;
use onefold_image::store::FolderStore;
use onefold_linux::interface_addresses;
use onefold_net::{
    ImageServer, LogHook, LogLine, MulticastKey, MulticastOptions, RemovalPolicy, ServerIdentity, ServerOptions,
};
use sd_notify::NotifyState;
use serde_json::json;

use super::install::memory;
use super::server_log::ServerLog;
use super::status;
use crate::cli::Talk;
use crate::cli::image_server::{
    CertificateOptions, ChunkChoice, ComparisonArgs, HeaderChoice, MulticastArgs, PORT, Removal, RepairChoice,
    ServeArgs,
};
use crate::cli::place::ArchiveArg;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::open_files;
use crate::output::{Report, print_note};
use crate::verbs::archive;

/// Divisor for the share of the memory that tables of packs get.
const TABLES_SHARE: usize = 8;
/// Folder of the state of a server that root runs.
const SYSTEM_STATE: &str = "/var/lib/onefold";
/// Folder of the digests of disks in that of a server.
const DIGESTS: &str = "digests";
/// Folder of a server in the folder of the state.
const STATE: &str = "serve";
/// Longest time to write the last lines of the log when the server ends.
const LOG_ENDING: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &ServeArgs, talk: Talk) -> Outcome<Report> {
    match (&arguments.status, &arguments.archive) {
        (Some(server), _) => status::run(server, arguments, talk),
        (None, Some(archive)) if arguments.client.are_absent() => serve(archive, arguments, talk),
        _ => Err(Failure::usage("cannot serve the images")
            .because_of("--pin and --token-file are for --status, which is a client of a server")),
    }
}

fn serve(archive_path: &Path, arguments: &ServeArgs, talk: Talk) -> Outcome<Report> {
    let cannot = || "cannot serve the images";
    open_files::raise_limit();
    let memory_bytes = usize::try_from(memory(arguments.memory.0)?).unwrap_or(usize::MAX);
    let place = ArchiveArg { archive: archive_path.to_owned(), store: arguments.store.clone() };
    let archive = archive::open(&place)?;
    archive.limit_tables(memory_bytes / TABLES_SHARE);
    let address = arguments.listen.unwrap_or_else(|| default_address(arguments.interface.is_some()));
    let identity = match arguments.plain {
        true => None,
        false => Some(identity(&arguments.certificate, &names(address.ip(), arguments.interface.as_deref()))?),
    };
    let fingerprint = identity.as_ref().map(|identity| identity.fingerprint().to_string());
    let (interface, tokens) = (arguments.interface.clone(), arguments.tokens.clone());
    let multicast = multicast(&arguments.multicast, arguments.comparison.repairs, arguments.plain)?;
    let chunks = chunk_method(&arguments.comparison)?;
    // Without a folder for a certificate, they are computed again after a start.
    let digests = match identity.is_some() && arguments.certificate.certificate.is_none() {
        true => Some(state_folder(&arguments.certificate)?.join(DIGESTS)),
        false => None,
    };
    let removal = match arguments.removed {
        Removal::Finish => RemovalPolicy::Finish,
        Removal::End => RemovalPolicy::End,
    };
    let options =
        ServerOptions { address, interface, memory_bytes, identity, tokens, digests, removal, multicast, chunks };
    let log = ServerLog::begin(print_note);
    let log = log.map_err(|error| Failure::new(cannot()).because_of(format!("no thread for its log: {error}")))?;
    let server = ImageServer::listen(Arc::clone(&archive), &options, log_hook(log.clone(), talk.quiet));
    let server = server.map_err(|error| Failure::of_net(cannot(), &error))?;
    let (address, scheme) = (server.address(), if arguments.plain { "http" } else { "https" });
    let places = reachable(address, arguments.interface.as_deref());
    let places: Vec<String> = places.iter().map(|place| format!("{scheme}://{place}")).collect();
    let places = places.join(" and ");
    if !talk.quiet {
        print_note(&format!("serving {} at {places}", archive_path.shown()));
        if let Some(fingerprint) = &fingerprint {
            print_note(&format!("fingerprint of the certificate, for --pin: {fingerprint}"));
        }
        if let Some(text) = server.multicast() {
            print_note(&format!("multicast {text}"));
        }
    }
    let interrupt = Interrupt::watch();
    // Outside of a service of systemd, this does nothing.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    server.run(&|| {
        let is_asked = interrupt.is_asked();
        if is_asked {
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
        }
        is_asked
    });
    log.finish(LOG_ENDING);
    let json = json!({ "address": address.to_string(), "fingerprint": fingerprint });
    Ok(Report::done(format!("served at {places}"), json))
}

/// Returns the hook that adds lines of the server to its log, without those about machines if it is quiet.
fn log_hook(log: ServerLog, is_quiet: bool) -> LogHook {
    Box::new(move |line: LogLine<'_>| match line {
        LogLine::Machine(_) if is_quiet => {}
        LogLine::Trouble(text) | LogLine::Machine(text) => log.add(text),
    })
}

/// Returns how images are sent by multicast, if they are.
fn multicast(arguments: &MulticastArgs, repairs: RepairChoice, is_plain: bool) -> Outcome<Option<MulticastOptions>> {
    let cannot = || "cannot send by multicast";
    let Some(group) = arguments.multicast else { return Ok(None) };
    if is_plain && arguments.multicast_key.is_none() {
        return Err(Failure::usage(cannot())
            .because_of("with --plain, server and clients need the same key in a file")
            .hint("give --multicast-key, or serve without --plain: then clients get the keys over TLS"));
    }
    let key = arguments.multicast_key.as_deref().map(MulticastKey::read).transpose();
    let key = key.map_err(|error| Failure::of_net(cannot(), &error))?;
    if arguments.rate_floor.0 > arguments.rate.0 {
        return Err(Failure::usage(cannot()).because_of("--rate-floor is more than --rate"));
    }
    Ok(Some(MulticastOptions {
        group,
        ttl: arguments.ttl,
        rate_bytes_per_second: arguments.rate.0,
        rate_floor_bytes_per_second: arguments.rate_floor.0,
        weights: arguments.weight.clone(),
        key,
        start: arguments.wait_for.map(|machines| SessionStart { machines, at_most: arguments.at_most }),
        repairs: match repairs {
            RepairChoice::Coded => RepairCode::RaptorQ,
            RepairChoice::Bitmaps => RepairCode::None,
        },
    }))
}

/// Returns how chunks are made.
fn chunk_method(arguments: &ComparisonArgs) -> Outcome<ChunkMethod> {
    let cannot = |error| Failure::of_archive("cannot keep the chunks", &ArchiveError::Store(error));
    match (arguments.chunks, arguments.headers, &arguments.chunk_folder) {
        (ChunkChoice::Prebuilt, _, Some(folder)) => {
            Ok(ChunkMethod::Prebuilt(Arc::new(FolderStore::create(folder).map_err(cannot)?)))
        }
        (_, _, Some(_)) => Err(Failure::usage("--chunk-folder is for --chunks prebuilt").hint("leave it out")),
        (ChunkChoice::Recompress, _, _) => Ok(ChunkMethod::Recompress),
        (_, HeaderChoice::AtServe, _) => Ok(ChunkMethod::HeadersAtServe),
        _ => Ok(ChunkMethod::OnDemand),
    }
}

/// Returns where to listen: at all addresses if the interface bounds who connects, else for this machine only.
fn default_address(has_interface: bool) -> SocketAddr {
    let address = if has_interface { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    SocketAddr::from((address, PORT))
}

/// Returns the certificate of the server, which is made if there is none.
fn identity(options: &CertificateOptions, names: &[String]) -> Outcome<ServerIdentity> {
    let found = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => ServerIdentity::read(certificate, key),
        _ => ServerIdentity::kept(&state_folder(options)?, names),
    };
    found.map_err(|error| Failure::of_net("cannot use the certificate of the server", &error))
}

/// Returns the folder in which the server keeps its certificate.
fn state_folder(options: &CertificateOptions) -> Outcome<PathBuf> {
    if let Some(folder) = &options.state {
        return Ok(folder.clone());
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    // systemd makes the folder of a unit with `StateDirectory=`.
    if let Some(folder) = variable("STATE_DIRECTORY") {
        return Ok(folder.join(STATE));
    }
    if rustix::process::geteuid().is_root() {
        return Ok([SYSTEM_STATE, STATE].iter().collect());
    }
    let folder = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    folder.map(|folder| folder.join("onefold").join(STATE)).ok_or_else(|| {
        Failure::new("there is no folder for the certificate of the server").hint("name a folder with --state")
    })
}

/// Returns the hosts and the port at which clients reach a server that listens at `address`.
fn reachable(address: SocketAddr, interface: Option<&str>) -> Vec<String> {
    if !address.ip().is_unspecified() {
        return vec![address.to_string()];
    }
    let hosts: Vec<String> = match interface {
        Some(interface) => addresses_of(Some(interface)),
        // A machine has many addresses, most of which lead nowhere from outside.
        None => host_name().into_iter().collect(),
    };
    if hosts.is_empty() {
        return vec![address.to_string()];
    }
    hosts.iter().map(|host| format!("{host}:{}", address.port())).collect()
}

/// Returns the names of this machine, for a certificate that clients verify by its file: they connect to one of them.
fn names(address: IpAddr, interface: Option<&str>) -> Vec<String> {
    let addresses = match address {
        address if address.is_unspecified() => addresses_of(interface),
        address if address.is_loopback() => Vec::new(),
        address => vec![address.to_string()],
    };
    let of_all = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let others = host_name().into_iter().chain(addresses).filter(|name| !of_all.contains(name));
    of_all.iter().cloned().chain(others).collect()
}

/// Returns the IPv4 addresses of one interface, or of all that lead to other machines.
fn addresses_of(interface: Option<&str>) -> Vec<String> {
    let all = interface_addresses().unwrap_or_default();
    let wanted = all.into_iter().filter(|(name, address)| match interface {
        Some(interface) => name.as_os_str() == interface,
        None => !address.is_loopback(),
    });
    wanted.map(|(_, address)| address.to_string()).collect()
}

/// Returns the name of this machine, if other machines may know it by that.
fn host_name() -> Option<String> {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_str().ok()?;
    (is_host_name(name) && name != "localhost").then(|| name.to_owned())
}

/// Returns whether a certificate can have a name.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_shows_addresses_that_clients_can_use() {
        let given = SocketAddr::from(([192, 0, 2, 1], 9000));
        assert_eq!(reachable(given, Some("eth1")), ["192.0.2.1:9000"]);
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        for interface in [None, Some("lo"), Some("no-such-interface")] {
            let found = reachable((unspecified, 9000).into(), interface);
            assert!(!found.is_empty() && found.iter().all(|place| place.ends_with(":9000")), "{found:?}");
        }
        // Each interface of this machine has its addresses, in the certificate, too.
        for (name, address) in interface_addresses().unwrap().iter().filter(|(_, address)| !address.is_loopback()) {
            assert!(reachable((unspecified, 9000).into(), name.to_str()).contains(&format!("{address}:9000")));
            for interface in [name.to_str(), None] {
                assert!(names(unspecified, interface).contains(&address.to_string()));
            }
        }
    }

    #[test]
    fn a_certificate_names_the_machine_and_the_address_that_it_listens_at() {
        let found = names([192, 0, 2, 1].into(), None);
        assert_eq!(found[..3], ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(found.last().map(String::as_str), Some("192.0.2.1"));
        for address in [IpAddr::from([0, 0, 0, 0]), IpAddr::from([127, 0, 0, 1])] {
            assert!(!names(address, None)[3..].contains(&address.to_string()));
        }
        for (name, is_name) in
            [("imager", true), ("imager.lab-1", true), ("a_b", false), ("-a", false), ("a..b", false)]
        {
            assert_eq!(is_host_name(name), is_name, "{name}");
        }
    }
}

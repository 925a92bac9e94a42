//! `onefold image serve`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_net::{ImageServer, MulticastKey, MulticastOptions, ServerIdentity, ServerOptions};
use serde_json::json;

use super::install::memory;
use crate::cli::Talk;
use crate::cli::image_server::{CertificateOptions, MulticastArgs, PORT, ServeArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::open_files;
use crate::output::Report;
use crate::verbs::archive;

/// Divisor for the share of the memory that tables of packs get.
const TABLES_SHARE: usize = 8;
/// Folder of the state of a server that root runs.
const SYSTEM_STATE: &str = "/var/lib/onefold";
/// Folder of a server in the folder of the state.
const STATE: &str = "serve";

pub(super) fn run(arguments: &ServeArgs, talk: Talk) -> Outcome<Report> {
    let cannot = || "cannot serve the images";
    open_files::raise_limit();
    let memory_bytes = usize::try_from(memory(arguments.memory.0)?).unwrap_or(usize::MAX);
    let archive = archive::open(&arguments.archive)?;
    archive.limit_tables(memory_bytes / TABLES_SHARE);
    let address = arguments.listen.unwrap_or_else(|| default_address(arguments.interface.is_some()));
    let identity = match arguments.plain {
        true => None,
        false => Some(identity(&arguments.certificate, address.ip())?),
    };
    let fingerprint = identity.as_ref().map(|identity| identity.fingerprint().to_string());
    let (interface, tokens) = (arguments.interface.clone(), arguments.tokens.clone());
    let multicast = multicast(&arguments.multicast)?;
    let options = ServerOptions { address, interface, memory_bytes, identity, tokens, multicast };
    let on_error = Box::new(|error: &str| eprintln!("{}", ShownText::line(error)));
    let server = ImageServer::listen(Arc::clone(&archive), &options, on_error);
    let server = server.map_err(|error| Failure::of_net(cannot(), &error))?;
    let (address, scheme) = (server.address(), if arguments.plain { "http" } else { "https" });
    if !talk.quiet {
        eprintln!("serving {} at {scheme}://{address}", arguments.archive.archive.as_path().shown());
        if let Some(fingerprint) = &fingerprint {
            eprintln!("fingerprint of the certificate, for --pin: {fingerprint}");
        }
        if let Some(text) = server.multicast() {
            eprintln!("multicast {text}");
        }
    }
    let interrupt = Interrupt::watch();
    server.run(&|| interrupt.is_asked());
    let json = json!({ "address": address.to_string(), "fingerprint": fingerprint });
    Ok(Report::done(format!("served at {scheme}://{address}"), json))
}

/// Returns how images are sent by multicast, if they are.
fn multicast(arguments: &MulticastArgs) -> Outcome<Option<MulticastOptions>> {
    let (Some(group), Some(key)) = (arguments.multicast, &arguments.multicast_key) else { return Ok(None) };
    let key = MulticastKey::read(key).map_err(|error| Failure::of_net("cannot send by multicast", &error))?;
    Ok(Some(MulticastOptions { group, ttl: arguments.ttl, rate_bytes_per_second: arguments.rate.0, key }))
}

/// Returns where to listen: at all addresses if the interface bounds who connects, else for this machine only.
fn default_address(has_interface: bool) -> SocketAddr {
    let address = if has_interface { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    SocketAddr::from((address, PORT))
}

/// Returns the certificate of the server, which is made if there is none.
fn identity(options: &CertificateOptions, address: IpAddr) -> Outcome<ServerIdentity> {
    let found = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => ServerIdentity::read(certificate, key),
        _ => ServerIdentity::kept(&state_folder(options)?, &names(address)),
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
        Failure::new("cannot tell where the certificate of the server is kept").hint("name a folder with --state")
    })
}

/// Returns the names of this machine, for a certificate that clients verify by its file: they connect to one of them.
fn names(address: IpAddr) -> Vec<String> {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_str().ok().filter(|name| is_host_name(name) && *name != "localhost");
    let address = Some(address.to_string()).filter(|_| !address.is_unspecified() && !address.is_loopback());
    let of_all = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    of_all.into_iter().chain(host.map(str::to_owned)).chain(address).collect()
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
    fn a_certificate_names_the_machine_and_the_address_that_it_listens_at() {
        let found = names([192, 0, 2, 1].into());
        assert_eq!(found[..3], ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(found.last().map(String::as_str), Some("192.0.2.1"));
        for address in [IpAddr::from([0, 0, 0, 0]), IpAddr::from([127, 0, 0, 1])] {
            assert!(!names(address)[3..].contains(&address.to_string()));
        }
        for (name, is_name) in
            [("imager", true), ("imager.lab-1", true), ("a_b", false), ("-a", false), ("a..b", false)]
        {
            assert_eq!(is_host_name(name), is_name, "{name}");
        }
    }
}

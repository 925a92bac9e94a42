//! `onefold image serve`

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_net::{ImageServer, ServerOptions};
use serde_json::json;

use super::install::memory;
use crate::cli::Talk;
use crate::cli::image::ServeArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::output::Report;
use crate::verbs::archive;

/// The port without `--listen`.
const PORT: u16 = 7443;
/// Divisor for the share of the memory that tables of packs get.
const TABLES_SHARE: usize = 8;

pub(super) fn run(arguments: &ServeArgs, talk: Talk) -> Outcome<Report> {
    if !arguments.plain {
        return Err(Failure::usage("cannot serve with TLS")
            .because_of("this version of Onefold serves plain connections only")
            .hint("--plain serves them; use it in a network that only machines which may read the images can reach"));
    }
    let memory_bytes = usize::try_from(memory(arguments.memory.0)?).unwrap_or(usize::MAX);
    let archive = archive::open(&arguments.archive)?;
    archive.limit_tables(memory_bytes / TABLES_SHARE);
    let options = ServerOptions {
        address: arguments.listen.unwrap_or_else(|| default_address(arguments.interface.is_some())),
        interface: arguments.interface.clone(),
        memory_bytes,
    };
    let on_error = Box::new(|error: &str| eprintln!("{}", ShownText::line(&format!("a request failed: {error}"))));
    let server = ImageServer::listen(Arc::clone(&archive), &options, on_error);
    let server = server.map_err(|error| Failure::of_net("cannot serve the images", &error))?;
    let address = server.address();
    if !talk.quiet {
        eprintln!("serving {} at http://{address}", arguments.archive.archive.as_path().shown());
    }
    let interrupt = Interrupt::watch();
    server.run(&|| interrupt.is_asked());
    Ok(Report::done(format!("served at http://{address}"), json!({ "address": address.to_string() })))
}

/// Returns where to listen: at all addresses if the interface bounds who connects, else for this machine only.
fn default_address(has_interface: bool) -> SocketAddr {
    let address = if has_interface { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    SocketAddr::from((address, PORT))
}

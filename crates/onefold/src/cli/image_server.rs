//! Options of `image serve`, and those by which clients reach such a server.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onefold_image::ImageName;
use onefold_image::multicast::SESSION_WAIT_MAX;
use onefold_net::{Fingerprint, SESSIONS_MAX};

use super::place::StoreOptions;
use super::values::parse_duration;
use crate::byte_rate::ByteRate;
use crate::size::ByteSize;

/// The port at which images are served, over TCP and UDP, unless another one is given.
pub(crate) const PORT: u16 = 7443;
/// Heading of the options of a server that bound its readers, and of those of its certificate.
const ACCESS: &str = "Access";
const CERTIFICATES: &str = "Certificates";
/// Heading of the options by which a server sends to many machines at once.
const MULTICAST: &str = "Multicast";
/// Heading of the options that measurements need.
const COMPARISON: &str = "Comparison";
/// Heading of the options that show the status of a server.
const STATUS: &str = "Status";
/// Heading of the options of clients.
const SERVERS: &str = "Servers of images";

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The archive: a folder, or `s3://BUCKET/PREFIX`
    #[arg(value_name = "ARCHIVE", required_unless_present = "status")]
    pub(crate) archive: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Show the machines that install images from the server at this address, and serve nothing
    #[arg(long, help_heading = STATUS, value_name = "URL", conflicts_with_all = [
        "archive", "plain", "listen", "interface", "memory", "removed", "tokens", "certificate", "key", "state",
        "multicast", "chunks", "chunk_folder", "headers", "repairs",
    ])]
    pub(crate) status: Option<String>,
    /// Show the status every two seconds, until the command is interrupted
    #[arg(long, help_heading = STATUS, requires = "status")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) client: ImageServerOptions,
    /// Serve without TLS. Each machine that reaches the address can read all images. Each machine on the way can read
    /// and change the bytes that are sent
    #[arg(long)]
    pub(crate) plain: bool,
    /// Address and port to listen at; without it and --interface only this machine is served, at port 7443
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Take connections over this network interface only, such as `eth1`
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// Upper limit of buffers, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    /// Fate of installations whose image is removed from the archive
    #[arg(long, value_enum, default_value_t = Removal::Finish)]
    pub(crate) removed: Removal,
    /// A file of tokens; clients then need one of them. Each line has a pattern of names, such as `lab/*`, and a token
    /// that gives the right to read these images
    #[arg(long, help_heading = ACCESS, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) certificate: CertificateOptions,
    #[command(flatten)]
    pub(crate) multicast: MulticastArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

/// Fate of installations whose image is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Removal {
    /// They go on, until `archive gc` deletes the content
    Finish,
    /// They end within seconds
    End,
}

/// How a server sends images to many machines at once.
#[derive(Args, Debug)]
pub(crate) struct MulticastArgs {
    /// Send images to many machines at once by multicast over --interface. GROUP is an address from 239.0.0.0 to
    /// 239.255.255.252, and PORT the UDP port (7443 unless given). Up to four images are sent at the same time: the
    /// second one to the next address and port, and so on. Clients need no option: they get the keys over TLS
    #[arg(long, help_heading = MULTICAST, value_name = "GROUP[:PORT]", value_parser = parse_group,
          requires = "interface")]
    pub(crate) multicast: Option<SocketAddrV4>,
    /// File with the key of multicast: 64 hexadecimal digits. --plain needs it, and clients need the same key. Other
    /// users must not be able to read the file. Over TLS the server makes keys of its own
    #[arg(long, help_heading = MULTICAST, value_name = "FILE", requires_all = ["multicast", "plain"],
          conflicts_with = "tokens")]
    pub(crate) multicast_key: Option<PathBuf>,
    /// Maximum number of networks that packets of multicast pass through; with 1 they stay in that of --interface
    #[arg(long, help_heading = MULTICAST, value_name = "HOPS", default_value_t = 1, requires = "multicast",
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Maximum rate of multicast, in bytes a second. Images that are sent at the same time share it
    #[arg(long, help_heading = MULTICAST, value_name = "RATE", default_value = "80M", requires = "multicast")]
    pub(crate) rate: ByteRate,
    /// Minimum rate of each image. Where machines lose packets, it falls to what they receive, but not below this
    #[arg(long, help_heading = MULTICAST, value_name = "RATE", default_value = "1M", requires = "multicast")]
    pub(crate) rate_floor: ByteRate,
    /// Give an image N shares of --rate; others have one. May be repeated
    #[arg(long, help_heading = MULTICAST, value_name = "NAME=N", requires = "multicast", value_parser = parse_weight)]
    pub(crate) weight: Vec<(ImageName, NonZeroU32)>,
    /// Send an image only once this many machines have joined, so that they begin together; see --at-most
    #[arg(long, help_heading = MULTICAST, value_name = "MACHINES", requires = "multicast")]
    pub(crate) wait_for: Option<NonZeroU32>,
    /// Maximum time that --wait-for waits, from the first machine on; up to 15min
    #[arg(long, help_heading = MULTICAST, value_name = "TIME", default_value = "60s", requires = "wait_for",
          value_parser = parse_wait)]
    pub(crate) at_most: Duration,
}

/// Parses how long a session waits for machines.
fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|time| match time <= SESSION_WAIT_MAX {
        true => Ok(time),
        false => Err("expected at most 15min".to_owned()),
    })
}

/// Other ways to make chunks and to repair losses, which measurements compare with the usual ones.
#[derive(Args, Debug)]
pub(crate) struct ComparisonArgs {
    /// How chunks are made. What clients install does not depend on it
    #[arg(long, help_heading = COMPARISON, value_enum, default_value_t = ChunkChoice::OnDemand)]
    pub(crate) chunks: ChunkChoice,
    /// Folder of the chunks of `--chunks prebuilt`. The server makes only chunks that the folder does not have, and
    /// leaves those of removed images there
    #[arg(long, help_heading = COMPARISON, value_name = "DIRECTORY", required_if_eq("chunks", "prebuilt"))]
    pub(crate) chunk_folder: Option<PathBuf>,
    /// Where the headers of chunks come from
    #[arg(long, help_heading = COMPARISON, value_enum, default_value_t = HeaderChoice::Stored,
          conflicts_with = "chunks")]
    pub(crate) headers: HeaderChoice,
    /// Symbols that are sent by multicast to machines that have lost some of a chunk
    #[arg(long, help_heading = COMPARISON, value_enum, default_value_t = RepairChoice::Coded, requires = "multicast")]
    pub(crate) repairs: RepairChoice,
}

/// How chunks are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChunkChoice {
    /// Put together from stored units when a client requests them
    OnDemand,
    /// All of them made when the server starts, and kept as files
    Prebuilt,
    /// As on demand, but each unit is decompressed and compressed again
    Recompress,
}

/// Where headers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderChoice {
    /// Made by the capture, and read when a client requests the chunk
    Stored,
    /// Built when a client requests the chunk, with those of all chunks before it
    AtServe,
}

/// The symbols that are sent to machines that have lost some of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RepairChoice {
    /// Repair symbols of RaptorQ, one of which replaces a different symbol at each machine
    Coded,
    /// The lost symbols themselves, by the bitmaps of all machines
    Bitmaps,
}

/// First byte of the groups that each network uses as it likes. Others belong to protocols.
const LOCAL_GROUPS: u8 = 239;

/// Parses the name of an image and its number of shares.
fn parse_weight(text: &str) -> Result<(ImageName, NonZeroU32), String> {
    let (name, shares) = text.rsplit_once('=').ok_or("expected a name and a number, such as web=3")?;
    let shares = shares.parse().map_err(|_| format!("expected a number from 1 to {}", u32::MAX))?;
    Ok((ImageName::new(name).map_err(|error| error.to_string())?, shares))
}

/// Parses a group of multicast and a port.
fn parse_group(text: &str) -> Result<SocketAddrV4, String> {
    let group = match text.parse() {
        Ok(group) => group,
        Err(_) => {
            SocketAddrV4::new(text.parse().map_err(|_| "expected an IPv4 address, with or without a port")?, PORT)
        }
    };
    // The groups and ports of further images follow this one.
    let further = SESSIONS_MAX - 1;
    let is_local = group.ip().octets()[0] == LOCAL_GROUPS;
    let last_group = u32::from(*group.ip()).checked_add(further.into()).map(|bits| Ipv4Addr::from(bits).octets()[0]);
    let last_port = group.port().checked_add(further.into());
    match is_local && last_group == Some(LOCAL_GROUPS) && group.port() != 0 && last_port.is_some() {
        true => Ok(group),
        false => Err(format!(
            "expected a group from 239.0.0.0 to 239.255.255.{}, such as 239.192.3.7 or 239.192.3.7:7443, and a port \
             from 1 to {}",
            u8::MAX - further,
            u16::MAX - u16::from(further),
        )),
    }
}

/// The certificate of a server. Without any of these, the server makes one at its first start.
#[derive(Args, Debug)]
pub(crate) struct CertificateOptions {
    /// The server's certificate in PEM form; those of authorities between it and the root may follow. Without it, the
    /// server makes a certificate at its first start
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "key", conflicts_with = "plain")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the certificate in PEM form, without a password; other users must not be able to read the file
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Folder that keeps the certificate that the server makes; by default `/var/lib/onefold/serve` for root, and
    /// `onefold/serve` in the state folder of another user
    #[arg(long, help_heading = CERTIFICATES, value_name = "DIRECTORY", conflicts_with_all = ["certificate", "plain"])]
    pub(crate) state: Option<PathBuf>,
}

/// How a client reaches a server of images.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImageServerOptions {
    /// Accept the certificate with this fingerprint and no other, whatever its authority, names and dates: 64
    /// hexadecimal digits, which `image serve` prints when it starts
    #[arg(long, help_heading = SERVERS, value_name = "FINGERPRINT", conflicts_with = "ca")]
    pub(crate) pin: Option<Fingerprint>,
    /// A file with a token of the server, which other users must not be able to read
    #[arg(long, help_heading = SERVERS, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl ImageServerOptions {
    /// Returns whether no option is given.
    pub(crate) fn are_absent(&self) -> bool {
        self.pin.is_none() && self.token_file.is_none()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn all_groups_and_ports_of_a_server_are_local_and_valid() {
        for (text, group) in [
            ("239.0.0.0", "239.0.0.0:7443"),
            ("239.192.3.7:9000", "239.192.3.7:9000"),
            ("239.255.255.252:65532", "239.255.255.252:65532"),
        ] {
            assert_eq!(parse_group(text).map(|group| group.to_string()), Ok(group.to_owned()));
        }
        for text in [
            "224.0.0.5",
            "238.255.255.255",
            "239.255.255.253",
            "240.0.0.0",
            "255.255.255.255",
            "192.0.2.1",
            "239.192.3.7:0",
            "239.192.3.7:65533",
        ] {
            assert!(parse_group(text).unwrap_err().contains("from 239.0.0.0 to 239.255.255.252"), "{text}");
        }
        assert!(parse_group("ff3e::1").unwrap_err().contains("IPv4"));
    }

    #[test]
    fn no_option_of_a_server_is_given_for_its_status() {
        let parse = |options: &str| {
            let line = format!("onefold image serve --status https://imager:7443 {options}");
            Cli::try_parse_from(line.split_whitespace()).map(|_| ()).map_err(|error| error.kind())
        };
        assert_eq!(parse("--watch --token-file token"), Ok(()));
        for options in
            ["/srv/archive", "--plain", "--memory 1G", "--removed end", "--chunks recompress", "--headers stored"]
        {
            assert_eq!(parse(options), Err(ErrorKind::ArgumentConflict), "{options}");
        }
    }

    #[test]
    fn a_weight_is_a_name_and_a_number_of_shares() {
        let (name, shares) = parse_weight("lab/web=3").unwrap();
        assert_eq!((name.as_str(), shares.get()), ("lab/web", 3));
        for text in ["web", "web=", "web=0", "web=-1", "=3", "web=4294967296"] {
            assert!(parse_weight(text).is_err(), "{text}");
        }
    }
}

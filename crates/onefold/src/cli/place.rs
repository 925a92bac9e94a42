//! The argument that names an archive, and the options of object stores.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::values::parse_duration;

/// Heading of the options of object stores.
const HEADING: &str = "Object stores";

/// An archive: a folder, or a part of a bucket.
#[derive(Args, Clone, Debug)]
pub(crate) struct ArchiveArg {
    /// The archive: a folder, or `s3://BUCKET/PREFIX`
    #[arg(value_name = "ARCHIVE")]
    pub(crate) archive: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// How an object store is reached. Environment variables and files of Amazon's tools say what is not given here.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StoreOptions {
    /// Address of the server; without it that of `AWS_ENDPOINT_URL`, or Amazon's
    #[arg(long, help_heading = HEADING, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Region of the bucket; without it that of `AWS_REGION`
    #[arg(long, help_heading = HEADING)]
    pub(crate) region: Option<String>,
    /// A file of certificates in PEM form to trust besides the system's
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Allow a plain connection to another machine, over which anybody may read what is sent
    #[arg(long, help_heading = HEADING)]
    pub(crate) allow_http: bool,
    /// Promise that there is never more than one writer, for a server that cannot create an object only if it is absent
    #[arg(long, help_heading = HEADING)]
    pub(crate) one_writer: bool,
    /// How long to wait for a server that does not answer, such as 5min; by default 15min, or 30s for a server of
    /// images that has never answered
    #[arg(long, help_heading = HEADING, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) patience: Option<Duration>,
}

impl StoreOptions {
    /// Returns whether no option is given.
    pub(crate) fn are_absent(&self) -> bool {
        let StoreOptions { endpoint, region, ca, allow_http, one_writer, patience } = self;
        let has_value = endpoint.is_some() || region.is_some() || ca.is_some() || patience.is_some();
        !has_value && !allow_http && !one_writer
    }
}

impl Deref for ArchiveArg {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.archive
    }
}

impl AsRef<Path> for ArchiveArg {
    fn as_ref(&self) -> &Path {
        &self.archive
    }
}

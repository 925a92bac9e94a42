//! The network edge of the archive of disk images: a [store](onefold_image::store::Store) in an S3 bucket, the server
//! of images and its client.
//!
//! The libraries below are asynchronous; nothing above this crate is. Each [`S3Store`], [`ImageServer`] and
//! [`RemoteArchive`] owns a small runtime, and its calls block the thread that makes them. The crate knows no format of
//! the archive, and decides nothing about what is sent. Repetition of a store's calls is not its task either:
//! `onefold_image::store::RetryingStore` does that, by a policy that the simulation can test.
//!
//! Modules from the bottom up: `ini`, `place` (the names of buckets), `settings` (address, region, credentials, from
//! options and the usual files), `client` (how requests are sent), `answer` (what an error of the library means), `s3`
//! (the store); `private` (files with secrets), `tls` (certificates), `token` and `origin` (what a client shows to be
//! let at an image), `report` (how far an installation is), `server` (chunks and images over HTTP), `remote` (its
//! client).

#![forbid(unsafe_code)]

mod answer;
mod client;
mod error;
mod ini;
mod multicast;
mod origin;
mod place;
mod private;
mod remote;
mod report;
mod s3;
mod server;
mod settings;
mod tls;
mod token;

pub use error::NetError;
pub use multicast::MulticastKey;
pub use place::S3Place;
pub use remote::{
    GroupOptions, GroupReport, GroupTransport, GroupWay, InstallReporter, NoteHook, ProgressHook, RemoteArchive,
    RemoteOptions, RemoteTransport, ReportPlace, SharedGroupReport, StatusClient,
};
pub use report::{
    HttpCause, InstallProgress, InstallStages, InstallState, LimitingStage, MACHINE_NAME_CHARS_MAX, MachineStatus,
    ServerStatus, SessionStatus, StageProgress,
};
pub use s3::S3Store;
pub use server::{ImageServer, LogHook, LogLine, MulticastOptions, RemovalPolicy, SESSIONS_MAX, ServerOptions};
pub use settings::{Environment, Options, Settings};
pub use tls::{Fingerprint, InvalidFingerprint, ServerIdentity};
pub use token::AccessToken;

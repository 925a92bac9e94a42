//! The store of an archive: a folder, or a part of a bucket.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_block::{Clock, Show};
use onefold_image::store::{
    CallCounts, FolderStore, RetryPolicy, RetryingStore, StoppableStore, Store, StoreError, WaitHook,
};
use onefold_net::{Options, S3Place, S3Store, Settings};

use crate::cli::place::{ArchiveArg, StoreOptions};
use crate::failure::{Failure, Outcome};
use crate::interrupt::{Interrupt, InterruptibleClock};
use crate::output::print_note;
use crate::progress::duration;

/// Returns a view of a store.
type View<'v> = dyn Fn(Arc<dyn Store>) -> Arc<dyn Store> + 'v;

/// Where an archive is, and how its store is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchivePlace<'a> {
    pub(crate) path: &'a Path,
    /// `None` where the command line has no options of stores.
    options: Option<&'a StoreOptions>,
}

impl<'a> From<&'a ArchiveArg> for ArchivePlace<'a> {
    fn from(argument: &'a ArchiveArg) -> ArchivePlace<'a> {
        ArchivePlace { path: &argument.archive, options: Some(&argument.store) }
    }
}

impl<'a> From<&'a Path> for ArchivePlace<'a> {
    fn from(path: &'a Path) -> ArchivePlace<'a> {
        ArchivePlace { path, options: None }
    }
}

impl<'a> From<&'a PathBuf> for ArchivePlace<'a> {
    fn from(path: &'a PathBuf) -> ArchivePlace<'a> {
        ArchivePlace { path, options: None }
    }
}

impl ArchivePlace<'_> {
    /// Opens the store.
    pub(crate) fn open(&self) -> Outcome<Arc<dyn Store>> {
        self.open_as(&|store| store, Arc::new(SystemClock))
    }

    /// As [`ArchivePlace::open`]; the store makes no call and no longer waits once the user interrupts the command.
    pub(crate) fn open_stoppable(&self, interrupt: &Interrupt, counts: &Arc<CallCounts>) -> Outcome<Arc<dyn Store>> {
        let view = |store: Arc<dyn Store>| -> Arc<dyn Store> {
            let interrupt = interrupt.clone();
            let is_stopped = Box::new(move || interrupt.is_asked());
            Arc::new(StoppableStore::new(store, is_stopped, Arc::clone(counts)))
        };
        self.open_as(&view, Arc::new(InterruptibleClock(interrupt.clone())))
    }

    /// Opens the store with a view directly on it, below the one that waits by `clock` where the store does not answer.
    fn open_as(&self, view: &View<'_>, clock: Arc<dyn Clock>) -> Outcome<Arc<dyn Store>> {
        let cannot = || format!("cannot open the archive `{}`", self.path.shown());
        match self.bucket() {
            Some(text) => self.open_bucket(text, view, clock).map_err(|failure| failure.wrap(cannot())),
            None => match FolderStore::open(self.folder()?) {
                Ok(store) => Ok(view(Arc::new(store))),
                Err(StoreError::Io { source, .. }) if is_wrong_path(&source) => {
                    Err(Failure::new(cannot()).because(&source).hint(WRONG_PATH))
                }
                Err(error) => Err(Failure::of_archive(cannot(), &error.into())),
            },
        }
    }

    /// Opens the store, and makes its folder if there is none.
    pub(crate) fn create(&self) -> Outcome<Arc<dyn Store>> {
        if self.bucket().is_some() {
            return self.open();
        }
        let cannot = || format!("cannot create an archive in `{}`", self.path.shown());
        match FolderStore::create(self.folder()?) {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(Failure::of_archive(cannot(), &error.into())),
        }
    }

    /// Returns the text of a place in a bucket.
    fn bucket(&self) -> Option<&str> {
        self.path.to_str().filter(|text| S3Place::is_meant(text))
    }

    /// Returns the folder, with which options of object stores make no sense.
    fn folder(&self) -> Outcome<&Path> {
        if self.path.to_str().is_some_and(|text| text.starts_with("http://") || text.starts_with("https://")) {
            return Err(Failure::usage(format!("`{}` is a server of images, and no archive", self.path.shown()))
                .hint("`onefold image install` takes images from a server; other commands need its archive"));
        }
        match self.options {
            Some(options) if !options.are_absent() => {
                Err(Failure::usage(format!("`{}` is a folder", self.path.shown()))
                    .because_of("--endpoint, --region, --ca, --allow-http, --one-writer and --patience are for buckets")
                    .hint("a place in a bucket begins with `s3://`"))
            }
            _ => Ok(self.path),
        }
    }

    fn open_bucket(&self, text: &str, view: &View<'_>, clock: Arc<dyn Clock>) -> Outcome<Arc<dyn Store>> {
        let given = self.options.cloned().unwrap_or_default();
        let patience = given.patience.unwrap_or(PATIENCE);
        let policy = RetryPolicy { patience, ..RetryPolicy::default() };
        let options = Options {
            endpoint: given.endpoint,
            region: given.region,
            ca: given.ca,
            allow_http: given.allow_http,
            one_writer: given.one_writer,
        };
        let store = text.parse().and_then(|place: S3Place| {
            let settings = Settings::find(&options, &|name: &str| std::env::var_os(name))?;
            S3Store::open(place, &settings)
        });
        let store = store.map_err(|error| Failure::of_net("the store cannot be used", &error))?;
        let store = view(Arc::new(store));
        let on_wait = tell_of_waits("the store", waiting_limit(patience));
        Ok(Arc::new(RetryingStore::new(store, clock, Arc::new(SystemRandom), policy, on_wait)))
    }
}

/// The hint where no folder is.
const WRONG_PATH: &str = "check the path; `onefold archive create` makes a new archive";

fn is_wrong_path(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// How long a store or a server that does not answer is waited for, if nothing else is asked.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// Pauses from which on the user is told.
const TOLD: Duration = Duration::from_secs(1);

/// Returns how long a command waits, in words: "after 30 s". Parts of a second count as one.
pub(crate) fn waiting_limit(patience: Duration) -> String {
    format!("after {}", duration(patience.as_secs() + u64::from(patience.subsec_nanos() > 0)))
}

/// Returns a function that tells the user, once, that the store, or what `what` names, does not answer, and when the
/// command gives up.
pub(crate) fn tell_of_waits(what: &'static str, limit: String) -> WaitHook {
    let has_told = AtomicBool::new(false);
    Box::new(move |error, pause| {
        if pause >= TOLD && !has_told.swap(true, Ordering::Relaxed) {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            print_note(&waiting_text(what, &limit, &source));
        }
    })
}

fn waiting_text(what: &str, limit: &str, source: &str) -> String {
    format!("waiting for {what}, which does not answer: {source}; gives up {limit} (--patience)")
}

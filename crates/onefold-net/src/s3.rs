//! A store in a bucket.
//!
//! Each call is one request, except that a creation which finds an object reads one byte of it: an answer `409` to a
//! creation means that another one is under way, not that the object exists. Uploads are single requests, never
//! multipart ones, as some servers ignore conditions on those.

use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use onefold_block::Timestamp;
use onefold_image::store::{ByteRange, Creation, ListedObject, ObjectName, Refusal, Store, StoreError};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};

use crate::answer::Answer;
use crate::client::Connector;
use crate::settings::Credentials;
use crate::{NetError, S3Place, Settings};

/// Threads of the runtime. The threads of callers hash and sign what they send.
const THREADS: usize = 2;
/// How long a call may take, besides the time for its bytes.
const CALL: Duration = Duration::from_secs(60);
/// Slowest transfer that is waited for, in bytes a second.
const BYTES_PER_SECOND_MIN: u64 = 128 << 10;
/// Maximum number of objects in a page of a listing.
const LIST_MAX: usize = 1000;
/// Maximum number of pages of which a listing may leave everything out.
const PAGES_MAX: usize = 100_000;
/// Maximum number of bytes that a call returns.
const GET_BYTES_MAX: u64 = 1 << 31;
/// Offset behind the end of any object.
const OBJECT_BYTES_MAX: u64 = 1 << 50;

/// A store in a bucket, or in the part of it below a prefix.
pub struct S3Store {
    client: AmazonS3,
    place: S3Place,
    /// The address of the server, unless it is that of the region.
    endpoint: Option<String>,
    one_writer: bool,
    /// Dropped last: connections belong to it.
    runtime: Runtime,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store").field("place", &self.place).finish_non_exhaustive()
    }
}

impl S3Store {
    /// Returns the store at a place. Sends no request yet.
    ///
    /// # Errors
    /// When the settings make no sense, or no thread can be started.
    pub fn open(place: S3Place, settings: &Settings) -> Result<S3Store, NetError> {
        // Fails if the process has a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cannot = |error: &dyn fmt::Display| NetError::Client(error.to_string());
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("net").enable_all().build();
        let runtime = runtime.map_err(|error| cannot(&error))?;
        let Credentials { key, secret, token } = &settings.credentials;
        let retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(place.bucket())
            .with_region(&settings.region)
            .with_access_key_id(key)
            .with_secret_access_key(secret)
            .with_client_options(ClientOptions::new().with_allow_http(settings.is_plain))
            .with_http_connector(Connector::new(settings)?)
            // Some servers lack the request that deletes several objects.
            .with_disable_bulk_delete(true)
            .with_retry(retries);
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(token) = token {
            builder = builder.with_token(token);
        }
        // The client's own tasks begin on the runtime.
        let client = {
            let _guard = runtime.enter();
            builder.build().map_err(|error| cannot(&error))?
        };
        let endpoint = settings.endpoint.clone();
        Ok(S3Store { client, place, endpoint, one_writer: settings.one_writer, runtime })
    }

    /// Waits for a request, for as long as `bytes` may take.
    fn wait<T>(&self, bytes: u64, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Answer> {
        let limit = CALL + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        self.runtime.block_on(async {
            match tokio::time::timeout(limit, request).await {
                Ok(answer) => answer.map_err(|error| Answer::of(&error)),
                Err(_) => Err(Answer::late()),
            }
        })
    }

    fn path(&self, name: &ObjectName) -> Path {
        Path::from(self.place.key(name.as_str()))
    }

    /// Reads the answer to a request for a part of an object.
    fn read(&self, name: &ObjectName, range: Option<GetRange>, bytes_max: u64) -> Result<Vec<u8>, Answer> {
        let options = GetOptions { range, ..GetOptions::default() };
        let path = self.path(name);
        self.runtime.block_on(async {
            let began = Instant::now();
            // The length of a whole object is not known, so each byte that came gives time for further ones.
            let limit = |bytes: &[u8]| began + CALL + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND_MIN);
            let late = |_| Answer::late();
            let failed = |error: object_store::Error| Answer::of(&error);
            let mut bytes = Vec::new();
            let answer = timeout_at(limit(&bytes), self.client.get_opts(&path, options)).await.map_err(late)?;
            let mut parts = answer.map_err(failed)?.into_stream();
            while let Some(part) = timeout_at(limit(&bytes), parts.next()).await.map_err(late)? {
                let part = part.map_err(failed)?;
                let left = bytes_max.saturating_sub(bytes.len() as u64);
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(part.len());
                bytes.extend_from_slice(&part[..taken]);
                if taken < part.len() {
                    // The server sends more than it was asked for. The reader verifies what it gets.
                    break;
                }
            }
            Ok(bytes)
        })
    }

    /// Returns whether an object exists.
    fn exists(&self, name: &ObjectName) -> Result<bool, Answer> {
        match self.read(name, Some(GetRange::Bounded(0..1)), 1) {
            Ok(_) | Err(Answer::OutOfRange) => Ok(true),
            Err(Answer::Missing) => Ok(false),
            Err(answer) => Err(answer),
        }
    }

    fn send(&self, name: &ObjectName, bytes: Vec<u8>, mode: PutMode) -> Result<(), Answer> {
        let (path, length) = (self.path(name), bytes.len() as u64);
        self.wait(length, async { self.client.put_opts(&path, PutPayload::from(bytes), mode.into()).await.map(drop) })
    }
}

/// Returns the answer to a write that another one delays, and that has made no object.
fn under_way() -> Answer {
    Answer::Unavailable(io::Error::other("another write of the object is under way"))
}

impl Store for S3Store {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let (range, bytes_max) = match range {
            ByteRange::Whole => (None, GET_BYTES_MAX),
            ByteRange::From { offset, length_bytes } => {
                // A range cannot be empty: one byte shows whether the object exists.
                let offset = offset.min(OBJECT_BYTES_MAX);
                let end = offset.saturating_add(length_bytes.clamp(1, GET_BYTES_MAX));
                (Some(GetRange::Bounded(offset..end)), length_bytes.min(GET_BYTES_MAX))
            }
            ByteRange::Last { length_bytes } => {
                let length = length_bytes.min(GET_BYTES_MAX);
                (Some(GetRange::Suffix(length.max(1))), length)
            }
        };
        match self.read(name, range, bytes_max) {
            Err(Answer::OutOfRange) => Ok(Vec::new()),
            read => read.map_err(|answer| answer.error("read", name.as_str())),
        }
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        match self.send(name, parts.concat(), PutMode::Overwrite) {
            Err(Answer::Exists) => Err(under_way().error("write", name.as_str())),
            sent => sent.map_err(|answer| answer.error("write", name.as_str())),
        }
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        let failed = |answer: Answer| answer.error("create", name.as_str());
        if self.one_writer && self.exists(name).map_err(failed)? {
            return Ok(Creation::Exists);
        }
        match self.send(name, bytes.to_vec(), PutMode::Create) {
            Ok(()) => Ok(Creation::New),
            Err(Answer::Exists) => match self.exists(name).map_err(failed)? {
                true => Ok(Creation::Exists),
                false => Err(failed(under_way())),
            },
            Err(Answer::Refused(Refusal::Condition, _)) if self.one_writer => {
                self.send(name, bytes.to_vec(), PutMode::Overwrite).map(|()| Creation::New).map_err(failed)
            }
            Err(answer) => Err(failed(answer)),
        }
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        let whole = self.place.to_string();
        let shown = if prefix.is_empty() { whole.as_str() } else { prefix };
        let failed = |answer: Answer| answer.error("list", shown);
        let key = self.place.key(prefix);
        let offset = after.map(|after| self.place.key(after.as_str()));
        let mut token = None;
        let mut found: Vec<ListedObject> = Vec::new();
        // A page may hold less than was asked for although others follow. Objects of others are left out, too.
        for _ in 0..PAGES_MAX {
            let options = PaginatedListOptions {
                offset: offset.clone(),
                max_keys: Some(LIST_MAX),
                page_token: token.take(),
                ..PaginatedListOptions::default()
            };
            let page = self.wait(0, self.client.list_paginated(Some(&key), options)).map_err(failed)?;
            for object in page.result.objects {
                let name = self.place.name(object.location.as_ref()).and_then(ObjectName::new);
                if let Some(name) = name.filter(|name| after.is_none_or(|after| name > after)) {
                    let modified = Timestamp {
                        seconds: object.last_modified.timestamp(),
                        // A leap second has more than a thousand million nanoseconds.
                        nanoseconds: object.last_modified.timestamp_subsec_nanos().min(999_999_999),
                    };
                    found.push(ListedObject { name, length_bytes: object.size, modified });
                }
            }
            token = page.page_token;
            if token.is_none() || found.len() >= LIST_MAX {
                found.sort_by(|one, other| one.name.cmp(&other.name));
                found.dedup_by(|one, other| one.name == other.name);
                found.truncate(LIST_MAX);
                return Ok(found);
            }
        }
        Err(failed(Answer::Refused(Refusal::Other, io::Error::other("the listing has no end"))))
    }

    fn place(&self) -> Vec<u8> {
        format!("{} {}", self.place, self.endpoint.as_deref().unwrap_or_default()).into_bytes()
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        let path = self.path(name);
        match self.wait(0, async { self.client.delete(&path).await }) {
            Ok(()) | Err(Answer::Missing) => Ok(()),
            Err(answer) => Err(answer.error("remove", name.as_str())),
        }
    }
}

//! Requests to a server of images. One that is not answered is repeated, so that a client outlasts a server that is
//! started again and a network that is gone for a while.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onefold_block::Random;
use onefold_block::random::SystemRandom;
use onefold_image::archive::ArchiveError;
use onefold_image::format::FormatError;
use onefold_image::format::wire::{CHUNK_BYTES_MAX, UNITS_BYTES_MAX, encode_names};
use onefold_image::remote::{Chunks, Transport};
use onefold_image::store::{Refusal, RetryPolicy, StoreError, WaitHook};
use onefold_image::{ImageVersion, UnitName};
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, StatusCode, Url};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::failure::{Failure, late, lost, strange};
use super::list::{ServerList, parse};
use crate::NetError;
use crate::origin::Origin;
use crate::settings::{is_loopback, is_plain, read_certificates};
use crate::tls::{Fingerprint, pinned_config};
use crate::token::AccessToken;

/// Threads of the runtime. Those of the caller decompress and write.
const THREADS: usize = 2;
/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a server may take to begin its answer, as it may wait for a store itself.
const ANSWER: Duration = Duration::from_secs(60);
/// How long the next bytes of an answer may take, and slowest answer that is waited for, in bytes a second.
const BYTES: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// A connection whose other side is silent for so long is given up: the kernel asks it in between.
const SILENCE: Duration = Duration::from_secs(10);
/// Connections are not used again after so much idleness, which is sooner than the server closes them.
const IDLE: Duration = Duration::from_secs(15);
/// Longest pause before a request is repeated. It decides how soon a client is back when its server is.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Number of chunks that have come and that nobody has taken yet.
const CHUNKS_AHEAD: usize = 1;
/// Maximum length of a list of images in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// How old the list of a server may be, and somewhat more.
const LIST_AGE: Duration = Duration::from_millis(1100);
/// Maximum length of the answer to what is posted once, in bytes.
const POSTED_BYTES_MAX: u64 = 4096;
/// Maximum number of bytes of the text of a refusal that are shown.
const TEXT_BYTES_MAX: u64 = 300;

/// How a server is reached.
pub struct RemoteOptions {
    /// A file of certificates that are trusted besides those of the system.
    pub ca: Option<std::path::PathBuf>,
    /// The fingerprint of the server's certificate. Given one, nothing else of the certificate counts, and plain
    /// connections are refused.
    pub pin: Option<Fingerprint>,
    /// The token by which the server knows what this client may read. It goes over no plain connection.
    pub token: Option<AccessToken>,
    /// Whether a plain connection may lead to another machine.
    pub allow_http: bool,
    /// How long a server that does not answer is waited for.
    pub patience: Duration,
    /// The same for a server that has never answered.
    pub first_patience: Duration,
    /// Called before each pause.
    pub on_wait: WaitHook,
}

/// Requests to one server.
pub struct RemoteTransport {
    requests: Arc<Requests>,
    /// Dropped last: connections belong to it.
    runtime: Arc<Runtime>,
}

/// Requests that bring nothing: what they tell is for the server.
#[derive(Clone)]
pub(super) struct Reports(Arc<Requests>);

struct Requests {
    client: Client,
    base: Url,
    /// The value of the header with the token.
    authorization: Option<HeaderValue>,
    /// Digest of the manifest of the image that is read, which requests state.
    manifest: Mutex<Option<UnitName>>,
    /// The address for messages.
    text: String,
    policy: RetryPolicy,
    first_patience: Duration,
    /// Whether the server has answered any request.
    has_answered: AtomicBool,
    /// Nanoseconds that callers have waited for units and chunks.
    waited: AtomicU64,
    on_wait: WaitHook,
    random: SystemRandom,
}

/// One request.
#[derive(Clone)]
struct Request {
    /// The path below the address of the server.
    path: String,
    /// The body of a POST.
    body: Option<Vec<u8>>,
    /// The chunk that has the units that it asks for.
    chunk: Option<UnitName>,
    bytes_max: u64,
}

impl fmt::Debug for RemoteTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTransport").field("server", &self.requests.text).finish_non_exhaustive()
    }
}

impl RemoteTransport {
    /// Prepares requests to a server. Sends none yet.
    ///
    /// # Errors
    /// When the address is invalid, or a plain connection to another machine that is not allowed; when certificates
    /// cannot be read, or no thread can be started.
    pub fn new(address: &str, options: RemoteOptions) -> Result<RemoteTransport, NetError> {
        // Fails if the process has a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let is_plain = is_plain(address, options.allow_http)?;
        let failed = |error: reqwest::Error| NetError::Client(error.to_string());
        let mut builder = Client::builder()
            // A redirect may lead to any other host.
            .redirect(Policy::none())
            .https_only(!is_plain)
            // Several connections at once share neither a window nor a thread that decrypts.
            .http1_only()
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_keepalive(SILENCE / 2)
            .tcp_keepalive_interval(SILENCE / 5)
            .tcp_user_timeout(SILENCE);
        if is_plain {
            builder = builder.no_proxy();
        }
        match (&options.pin, &options.ca) {
            (Some(_), _) if is_plain => {
                let text = address.to_owned();
                return Err(NetError::Endpoint { text, what: "a plain connection has no certificate to pin" });
            }
            (Some(pin), _) => builder = builder.tls_backend_preconfigured(pinned_config(*pin)?),
            (None, Some(path)) => {
                let certificates = Certificate::from_pem_bundle(&read_certificates(path)?).map_err(failed)?;
                builder = builder.tls_certs_merge(certificates);
            }
            (None, None) => {}
        }
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("net").enable_all().build();
        let runtime = runtime.map_err(|error| NetError::Client(error.to_string()))?;
        let text = address.trim_end_matches('/').to_owned();
        // With a slash at the end, so that paths are appended.
        let base = Url::parse(&format!("{text}/"));
        let base = base.map_err(|_| NetError::Endpoint { text: text.clone(), what: "it is no address" })?;
        if options.token.is_some() && is_plain && !is_loopback(&base) {
            return Err(NetError::PlainToken { text });
        }
        let authorization = options.token.as_ref().map(|token| HeaderValue::try_from(token.authorization()));
        let mut authorization = authorization.transpose().map_err(|error| NetError::Client(error.to_string()))?;
        // No message of the library shows it.
        authorization.iter_mut().for_each(|value| value.set_sensitive(true));
        let policy = RetryPolicy { longest_pause: PAUSE_MAX, patience: options.patience, ..RetryPolicy::default() };
        let client = builder.build().map_err(failed)?;
        let RemoteOptions { first_patience, on_wait, .. } = options;
        let has_answered = AtomicBool::new(false);
        let requests = Requests {
            client,
            base,
            authorization,
            manifest: Mutex::default(),
            text,
            policy,
            first_patience,
            has_answered,
            waited: AtomicU64::new(0),
            on_wait,
            random: SystemRandom,
        };
        Ok(RemoteTransport { requests: Arc::new(requests), runtime: Arc::new(runtime) })
    }

    /// Returns what a path leads to.
    ///
    /// # Errors
    /// When there is nothing, or as [`RemoteTransport::find`].
    pub(super) fn get(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, ArchiveError> {
        match self.find(path, bytes_max)? {
            Some(bytes) => Ok(bytes),
            None => {
                let nothing = io::Error::other("404: there is nothing here");
                Err(self.requests.refused(path, Refusal::ImageServer, nothing).into())
            }
        }
    }

    /// Posts a body once, in the background, and passes the answer: `None` if there is none, or a refusal. The answer
    /// has at most [`POSTED_BYTES_MAX`] bytes.
    pub(super) fn post_once(&self, path: &str, body: Vec<u8>, done: impl FnOnce(Option<Vec<u8>>) + Send + 'static) {
        let request = Request { path: path.to_owned(), body: Some(body), chunk: None, bytes_max: POSTED_BYTES_MAX };
        let requests = Arc::clone(&self.requests);
        self.runtime.spawn(async move { done(requests.once(&request).await.ok()) });
    }

    /// Returns what sends reports to the server, and the runtime for that. No task of the runtime may own it.
    pub(super) fn reports(&self) -> (Reports, Arc<Runtime>) {
        (Reports(Arc::clone(&self.requests)), Arc::clone(&self.runtime))
    }

    /// Returns what a path leads to; `None` if there is nothing.
    ///
    /// # Errors
    /// When the server does not answer, refuses, or sends more than `bytes_max`.
    pub(super) fn find(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let request = Request { path: path.to_owned(), body: None, chunk: None, bytes_max };
        Ok(self.runtime.block_on(self.requests.repeat(&request))?)
    }

    /// Returns the images that the server has, by its own word, and whether it sends them by multicast.
    ///
    /// # Errors
    /// When the server does not answer, refuses, or sends no list of images.
    pub(super) fn list(&self) -> Result<ServerList, ArchiveError> {
        let list = self.get("v1/images", LIST_BYTES_MAX)?;
        let invalid = FormatError::Value { structure: "list of images", what: "it is no list of images" };
        parse(&list).ok_or_else(|| ArchiveError::refused("list of images".to_owned(), invalid))
    }

    /// Returns whether connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.requests.base.scheme() == "https"
    }

    /// Notes which image is read from now on, by the digest of its manifest.
    pub(super) fn set_manifest(&self, digest: [u8; 32]) {
        *self.requests.manifest.lock() = Some(UnitName(digest));
    }

    fn request_units(&self, chunk: Option<UnitName>, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        let body = Some(encode_names(names));
        let request = Request { path: "v1/units".to_owned(), body, chunk, bytes_max: UNITS_BYTES_MAX as u64 };
        // The server says that one of them is missing, and not which.
        let answer = self.requests.waiting(|| self.runtime.block_on(self.requests.repeat(&request)));
        answer?.ok_or(ArchiveError::Lost { unit: names[0] })
    }
}

impl Reports {
    /// Returns the address of the server.
    pub(super) fn server(&self) -> &Url {
        &self.0.base
    }

    /// Posts a report once. Returns the beginning of the answer; without one, the report is lost.
    pub(super) async fn send(&self, path: &str, report: Vec<u8>) -> Option<Response> {
        let request = Request { path: path.to_owned(), body: Some(report), chunk: None, bytes_max: POSTED_BYTES_MAX };
        self.0.answer(&request).await.ok()
    }

    /// Returns half of a pause plus a random part of the other half.
    pub(super) fn jitter(&self, pause: Duration) -> Duration {
        self.0.jitter(pause)
    }
}

impl Transport for RemoteTransport {
    fn server(&self) -> &str {
        &self.requests.text
    }

    fn units(&self, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        self.request_units(None, names)
    }

    fn units_of(&self, chunk: &UnitName, names: &[UnitName]) -> Result<Vec<u8>, ArchiveError> {
        self.request_units(Some(*chunk), names)
    }

    fn waited(&self) -> Duration {
        Duration::from_nanos(self.requests.waited.load(Ordering::Relaxed))
    }

    /// A server may know for a moment longer than others that an image is there, so it is asked again.
    fn has_image(&self, image: &ImageVersion) -> Result<bool, ArchiveError> {
        let is_listed = || Ok(self.list()?.records.iter().any(|record| record.image == *image));
        if !is_listed()? {
            return Ok(false);
        }
        self.runtime.block_on(async { sleep(LIST_AGE).await });
        is_listed()
    }

    fn chunks(&self, names: &[UnitName]) -> Chunks<'_> {
        let (sender, mut receiver) = mpsc::channel(CHUNKS_AHEAD);
        let (requests, names, waiting) = (Arc::clone(&self.requests), names.to_vec(), Arc::clone(&self.requests));
        self.runtime.spawn(async move {
            for name in names {
                let path = format!("v1/chunks/{name}");
                let request = Request { path, body: None, chunk: None, bytes_max: CHUNK_BYTES_MAX as u64 };
                let answer = match requests.repeat(&request).await {
                    Ok(bytes) => bytes.ok_or(ArchiveError::Lost { unit: name }),
                    Err(error) => Err(error.into()),
                };
                let is_over = answer.is_err();
                if sender.send(answer).await.is_err() || is_over {
                    return;
                }
            }
        });
        Box::new(std::iter::from_fn(move || waiting.waiting(|| receiver.blocking_recv())))
    }
}

impl Requests {
    /// Waits for the server, and counts the time.
    fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = wait();
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(waited, Ordering::Relaxed);
        answer
    }

    /// Makes a request until it is answered, or patience ends.
    async fn repeat(&self, request: &Request) -> Result<Option<Vec<u8>>, StoreError> {
        let mut began = None;
        let mut pause = self.policy.first_pause;
        loop {
            let source = match self.once(request).await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Failure::Missing) => return Ok(None),
                Err(Failure::Refused(why, source)) => return Err(self.refused(&request.path, why, source)),
                Err(Failure::Unavailable(source)) => source,
            };
            let (action, name) = ("read", self.name(&request.path));
            let waited = began.get_or_insert_with(Instant::now).elapsed();
            let left = self.patience().saturating_sub(waited);
            if left.is_zero() {
                return Err(StoreError::GaveUp { action, name, source });
            }
            let chosen = self.jitter(pause).min(left);
            (self.on_wait)(&StoreError::Unavailable { action, name, source }, chosen);
            sleep(chosen).await;
            pause = (2 * pause).min(self.policy.longest_pause);
        }
    }

    async fn once(&self, request: &Request) -> Result<Vec<u8>, Failure> {
        let answer = self.answer(request).await?;
        match answer.status() {
            StatusCode::OK => body(answer, request.bytes_max).await,
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(Failure::Missing),
            StatusCode::UNAUTHORIZED => {
                Err(Failure::Refused(Refusal::Token, io::Error::other(Refusal::Token.to_string())))
            }
            status => {
                let is_waiting = matches!(status.as_u16(), 408 | 429 | 502..=504);
                let text = match status.is_redirection() {
                    true => "a redirect, which is not followed".to_owned(),
                    false => String::from_utf8_lossy(&beginning(answer, TEXT_BYTES_MAX).await).trim().to_owned(),
                };
                let source = io::Error::other(format!("the server says {}: {text}", status.as_u16()));
                Err(if is_waiting { Failure::Unavailable(source) } else { strange(source) })
            }
        }
    }

    /// Returns the beginning of the answer to a request, whatever its status is.
    async fn answer(&self, request: &Request) -> Result<Response, Failure> {
        let url = self.base.join(&request.path).map_err(|error| strange(io::Error::other(error)))?;
        let sent = match &request.body {
            None => self.client.get(url),
            Some(body) => self.client.post(url).body(body.clone()),
        };
        let origin = Origin { manifest: *self.manifest.lock(), chunk: request.chunk };
        let sent = sent.headers(origin.headers());
        let sent = match &self.authorization {
            None => sent,
            Some(authorization) => sent.header(AUTHORIZATION, authorization.clone()),
        };
        let answer = timeout(ANSWER, sent.send()).await.map_err(|_| late())?.map_err(|error| lost(&error))?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Returns how long the server is waited for.
    fn patience(&self) -> Duration {
        if self.has_answered.load(Ordering::Relaxed) { self.policy.patience } else { self.first_patience }
    }

    fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.text)
    }

    fn refused(&self, path: &str, why: Refusal, source: io::Error) -> StoreError {
        StoreError::Refused { action: "read", name: self.name(path), why, source }
    }

    /// Returns half of a pause plus a random part of the other half, so that clients that lost a server at the same
    /// time do not return at the same time.
    fn jitter(&self, pause: Duration) -> Duration {
        let mut bytes = [0; 4];
        match self.random.fill(&mut bytes) {
            Ok(()) => pause / 2 + (pause / 2).mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)),
            Err(_) => pause,
        }
    }
}

/// Reads the body of an answer. Each byte that came gives time for further ones, but not for ever.
async fn body(mut answer: Response, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let too_long = || strange(io::Error::other(format!("the answer has more than {bytes_max} bytes")));
    let stated = answer.content_length();
    if stated.is_some_and(|stated| stated > bytes_max) {
        return Err(too_long());
    }
    let began = Instant::now();
    // A stated length takes no memory before the bytes come.
    let mut bytes = Vec::new();
    loop {
        let slowest = began + BYTES + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND_MIN);
        let next = timeout_at(slowest.min(Instant::now() + BYTES), answer.chunk()).await.map_err(|_| late())?;
        match next.map_err(|error| lost(&error))? {
            None => return Ok(bytes),
            Some(part) if (bytes.len() + part.len()) as u64 > bytes_max => return Err(too_long()),
            Some(part) => bytes.extend_from_slice(&part),
        }
    }
}

/// Returns the beginning of a body, as far as it comes soon.
async fn beginning(mut answer: Response, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = Instant::now() + BYTES;
    while let Ok(Ok(Some(part))) = timeout_at(end, answer.chunk()).await {
        bytes.extend_from_slice(&part);
        if bytes.len() as u64 >= bytes_max {
            bytes.truncate(usize::try_from(bytes_max).unwrap_or(0));
            break;
        }
    }
    bytes
}

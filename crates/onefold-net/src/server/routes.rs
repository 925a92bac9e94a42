//! Which address leads to which answer.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, X_CONTENT_TYPE_OPTIONS,
};
use onefold_disk::Disk;
use onefold_image::archive::{ArchiveError, ImageRecord};
use onefold_image::format::wire::{CHUNK_BYTES_MAX, NAMES_MAX, UNITS_BYTES_MAX, decode_names};
use onefold_image::signature::KeyId;
use onefold_image::store::StoreError;
use onefold_image::{ImageName, UnitName};
use serde_json::json;

use super::access::authorize;
use super::body::{Pieces, Stream};
use super::connection::Activity;
use super::digests::{sha256, sha512};
use super::multicast::JoinRefusal;
use super::range::{RequestedRange, asked};
use super::reports::{health, report, status};
use super::room::AnswerRoom;
use super::state::ServerState;
use super::tokens::Rights;
use crate::origin::Origin;

/// How long caches may keep what an address with a digest leads to: for ever.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// Caches look again at content that changes.
pub(super) const LOOK_AGAIN: &str = "no-cache";
/// Room for an answer whose length is not known before it is read, and is small as a rule.
pub(super) const SMALL_BYTES: usize = 4 << 20;

type SharedState = State<Arc<ServerState>>;
type Connection = Extension<Arc<Activity>>;
type Client = Extension<Rights>;

/// Why a request gets no body.
pub(super) enum Problem {
    /// There is no such thing here.
    Missing,
    /// The request makes no sense.
    Request(&'static str),
    /// The client has no right to what it requests.
    Refused(&'static str),
    /// The archive is damaged, or its store fails.
    Archive(ArchiveError),
    /// A thread has ended.
    Server,
}

impl From<ArchiveError> for Problem {
    fn from(error: ArchiveError) -> Problem {
        match error {
            ArchiveError::Lost { .. } | ArchiveError::NoImage { .. } | ArchiveError::Removed { .. } => Problem::Missing,
            error => Problem::Archive(error),
        }
    }
}

/// Returns the routes of a server.
pub(super) fn router(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/v1/archive", get(archive))
        .route("/v1/images", get(images))
        .route("/v1/images/{image}/raw", get(raw))
        .route("/v1/images/{image}/raw.sha256", get(sha256))
        .route("/v1/images/{image}/raw.sha512", get(sha512))
        .route("/v1/manifests/{digest}", get(manifest))
        .route("/v1/manifests/{digest}/signatures/{key}", get(signature))
        .route("/v1/chunks/{name}", get(chunk))
        .route("/v1/units/{name}", get(unit))
        .route("/v1/units", post(units))
        .route("/v1/sessions", get(status))
        .route("/v1/sessions/{digest}", post(join))
        .route("/v1/sessions/{digest}/reports", post(report))
        .layer(DefaultBodyLimit::max(NAMES_MAX * size_of::<UnitName>()))
        .layer(from_fn_with_state(Arc::clone(&state), authorize))
        // The layers above are around the routes above only.
        .route("/v1/health", get(health))
        .with_state(state)
}

async fn archive(State(state): SharedState, Extension(activity): Connection, headers: HeaderMap) -> Response {
    let room = state.room(&activity, SMALL_BYTES).await;
    let read = state.work(&activity, |state| state.archive().descriptor().encode().map_err(ArchiveError::from)).await;
    answer(&state, read, |object| whole(&headers, &digest(&object), LOOK_AGAIN, vec![object.into()], room))
}

async fn images(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    headers: HeaderMap,
) -> Response {
    let room = state.room(&activity, SMALL_BYTES).await;
    let read = state.work(&activity, move |state| Ok::<_, ArchiveError>(list(state, &rights)));
    answer(&state, read.await, |list| {
        let mut response = whole(&headers, &digest(list.as_bytes()), LOOK_AGAIN, vec![list.into()], room);
        set(&mut response, CONTENT_TYPE, "application/json");
        response
    })
}

/// Returns the list of images that a client may read, and whether they are sent by multicast without a key in a file.
fn list(state: &ServerState, rights: &Rights) -> String {
    let image = |record: &ImageRecord| {
        json!({
            "name": record.image.name.as_str(),
            "version": record.image.version,
            "added": record.added.seconds,
            "manifest": record.manifest.to_string(),
            "digest": hexadecimal(&record.digest),
        })
    };
    let images: Vec<_> = state.images(rights).iter().map(image).collect();
    let is_sent = state.sessions().is_some_and(|sessions| sessions.hands_out_keys());
    format!("{:#}\n", json!({ "images": images, "multicast": is_sent }))
}

async fn manifest(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(UnitName(wanted)) = unit_name(&name) else { return no_answer(&state, &Problem::Missing) };
    let mut bytes = SMALL_BYTES;
    let (read, room) = loop {
        let mut room = state.room(&activity, bytes).await;
        let rights = rights.clone();
        let read = state.read_manifest(&activity, move |state| {
            let record = state.find_digest(&rights, wanted).ok_or(Problem::Missing)?;
            Ok::<_, Problem>(state.archive().signed_bytes(&record)?)
        });
        match read.await {
            // The length is known now. Without room for it, the manifest is dropped, and read again when there is room.
            Some(Ok(object)) if object.len() > bytes && !state.grow(&mut room, object.len()) => bytes = object.len(),
            read => break (read, room),
        }
    };
    let validator = hexadecimal(&wanted);
    answer(&state, read, |object| whole(&headers, &validator, FOR_EVER, vec![object.into()], room))
}

async fn signature(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path((name, key)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let (Some(UnitName(wanted)), Some(key)) = (unit_name(&name), KeyId::from_name(&key)) else {
        return no_answer(&state, &Problem::Missing);
    };
    let room = state.room(&activity, SMALL_BYTES).await;
    let read = state.work(&activity, move |state| {
        let record = state.find_digest(&rights, wanted).ok_or(Problem::Missing)?;
        state.archive().signature(&record, key)?.ok_or(Problem::Missing)
    });
    answer(&state, read.await, |object| whole(&headers, &digest(&object), LOOK_AGAIN, vec![object.into()], room))
}

async fn chunk(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(name) = unit_name(&name) else { return no_answer(&state, &Problem::Missing) };
    let origin = Origin::of(&headers);
    let room = state.room(&activity, CHUNK_BYTES_MAX).await;
    let read = state.work(&activity, move |state| match state.may_read_chunks(&rights, origin, &[name])? {
        true => Ok(state.served().chunk(&name)?),
        false => Err(Problem::Missing),
    });
    let read = read.await;
    answer(&state, read, |chunk| {
        state.follow_chunks(activity.client(), origin.manifest, &name);
        let room = room.shrunk(chunk.length_bytes);
        let pieces = chunk.pieces.into_iter().map(Bytes::from_owner).collect();
        whole(&headers, &chunk.form.to_string(), FOR_EVER, pieces, room)
    })
}

async fn unit(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(name) = unit_name(&name) else { return no_answer(&state, &Problem::Missing) };
    let origin = Origin::of(&headers);
    let room = state.room(&activity, SMALL_BYTES).await;
    let read = state.work(&activity, move |state| units_for(state, &rights, origin, &[name])).await;
    answer(&state, read, |units| {
        let object = units.concat();
        whole(&headers, &digest(&object), FOR_EVER, vec![object.into()], room)
    })
}

async fn units(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    headers: HeaderMap,
    request: Bytes,
) -> Response {
    let Ok(names) = decode_names(&request) else {
        return no_answer(&state, &Problem::Request("a request has 1 to 1024 names of 32 bytes"));
    };
    let origin = Origin::of(&headers);
    let room = state.room(&activity, UNITS_BYTES_MAX).await;
    let read = state.work(&activity, move |state| units_for(state, &rights, origin, &names)).await;
    answer(&state, read, |units| {
        let room = room.shrunk(units.iter().map(|unit| unit.len()).sum());
        let pieces = Pieces::new(units.into_iter().map(Bytes::from_owner), room);
        Response::new(Body::new(pieces))
    })
}

/// Returns units in their stored form, if the client may read all of them.
fn units_for(
    state: &ServerState,
    rights: &Rights,
    origin: Origin,
    names: &[UnitName],
) -> Result<Vec<Arc<[u8]>>, Problem> {
    match state.may_read_units(rights, origin, names)? {
        true => Ok(state.served().units(names)?),
        false => Err(Problem::Missing),
    }
}

/// Has a client join the session of an image. There is nothing if the server does not send it by multicast.
async fn join(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path(name): Path<String>,
    request: Bytes,
) -> Response {
    let Some(UnitName(wanted)) = unit_name(&name) else { return no_answer(&state, &Problem::Missing) };
    let Some(sessions) = state.sessions() else { return no_answer(&state, &Problem::Missing) };
    // A machine that joins slows down the requests of all others, so an outsider may not.
    let join = match sessions.accept_join(&wanted, &request, activity.client()) {
        Ok(join) => join,
        Err(JoinRefusal::Length) => {
            let what = "a join has no body over TLS, else 16 random bytes and a proof of 32 bytes";
            return no_answer(&state, &Problem::Request(what));
        }
        Err(JoinRefusal::Proof) => {
            return no_answer(&state, &Problem::Refused("this join has another multicast key, or came before"));
        }
    };
    // No turn waits for memory.
    let room = state.room(&activity, SMALL_BYTES).await;
    // Only the first machine needs the manifest, so a session that is slow to answer holds up no manifests.
    let _turn = if sessions.has(wanted) { None } else { Some(state.manifest_turn().await) };
    let shared = Arc::clone(&state);
    let joined = state.work(&activity, move |state| {
        let sessions = state.sessions().ok_or(Problem::Missing)?;
        let record = state.find_digest(&rights, wanted).ok_or(Problem::Missing)?;
        let chunks = match sessions.has(wanted) {
            true => None,
            false => Some(state.archive().manifest(&record)?.chunks),
        };
        match sessions.join(&shared, &record, chunks, join) {
            Ok(reply) => Ok(reply.ok_or(Problem::Missing)?.encode()),
            Err(error) => {
                state.report(&error);
                Err(Problem::Missing)
            }
        }
    });
    answer(&state, joined.await, |reply| {
        let mut response = Response::new(Body::new(Pieces::new(std::iter::once(reply.into()), room)));
        set(&mut response, CACHE_CONTROL, "no-store");
        set(&mut response, CONTENT_TYPE, "application/octet-stream");
        response
    })
}

async fn raw(
    State(state): SharedState,
    Extension(activity): Connection,
    Extension(rights): Client,
    Path(image): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some((name, version)) = image_of(&image) else { return no_answer(&state, &Problem::Missing) };
    let opened = state.work(&activity, move |state| {
        let record = state.find(&rights, &name, version).ok_or(Problem::Missing)?;
        Ok::<_, Problem>((state.open_disk(&record), record))
    });
    let opened = match opened.await {
        Some(Ok((None, record))) => {
            let opened = state.read_manifest(&activity, move |state| Ok((state.disk(&record)?, record)));
            opened.await
        }
        Some(Ok((Some(disk), record))) => Some(Ok((disk, record))),
        Some(Err(problem)) => Some(Err(problem)),
        None => None,
    };
    let (disk, record) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(problem)) => return no_answer(&state, &problem),
        None => return no_answer(&state, &Problem::Server),
    };
    let size_bytes = disk.size_bytes();
    let validator = format!("\"raw-{}\"", hexadecimal(&record.digest));
    let (status, range) = match asked(&headers, &validator, size_bytes) {
        RequestedRange::NotModified => (StatusCode::NOT_MODIFIED, None),
        RequestedRange::Nothing => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        RequestedRange::Whole => (StatusCode::OK, Some(0..size_bytes)),
        RequestedRange::Part { start, end } => (StatusCode::PARTIAL_CONTENT, Some(start..end)),
    };
    let content_range = match (status, &range) {
        (StatusCode::PARTIAL_CONTENT, Some(range)) => {
            Some(format!("bytes {}-{}/{size_bytes}", range.start, range.end - 1))
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, _) => Some(format!("bytes */{size_bytes}")),
        _ => None,
    };
    let body = match range {
        None => Body::empty(),
        Some(range) => {
            let left_bytes = range.end - range.start;
            Body::new(Stream { pieces: state.stream(activity, disk, range).await, left_bytes })
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    set(&mut response, ETAG, &validator);
    set(&mut response, CACHE_CONTROL, LOOK_AGAIN);
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    if let Some(content_range) = content_range {
        set(&mut response, CONTENT_RANGE, &content_range);
    }
    response
}

/// Returns the answer to a request whose work is done.
fn answer<T, E: Into<Problem>>(
    state: &ServerState,
    done: Option<Result<T, E>>,
    respond: impl FnOnce(T) -> Response,
) -> Response {
    match done {
        Some(Ok(done)) => respond(done),
        Some(Err(problem)) => no_answer(state, &problem.into()),
        None => no_answer(state, &Problem::Server),
    }
}

/// Returns an answer with a whole body, or without one if the client has it.
pub(super) fn whole(
    headers: &HeaderMap,
    validator: &str,
    cache: &str,
    pieces: Vec<Bytes>,
    room: AnswerRoom,
) -> Response {
    let validator = format!("\"{validator}\"");
    let mut response = Response::new(Body::new(Pieces::new(pieces.into_iter(), room)));
    if asked(headers, &validator, 0) == RequestedRange::NotModified {
        response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    set(&mut response, ETAG, &validator);
    set(&mut response, CACHE_CONTROL, cache);
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    response
}

/// Returns the answer to a request that fails. Only errors of the server are reported there.
pub(super) fn no_answer(state: &ServerState, problem: &Problem) -> Response {
    let (status, text) = match problem {
        Problem::Missing => (StatusCode::NOT_FOUND, "there is nothing here".to_owned()),
        Problem::Request(what) => (StatusCode::BAD_REQUEST, (*what).to_owned()),
        Problem::Refused(why) => (StatusCode::FORBIDDEN, (*why).to_owned()),
        Problem::Server => (StatusCode::INTERNAL_SERVER_ERROR, "the server failed".to_owned()),
        Problem::Archive(error) => {
            state.report(error);
            let is_waiting =
                matches!(error, ArchiveError::Store(StoreError::Unavailable { .. } | StoreError::GaveUp { .. }));
            let status = if is_waiting { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
            (status, error.to_string())
        }
    };
    let mut response = Response::new(Body::from(text + "\n"));
    *response.status_mut() = status;
    set(&mut response, CACHE_CONTROL, "no-store");
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

pub(super) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, hyper::header::HeaderValue::from_static("nosniff"));
}

/// Returns the image that a part of an address names, as `web` or `web@2`.
pub(super) fn image_of(text: &str) -> Option<(ImageName, Option<u32>)> {
    let (name, version) = match text.split_once('@') {
        None => (text, None),
        Some((name, version)) => {
            let is_number = version.bytes().all(|digit| digit.is_ascii_digit());
            (name, Some(version.parse().ok().filter(|number: &u32| is_number && *number > 0)?))
        }
    };
    Some((ImageName::new(name).ok()?, version))
}

/// Returns the name, or the digest, that 64 lower-case hexadecimal digits stand for.
pub(super) fn unit_name(text: &str) -> Option<UnitName> {
    UnitName::from_name(text)
}

fn digest(bytes: &[u8]) -> String {
    // The digest of what an answer contains need not be a secret, only another one for other bytes.
    format!("{:08x}-{:x}", crc32c::crc32c(bytes), bytes.len())
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

//! Access: the rights that the token of a request gives, and whether they include what an address with a digest names.
//!
//! | request | with a token that may read some images |
//! |---|---|
//! | list, image by name, manifest, signature | as if the other images did not exist |
//! | chunk, header of a chunk | the client names the manifest of an image that it may read, and the manifest has the chunk |
//! | unit | as well, and the client names the chunk, whose header has the unit |
//!
//! All of it is decided by what the client may read: no store is asked about a name before the client has the right to
//! it, and an image that it may not read answers as one that does not exist.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{StatusCode, header};
use onefold_image::UnitName;
use onefold_image::archive::ArchiveError;
use tokio::time::{MissedTickBehavior, interval};

use super::state::ServerState;
use super::tokens::{NoRights, Rights};
use crate::origin::Origin;

/// How old the state of the file of tokens may be.
const TOKENS_AGE: Duration = Duration::from_secs(1);
/// Scheme of the header `Authorization`.
const SCHEME: &str = "bearer";

/// Gives a request the rights of its token, or answers it if there are none.
pub(super) async fn authorize(State(state): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let rights = match state.tokens() {
        None => Ok(Rights::All),
        Some(tokens) => tokens.rights(token_of(request.headers())),
    };
    match rights {
        Ok(rights) => {
            let is_limited = matches!(rights, Rights::Names(_));
            request.extensions_mut().insert(rights);
            let mut response = next.run(request).await;
            if is_limited {
                make_private(response.headers_mut());
            }
            response
        }
        Err(NoRights::Unknown) => {
            let mut response = refusal(StatusCode::UNAUTHORIZED, "a token of this server is needed\n");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        Err(NoRights::Unusable) => refusal(StatusCode::SERVICE_UNAVAILABLE, "the tokens cannot be read\n"),
    }
}

/// Returns the token of a request that has one.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case(SCHEME)).then_some(token.trim())
}

/// Keeps an answer out of caches that other users share.
fn make_private(headers: &mut HeaderMap) {
    let kept = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let private = match kept.strip_prefix("public") {
        Some(rest) => format!("private{rest}"),
        None if kept.is_empty() => "private".to_owned(),
        None => format!("private, {kept}"),
    };
    if let Ok(value) = private.parse() {
        headers.insert(CACHE_CONTROL, value);
    }
    headers.insert(header::VARY, HeaderValue::from_static("authorization, onefold-manifest, onefold-chunk"));
}

fn refusal(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Reads the file of tokens again whenever it has changed. Does not return.
pub(super) async fn follow_tokens(state: Arc<ServerState>) {
    let mut look = interval(TOKENS_AGE);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let state = Arc::clone(&state);
        // A thread of its own: those that read the archive may all be waiting for its store.
        let _ = tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = state.tokens().map(|tokens| tokens.refresh()) {
                state.report_tokens(&error);
            }
        })
        .await;
    }
}

impl ServerState {
    /// Returns whether a client may read chunks, and knows them from where it says.
    ///
    /// # Errors
    /// When the manifest is damaged, or the store fails.
    pub(super) fn may_read_chunks(
        &self,
        rights: &Rights,
        origin: Origin,
        names: &[UnitName],
    ) -> Result<bool, ArchiveError> {
        if matches!(rights, Rights::All) {
            return Ok(true);
        }
        let Some(UnitName(manifest)) = origin.manifest else { return Ok(false) };
        let read = || {
            let Some(record) = self.find_digest(rights, manifest) else { return Ok(None) };
            let chunks = self.archive().manifest(&record)?.chunks;
            Ok(Some((record.image.name, chunks)))
        };
        self.chunk_lists().have(manifest, names, &|name| rights.include(name), &read)
    }

    /// Returns whether a client may read units, and knows them from where it says: a chunk, or, if they are headers of
    /// chunks, the manifest.
    ///
    /// # Errors
    /// When the manifest or the chunk is damaged, or the store fails.
    pub(super) fn may_read_units(
        &self,
        rights: &Rights,
        origin: Origin,
        names: &[UnitName],
    ) -> Result<bool, ArchiveError> {
        match origin.chunk {
            _ if matches!(rights, Rights::All) => Ok(true),
            None => self.may_read_chunks(rights, origin, names),
            Some(chunk) => {
                Ok(self.may_read_chunks(rights, origin, &[chunk])? && self.served().has_units(&chunk, names)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_token_of_the_right_scheme_or_none() {
        for (values, token) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["Basic abc"], None),
            (&["abc"], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            assert_eq!(token_of(&headers), token, "{values:?}");
        }
    }

    #[test]
    fn no_shared_cache_keeps_an_answer_to_a_token() {
        for (before, after) in [
            ("public, max-age=5, immutable", "private, max-age=5, immutable"),
            ("no-cache", "private, no-cache"),
            ("", "private"),
        ] {
            let mut headers = HeaderMap::new();
            if !before.is_empty() {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(before));
            }
            make_private(&mut headers);
            assert_eq!(headers[CACHE_CONTROL], after);
        }
    }
}

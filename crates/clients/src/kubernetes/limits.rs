//! Limits for the answers of a cluster that is not under our control.
//!
//! An answer is limited in size, after decompression, and in time. A watch has no end: the size of each of its events is
//! limited, and the connection ends if it is silent for too long. One list is read at a time, so that the memory for the
//! answers of one cluster does not grow with the number of kinds that are listed.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use http_body::{Body, Frame};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep_until},
};
use tower::{Layer, Service};

type BoxError = Box<dyn Error + Send + Sync>;

/// The maximum size of a list, or of a page of one. Parsed it takes up to sixteen times the memory.
const LIST_LIMIT: usize = 8 << 20;
/// The maximum size of one object, or of one event of a watch: what the storage of a cluster accepts, and its managed fields.
const OBJECT_LIMIT: usize = 2 << 20;
/// The maximum time for an answer, from the request to its last byte, or to the first event of a watch. It is the longest
/// timeout of a webhook.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The maximum number of bytes of a watch per second. A faster one is read later.
const WATCH_RATE: usize = 4 << 20;

/// The answer is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTooLarge;

impl fmt::Display for AnswerTooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the answer is larger than allowed")
    }
}

impl Error for AnswerTooLarge {}

/// The answer took longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTooSlow;

impl fmt::Display for AnswerTooSlow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the answer took longer than allowed")
    }
}

impl Error for AnswerTooSlow {}

/// Limits the answers of a service. It has to be outside of the layer that decompresses them.
#[derive(Clone, Copy, Debug)]
pub struct LimitAnswersLayer;

impl<S> Layer<S> for LimitAnswersLayer {
    type Service = LimitAnswers<S>;

    fn layer(&self, inner: S) -> LimitAnswers<S> {
        LimitAnswers { inner, lists: Arc::new(Semaphore::new(1)) }
    }
}

/// A service with limited answers.
#[derive(Debug)]
pub struct LimitAnswers<S> {
    inner: S,
    lists: Arc<Semaphore>,
}

impl<S, Sent, Received> Service<Request<Sent>> for LimitAnswers<S>
where
    S: Service<Request<Sent>, Response = Response<Received>, Error = BoxError>,
    S::Future: Send + 'static,
    Received: Body<Data = Bytes, Error = BoxError> + Unpin + Send + 'static,
{
    type Response = Response<LimitedBody<Received>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let kind = AnswerKind::of(request.method(), request.uri());
        let deadline = Instant::now() + ANSWER_LIMIT;
        let lists = Arc::clone(&self.lists);
        // Nothing is sent before the future is polled.
        let answer = self.inner.call(request);
        let limited = async move {
            // The semaphore is never closed.
            let permit = if kind == AnswerKind::List { lists.acquire_owned().await.ok() } else { None };
            let answer = answer.await?;
            // An error has the size of an object, whatever was requested.
            let kind = if answer.status().is_success() { kind } else { AnswerKind::Object };
            Ok(answer.map(|body| LimitedBody::new(body, kind, deadline, permit)))
        };
        Box::pin(async move { tokio::time::timeout_at(deadline, limited).await.map_err(|_| AnswerTooSlow)? })
    }
}

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerKind {
    Object,
    List,
    Watch,
}

impl AnswerKind {
    fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        if method != Method::GET {
            return Self::Object;
        }
        if query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")) {
            return Self::Watch;
        }
        // Every list of the client has a page size or a selector; one without is a list of few objects, such as of classes.
        let is_list =
            has("limit") || has("labelSelector") || has("fieldSelector") || is_collection(uri.path());
        if is_list { Self::List } else { Self::Object }
    }

    fn size_limit(self) -> usize {
        match self {
            Self::Object | Self::Watch => OBJECT_LIMIT,
            Self::List => LIST_LIMIT,
        }
    }
}

/// Whether a path is that of all objects of a kind, in the cluster or in a namespace.
fn is_collection(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let after_version = match segments.next() {
        Some("api") => segments.skip(1),
        Some("apis") => segments.skip(2),
        _ => return false,
    };
    let rest: Vec<&str> = after_version.collect();
    matches!(rest.as_slice(), [_] | ["namespaces", _, _])
}

/// A body that ends with an error when it exceeds its limit.
pub struct LimitedBody<B> {
    inner: B,
    kind: AnswerKind,
    /// The bytes that may still come: of the answer, or of the current event of a watch.
    left: usize,
    deadline: Option<Pin<Box<Sleep>>>,
    /// The end of the current second of a watch, and how many bytes may come before it.
    second: (Instant, usize),
    pause: Option<Pin<Box<Sleep>>>,
    /// Lets the next list start when this one is read.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<B> LimitedBody<B> {
    fn new(inner: B, kind: AnswerKind, deadline: Instant, permit: Option<OwnedSemaphorePermit>) -> Self {
        let deadline = (kind != AnswerKind::Watch).then(|| Box::pin(sleep_until(deadline)));
        let second = (Instant::now(), 0);
        Self { inner, kind, left: kind.size_limit(), deadline, second, pause: None, _permit: permit }
    }

    /// Pauses a watch that sends more than it may.
    fn pace(&mut self, length: usize) {
        let now = Instant::now();
        let (end, left) = &mut self.second;
        if now >= *end {
            (*end, *left) = (now + Duration::from_secs(1), WATCH_RATE);
        }
        *left = left.saturating_sub(length);
        if *left == 0 && self.kind == AnswerKind::Watch {
            self.pause = Some(Box::pin(sleep_until(*end)));
        }
    }

    /// Counts the bytes of a part of the answer.
    fn count(&mut self, data: &[u8]) -> Result<(), AnswerTooLarge> {
        if self.kind != AnswerKind::Watch {
            self.left = self.left.checked_sub(data.len()).ok_or(AnswerTooLarge)?;
            return Ok(());
        }
        let mut events = data.split(|byte| *byte == b'\n').peekable();
        while let Some(event) = events.next() {
            self.left = self.left.checked_sub(event.len()).ok_or(AnswerTooLarge)?;
            if events.peek().is_some() {
                self.left = self.kind.size_limit();
            }
        }
        Ok(())
    }
}

impl<B: Body<Data = Bytes, Error = BoxError> + Unpin> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(AnswerTooSlow.into())));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(context)).transpose()? else {
            return Poll::Ready(None);
        };
        if let Some(data) = frame.data_ref() {
            self.count(data)?;
            self.pace(data.len());
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_watches_and_objects_are_distinguished() {
        let kind = |method: Method, uri: &str| AnswerKind::of(&method, &uri.parse().unwrap());
        let get = |uri: &str| kind(Method::GET, uri);
        assert_eq!(get("/api/v1/namespaces/a/secrets/b"), AnswerKind::Object);
        assert_eq!(get("/version"), AnswerKind::Object);
        assert_eq!(get("/apis/storage.k8s.io/v1/storageclasses"), AnswerKind::List);
        assert_eq!(get("/api/v1/namespaces/a/secrets"), AnswerKind::List);
        assert_eq!(get("/apis/kubevirt.io/v1/virtualmachines?&limit=500"), AnswerKind::List);
        assert_eq!(
            get("/apis/kubevirt.io/v1/virtualmachines?&watch=true&timeoutSeconds=290"),
            AnswerKind::Watch
        );
        assert_eq!(
            kind(Method::PATCH, "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b"),
            AnswerKind::Object
        );
        assert_eq!(kind(Method::POST, "/api/v1/namespaces/a/secrets"), AnswerKind::Object);
    }

    #[tokio::test]
    async fn each_event_of_a_watch_is_limited_and_their_number_is_not() {
        let mut body = LimitedBody::new((), AnswerKind::Watch, Instant::now(), None);
        let event = [vec![b'x'; OBJECT_LIMIT], b"\n".to_vec()].concat();
        for _ in 0..100 {
            assert_eq!(body.count(&event), Ok(()));
        }
        assert_eq!(body.count(&vec![b'x'; OBJECT_LIMIT]), Ok(()));
        assert_eq!(body.count(b"y"), Err(AnswerTooLarge));
    }
}

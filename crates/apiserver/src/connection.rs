//! The limits of the socket: connections, requests in flight, and how long a client may do nothing.
//!
//! A client holds a connection only while it has a request in progress and reads the response. Neither
//! depends on the version of HTTP: a connection without a request is closed after a while, whether its client
//! is idle, sends half a header, or one byte at a time.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use axum_server::accept::Accept;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tower::Service;

use crate::request::Options;

/// The limits of a server that listens.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of connections.
    pub connections: usize,
    /// The maximum number of requests in flight that read; watches do not count.
    pub reads: usize,
    /// The maximum number of requests in flight that write.
    pub writes: usize,
    /// How long a new connection may take to send its first request.
    pub first_request: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long a client may not read the response that is sent to it.
    pub stalled: Duration,
}

impl Default for Limits {
    /// The limits of kube-apiserver where it has them.
    fn default() -> Self {
        Self {
            connections: 512,
            reads: 400,
            writes: 200,
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            stalled: Duration::from_secs(30),
        }
    }
}

/// The requests in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

/// The permission to handle a request; watches need none.
pub type Permit = Option<OwnedSemaphorePermit>;

impl InFlight {
    /// Returns the counters of a server.
    pub fn new(limits: &Limits) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(limits.reads)),
            writes: Arc::new(Semaphore::new(limits.writes)),
        }
    }

    /// Counts a request; `Err` if there are too many.
    pub fn enter<B>(&self, request: &Request<B>) -> Result<Permit, ()> {
        if is_watch(request) {
            return Ok(None);
        }
        let counter = match *request.method() {
            Method::GET | Method::HEAD | Method::OPTIONS => &self.reads,
            _ => &self.writes,
        };
        Arc::clone(counter).try_acquire_owned().map(Some).map_err(drop)
    }
}

/// Whether a request takes long by its nature.
fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().filter(|query| query.contains("watch"));
    let asked = query.is_some_and(|query| Options::parse(Some(query)).flag("watch") == Some(true));
    request.method() == Method::GET && (asked || request.uri().path().contains("/watch/"))
}

/// What the stream and the service of one connection share.
#[derive(Debug, Default)]
struct Activity {
    /// The number of requests whose response is not complete.
    requests: AtomicUsize,
    /// Whether there was a request since the timer was set.
    had_request: AtomicBool,
}

/// Counts a request until its response is complete.
struct Active(Arc<Activity>);

impl Active {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        activity.had_request.store(true, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections up to the limit and watches them.
#[derive(Clone, Debug)]
pub struct LimitedAcceptor<A> {
    inner: A,
    connections: Arc<Semaphore>,
    limits: Limits,
}

impl<A> LimitedAcceptor<A> {
    /// Returns an acceptor with limits.
    pub fn new(inner: A, limits: Limits) -> Self {
        Self { inner, connections: Arc::new(Semaphore::new(limits.connections)), limits }
    }
}

impl<A, I, S> Accept<I, S> for LimitedAcceptor<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
{
    type Stream = LimitedStream<A::Stream>;
    type Service = LimitedService<A::Service>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        // A connection that is not accepted is closed at once, before its handshake.
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            return Box::pin(async { Err(io::Error::other("too many connections")) });
        };
        let accepting = self.inner.accept(stream, service);
        let limits = self.limits;
        Box::pin(async move {
            let (inner, service) = accepting.await?;
            let activity = Arc::new(Activity::default());
            let stream = LimitedStream {
                inner,
                activity: Arc::clone(&activity),
                limits,
                idle: Box::pin(sleep(limits.first_request)),
                stalled: None,
                _permit: permit,
            };
            Ok((stream, LimitedService { inner: service, activity }))
        })
    }
}

/// A connection that ends when its client does nothing.
#[derive(Debug)]
pub struct LimitedStream<I> {
    inner: I,
    activity: Arc<Activity>,
    limits: Limits,
    idle: Pin<Box<Sleep>>,
    /// Runs while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl<I> LimitedStream<I> {
    /// Ends a connection that had no request for too long.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            ready!(self.idle.as_mut().poll(context));
            let is_active = self.activity.requests.load(Ordering::Relaxed) > 0;
            // There may have been requests since the timer was set.
            if !is_active && !self.activity.had_request.swap(false, Ordering::Relaxed) {
                return Poll::Ready(timed_out("the connection had no request"));
            }
            self.idle.as_mut().reset(Instant::now() + self.limits.idle);
        }
    }

    /// Ends a connection whose client does not read.
    fn poll_stalled<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limits.stalled;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(timed_out("the client does not read")))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for LimitedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Checked also when there is something to read: a client may send one byte at a time.
        if let Poll::Ready(error) = self.poll_idle(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LimitedStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.poll_stalled(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.poll_stalled(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(context);
        self.poll_stalled(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_shutdown(context);
        self.poll_stalled(context, progress)
    }
}

/// The service of one connection, which counts its requests.
#[derive(Clone, Debug)]
pub struct LimitedService<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S, B> Service<Request<B>> for LimitedService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let active = Active::new(&self.activity);
        let answering = self.inner.call(request);
        Box::pin(async move {
            let response = answering.await?;
            // The mapped body owns the counter until it is sent or dropped.
            Ok(response.map(|body| {
                Body::new(body.map_err(move |error| {
                    let _ = &active;
                    error
                }))
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn stream() -> (LimitedStream<DuplexStream>, DuplexStream) {
        let (inner, client) = duplex(64);
        let connections = Arc::new(Semaphore::new(1));
        let limits = Limits::default();
        let stream = LimitedStream {
            inner,
            activity: Arc::default(),
            limits,
            idle: Box::pin(sleep(limits.first_request)),
            stalled: None,
            _permit: connections.try_acquire_owned().unwrap(),
        };
        (stream, client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_one_byte_at_a_time_is_disconnected() {
        let (mut stream, mut client) = stream();
        let started = Instant::now();
        tokio::spawn(async move {
            while client.write_all(b"G").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let mut received = Vec::new();
        let error = stream.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_stays_open_while_a_request_is_in_progress() {
        let (mut stream, client) = stream();
        let active = Active::new(&stream.activity);
        let mut buffer = [0; 8];
        let waiting = tokio::time::timeout(Duration::from_hours(1), stream.read(&mut buffer)).await;
        assert!(waiting.is_err(), "nothing was sent, and the connection is open");
        drop(active);
        let error = stream.read(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected() {
        let (mut stream, client) = stream();
        let started = Instant::now();
        let error = stream.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), Duration::from_secs(30));
        drop(client);
    }

    #[test]
    fn watches_are_not_counted_and_reads_do_not_block_writes() {
        let limits = Limits { reads: 1, writes: 1, ..Limits::default() };
        let in_flight = InFlight::new(&limits);
        let request = |method: &str, uri: &str| Request::builder().method(method).uri(uri).body(()).unwrap();
        let read = in_flight.enter(&request("GET", "/api/v1/secrets")).unwrap();
        assert!(in_flight.enter(&request("GET", "/api/v1/secrets")).is_err());
        assert!(in_flight.enter(&request("GET", "/api/v1/secrets?watch=true")).is_ok());
        assert!(in_flight.enter(&request("GET", "/api/v1/watch/secrets")).is_ok());
        assert!(in_flight.enter(&request("GET", "/api/v1/secrets?watch=false")).is_err());
        let _write = in_flight.enter(&request("POST", "/api/v1/secrets")).unwrap();
        assert!(in_flight.enter(&request("PATCH", "/api/v1/secrets?watch=true")).is_err());
        drop(read);
        assert!(in_flight.enter(&request("GET", "/api/v1/secrets")).is_ok());
    }
}

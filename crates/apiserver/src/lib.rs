//! A small Kubernetes API server in the process.
//!
//! [`ApiServer`] is a tower service over a [`store::Store`]: `kube::Client` can use it without a socket, and
//! [`ApiServer::listen`] serves it on loopback over TLS for kubectl and any other client.

mod body;
mod discovery;
pub mod faults;
mod garbage;
mod kinds;
mod listen;
mod managed_fields;
mod metadata;
mod names;
mod openapi;
mod patch;
mod protobuf;
mod registry;
mod reply;
mod request;
mod schema;
mod selector;
mod server;
mod status;
pub mod store;
mod table;
mod tls;
mod verbs;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tower::Service;
use uuid::Uuid;

/// How lists are printed, for clients that print them too: values by JSON path, and ages.
pub mod printing {
    pub use crate::table::{age_of, duration, find};
}

pub use self::listen::{ServeError, ServeOptions, Serving, serve};
use self::server::{Clock, KnowsToken, Server, Uids};
pub use self::status::Failure;
use self::store::Store;
use self::store::memory::MemoryStore;
use self::tls::Token;

/// The API server. A clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct ApiServer {
    server: Arc<Server>,
    token: Token,
}

/// What an [`ApiServer`] is made of.
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Clock,
    uids: Uids,
    bookmarks_every: Duration,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Builder").finish_non_exhaustive()
    }
}

impl Builder {
    /// Keeps objects there; in memory if not told.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Takes the time from there; from the system if not told.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Takes the UIDs of new objects from there, which has to tell each once; random ones if not told.
    #[must_use]
    pub fn uids(mut self, uids: impl Fn() -> Uuid + Send + Sync + 'static) -> Self {
        self.uids = Arc::new(uids);
        self
    }

    /// Tells quiet watches the version they have reached that often; every minute if not told.
    #[must_use]
    pub fn bookmarks_every(mut self, interval: Duration) -> Self {
        self.bookmarks_every = interval;
        self
    }

    /// Starts the server. Must be called inside a tokio runtime.
    pub async fn build(self) -> Result<ApiServer, Failure> {
        let (work, waiting) = mpsc::unbounded_channel();
        let token = Token::generate();
        let known = token.clone();
        let knows_token: KnowsToken = Arc::new(move |given| known.is(given));
        let server = Arc::new(Server {
            store: self.store,
            registry: registry::Registry::default(),
            clock: self.clock,
            uids: self.uids,
            owners: garbage::Owners::default(),
            work,
            knows_token,
            bookmarks_every: self.bookmarks_every,
        });
        server.start().await?;
        tokio::spawn(garbage::run(Arc::downgrade(&server), waiting));
        Ok(ApiServer { server, token })
    }
}

impl ApiServer {
    /// A server with everything at its default.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            store: Arc::new(MemoryStore::new()),
            clock: Arc::new(Timestamp::now),
            uids: Arc::new(Uuid::new_v4),
            bookmarks_every: Duration::from_mins(1),
        }
    }

    /// The service: every request is the administrator's.
    #[must_use]
    pub fn service(&self) -> ApiService {
        ApiService { server: Arc::clone(&self.server) }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.server.store
    }
}

/// The tower service of an [`ApiServer`].
#[derive(Clone, Debug)]
pub struct ApiService {
    server: Arc<Server>,
}

impl<B> Service<Request<B>> for ApiService
where
    B: axum::body::HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.server);
        Box::pin(async move { Ok(server.handle(request.map(Body::new)).await) })
    }
}

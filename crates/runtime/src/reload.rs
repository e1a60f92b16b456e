//! A client that follows its kubeconfig.
//!
//! A server that is replaced, or whose token is rotated, rejects the clients of the old kubeconfig. A client is created
//! once and cloned everywhere, so it is a service that forwards requests to the client of the kubeconfig as it was last
//! read. After a request that failed or was not authenticated, the kubeconfig is read again.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response, StatusCode};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use sha2::{Digest as _, Sha256};
use snafu::ResultExt as _;
use tokio::time::Instant;
use tower::Service;

use crate::{
    lock,
    operator::{CreateClientSnafu, ReadKubeconfigSnafu, StartError},
};

/// The minimum time between two reads of the kubeconfig.
const INTERVAL: Duration = Duration::from_secs(5);

/// Where the kubeconfig is.
#[derive(Clone, Debug)]
pub enum Origin {
    /// In these files, separated by colons and merged, as in kubectl.
    Files(PathBuf),
    /// In the default location of kubectl.
    Default,
}

impl Origin {
    /// Reads the kubeconfig.
    pub fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        match self {
            Self::Files(paths) => std::env::split_paths(paths)
                .try_fold(Kubeconfig::default(), |merged, path| merged.merge(Kubeconfig::read_from(path)?)),
            Self::Default => Kubeconfig::read(),
        }
    }
}

/// The hash of a kubeconfig and of the files that it names, so that the content is not held in memory.
type Fingerprint = [u8; 32];

/// Returns the hash of a kubeconfig and of the certificates and keys that it names. Files of tokens are not included:
/// the client reads them again by itself.
fn fingerprint(kubeconfig: &Kubeconfig) -> Fingerprint {
    let clusters = kubeconfig.clusters.iter().filter_map(|each| each.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|each| each.auth_info.as_ref());
    let files = clusters
        .filter_map(|cluster| cluster.certificate_authority.as_ref())
        .chain(users.flat_map(|user| [&user.client_certificate, &user.client_key]).flatten());

    let mut hasher = Sha256::new();
    hasher.update(serde_json::to_vec(kubeconfig).unwrap_or_default());
    for file in files {
        hasher.update([0]);
        hasher.update(std::fs::read(file).unwrap_or_default());
    }
    hasher.finalize().into()
}

/// Returns the client of a kubeconfig and its default namespace.
async fn connect(kubeconfig: Kubeconfig) -> Result<(Client, String), StartError> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context(ReadKubeconfigSnafu)?;
    let namespace = config.default_namespace.clone();
    Ok((Client::try_from(config).context(CreateClientSnafu)?, namespace))
}

/// Creates a client that follows a kubeconfig. Sends no request.
pub async fn client(origin: Origin) -> Result<Client, StartError> {
    let (service, namespace) = Reloading::new(origin).await?;
    Ok(Client::new(service, namespace))
}

/// The service of the client.
#[derive(Clone)]
struct Reloading {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Origin,
    state: Mutex<State>,
}

struct State {
    client: Client,
    fingerprint: Fingerprint,
    /// When the kubeconfig was last read after a failed request.
    checked_at: Option<Instant>,
}

impl Reloading {
    async fn new(origin: Origin) -> Result<(Self, String), StartError> {
        let kubeconfig = origin.read().context(ReadKubeconfigSnafu)?;
        let fingerprint = fingerprint(&kubeconfig);
        let (client, namespace) = connect(kubeconfig).await?;
        let state = Mutex::new(State { client, fingerprint, checked_at: None });
        Ok((Self { shared: Arc::new(Shared { origin, state }) }, namespace))
    }
}

impl Shared {
    fn client(&self) -> Client {
        lock(&self.state).client.clone()
    }

    /// Reads the kubeconfig again, unless that was done a moment ago, and uses it if it has changed. Its content, which
    /// the errors may contain, is not logged.
    async fn reload(&self) {
        let Some(current) = self.begin() else { return };
        let Ok(kubeconfig) = self.origin.read() else {
            tracing::warn!("failed to read the kubeconfig again: using the last one");
            return;
        };
        let fingerprint = fingerprint(&kubeconfig);
        if fingerprint == current {
            return;
        }

        let Ok((client, _)) = connect(kubeconfig).await else {
            tracing::warn!("the kubeconfig has changed and is not valid: using the last one");
            return;
        };
        let mut state = lock(&self.state);
        state.client = client;
        state.fingerprint = fingerprint;
        drop(state);
        tracing::info!("the kubeconfig has changed: using it from now on");
    }

    /// Returns the fingerprint in use if the kubeconfig may be read now.
    fn begin(&self) -> Option<Fingerprint> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        if state.checked_at.is_some_and(|checked_at| now.duration_since(checked_at) < INTERVAL) {
            return None;
        }
        state.checked_at = Some(now);
        Some(state.fingerprint)
    }
}

/// Whether the server may not be the one of the kubeconfig anymore: it rejects the credentials, or there is no
/// connection, for which an invalid certificate is only one of the reasons.
fn is_rejected(result: &Result<Response<Body>, kube::Error>) -> bool {
    result.as_ref().map_or(true, |response| response.status() == StatusCode::UNAUTHORIZED)
}

impl Service<Request<Body>> for Reloading {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        async move {
            let result = shared.client().send(request).await;
            if is_rejected(&result) {
                shared.reload().await;
            }
            result
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Writes a kubeconfig of a server that refuses connections, with this token.
    fn write(path: &Path, token: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
             users: [{{name: a, user: {{token: {token}}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
        );
        std::fs::write(path, text).unwrap();
    }

    async fn fail(service: &mut Reloading) {
        let request = Request::get("/version").body(Body::empty()).unwrap();
        assert!(service.call(request).await.is_err());
    }

    #[tokio::test]
    async fn a_kubeconfig_is_read_after_a_failure_at_most_every_five_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        write(&path, "first");
        let (mut service, _) = Reloading::new(Origin::Files(path.clone())).await.unwrap();
        let used = |service: &Reloading| lock(&service.shared.state).fingerprint;
        let first = used(&service);

        fail(&mut service).await;
        let checked_at = lock(&service.shared.state).checked_at.unwrap();
        write(&path, "second");
        fail(&mut service).await;
        assert_eq!(used(&service), first, "it was read a moment ago");
        assert_eq!(lock(&service.shared.state).checked_at.unwrap(), checked_at);

        lock(&service.shared.state).checked_at = checked_at.checked_sub(INTERVAL);
        fail(&mut service).await;
        let second = used(&service);
        assert_ne!(second, first);

        // Unreadable or incomplete files are read again later.
        lock(&service.shared.state).checked_at = None;
        std::fs::write(&path, "clusters: [").unwrap();
        fail(&mut service).await;
        std::fs::remove_file(&path).unwrap();
        lock(&service.shared.state).checked_at = None;
        fail(&mut service).await;
        assert_eq!(used(&service), second);
    }

    #[tokio::test]
    async fn a_change_of_a_file_that_the_kubeconfig_names_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, key) = (directory.path().join("kubeconfig"), directory.path().join("key.pem"));
        write(&path, "token");
        let text = std::fs::read_to_string(&path).unwrap().replace("token: token", "client-key: key.pem");
        std::fs::write(&path, text).unwrap();
        std::fs::write(&key, "one").unwrap();

        let origin = Origin::Files(path);
        let one = fingerprint(&origin.read().unwrap());
        assert_eq!(fingerprint(&origin.read().unwrap()), one);
        std::fs::write(&key, "two").unwrap();
        assert_ne!(fingerprint(&origin.read().unwrap()), one);
    }
}

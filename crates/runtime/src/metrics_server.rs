//! `/metrics`, plain or protected like the metrics of Kubernetes components: TLS, a bearer token that the API server
//! accepts, and the permission to `get` the path.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use prometheus_client::registry::Registry;
use sha2::{Digest, Sha256};
use snafu::{ResultExt, Snafu};
use tokio::time::Instant;
use vitistack_clients::kubernetes::explain;

use crate::{lock::lock, metrics::render};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a decision of the API server is cached.
const CACHE_DURATION: Duration = Duration::from_mins(1);
/// How many decisions are cached: scrapers are few, and guessed tokens must not fill the memory.
const CACHE_SIZE: usize = 256;
/// How often the certificate directory is checked for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// Why the metrics server cannot start.
#[derive(Debug, Snafu)]
pub enum MetricsServerError {
    /// No certificate could be generated.
    #[snafu(display("failed to generate a self-signed certificate: {source}"))]
    GenerateCertificate {
        /// The error of the library.
        source: rcgen::Error,
    },
    /// The certificate or its key is missing.
    #[snafu(display(
        "failed to read {}: {source}; put tls.crt and tls.key into the directory, or remove the setting", path.display()
    ))]
    ReadCertificate {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The certificate or key is invalid.
    #[snafu(display("failed to use the certificate: {source}"))]
    UseCertificate {
        /// The error of the library.
        source: std::io::Error,
    },
}

/// The routes of a metrics server without access control.
pub fn plain_router(registry: Arc<Registry>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(registry)
}

/// The routes of a metrics server that asks the API server which clients may read.
pub fn protected_router(registry: Arc<Registry>, client: Client) -> Router {
    let guard = Guard { client, decisions: Arc::default() };
    plain_router(registry).layer(middleware::from_fn_with_state(guard, check_access))
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&registry))
}

/// The decision of the API server about a token, and when it was made.
type Decisions = HashMap<[u8; 32], (Instant, StatusCode)>;

#[derive(Clone)]
struct Guard {
    client: Client,
    decisions: Arc<Mutex<Decisions>>,
}

async fn check_access(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let decision = match bearer(request.headers()) {
        Some(token) => guard.decide(token).await,
        None => StatusCode::UNAUTHORIZED,
    };
    if decision == StatusCode::OK { next.run(request).await } else { decision.into_response() }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Guard {
    /// Returns 200, 401 or 403 as the API server decides, or 503 if it does not respond.
    async fn decide(&self, token: &str) -> StatusCode {
        // Only a hash is stored: a token that stays in memory can leak.
        let key: [u8; 32] = Sha256::digest(token).into();
        let now = Instant::now();
        if let Some(decision) = self.recall(&key, now) {
            return decision;
        }
        match self.ask(token).await {
            Ok(decision) => {
                self.remember(key, decision, now);
                decision
            }
            Err(error) => {
                tracing::warn!("failed to check a scraper's token: {}", explain(&error));
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn recall(&self, key: &[u8; 32], now: Instant) -> Option<StatusCode> {
        let decisions = lock(&self.decisions);
        let (since, decision) = decisions.get(key)?;
        (now.saturating_duration_since(*since) < CACHE_DURATION).then_some(*decision)
    }

    fn remember(&self, key: [u8; 32], decision: StatusCode, now: Instant) {
        let mut decisions = lock(&self.decisions);
        decisions.retain(|_, (since, _)| now.saturating_duration_since(*since) < CACHE_DURATION);
        if decisions.len() < CACHE_SIZE {
            decisions.insert(key, (now, decision));
        }
    }

    async fn ask(&self, token: &str) -> kube::Result<StatusCode> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(StatusCode::UNAUTHORIZED);
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &may_read_metrics(user)).await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }
}

fn may_read_metrics(user: UserInfo) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Returns the certificate of the server: from `directory`, reloaded when it changes, or a new self-signed one.
pub async fn tls_config(directory: Option<&Path>, host: &str) -> Result<RustlsConfig, MetricsServerError> {
    let Some(directory) = directory else {
        let names = vec![host.to_owned(), "localhost".to_owned()];
        let generated = rcgen::generate_simple_self_signed(names).context(GenerateCertificateSnafu)?;
        let key = generated.signing_key.serialize_pem().into_bytes();
        return RustlsConfig::from_pem(generated.cert.pem().into_bytes(), key)
            .await
            .context(UseCertificateSnafu);
    };
    let mut used = read_pair(directory).await?;
    let config = RustlsConfig::from_pem(used.0.clone(), used.1.clone()).await.context(UseCertificateSnafu)?;
    let reloaded = config.clone();
    let directory = directory.to_owned();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            reload(&reloaded, &directory, &mut used).await;
        }
    });
    Ok(config)
}

/// The content of the certificate file and the key file.
type Pair = (Vec<u8>, Vec<u8>);

/// Uses the pair in the directory if it changed. A pair that cannot be read or is invalid is ignored.
async fn reload(config: &RustlsConfig, directory: &Path, used: &mut Pair) {
    let Ok(found) = read_pair(directory).await else { return };
    if found == *used {
        return;
    }
    match config.reload_from_pem(found.0.clone(), found.1.clone()).await {
        Ok(()) => tracing::info!("reloaded the metrics certificate"),
        Err(error) => tracing::warn!("failed to use the changed metrics certificate: {error}"),
    }
    *used = found;
}

async fn read_pair(directory: &Path) -> Result<Pair, MetricsServerError> {
    let read = async |name: &str| {
        let path = directory.join(name);
        tokio::fs::read(&path).await.context(ReadCertificateSnafu { path })
    };
    Ok((read("tls.crt").await?, read("tls.key").await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_is_accepted() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            headers
        };
        assert_eq!(bearer(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("Basic abc")), None);
        assert_eq!(bearer(&headers("Bearer ")), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn decisions_are_cached_for_a_minute_and_the_cache_is_bounded() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let guard = Guard { client, decisions: Arc::default() };
        let now = Instant::now();
        guard.remember([0; 32], StatusCode::OK, now);
        assert_eq!(guard.recall(&[0; 32], now + Duration::from_secs(59)), Some(StatusCode::OK));
        assert_eq!(guard.recall(&[0; 32], now + CACHE_DURATION), None);
        assert_eq!(guard.recall(&[1; 32], now), None);
        for number in 0..1000_u32 {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            guard.remember(key, StatusCode::UNAUTHORIZED, now);
        }
        assert_eq!(guard.decisions.lock().unwrap().len(), CACHE_SIZE);
    }

    #[tokio::test]
    async fn without_an_api_server_access_is_denied() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let guard = Guard { client, decisions: Arc::default() };
        assert_eq!(guard.decide("token").await, StatusCode::SERVICE_UNAVAILABLE);
        assert!(guard.decisions.lock().unwrap().is_empty(), "a failure is not cached");
    }

    #[tokio::test]
    async fn a_missing_certificate_names_the_file_and_the_fix() {
        let error = tls_config(Some(Path::new("/nonexistent")), "host").await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/tls.crt") && error.contains("tls.key"), "{error}");
        tls_config(None, "host").await.unwrap();
    }

    #[tokio::test]
    async fn a_changed_certificate_is_used_and_an_invalid_one_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let put = |certificate: &str, key: &str| {
            std::fs::write(directory.path().join("tls.crt"), certificate).unwrap();
            std::fs::write(directory.path().join("tls.key"), key).unwrap();
        };
        let put_new = || {
            let generated = rcgen::generate_simple_self_signed(["host".to_owned()]).unwrap();
            put(&generated.cert.pem(), &generated.signing_key.serialize_pem());
        };
        put_new();
        let config = tls_config(Some(directory.path()), "host").await.unwrap();
        let mut used = read_pair(directory.path()).await.unwrap();
        let first = config.get_inner();
        reload(&config, directory.path(), &mut used).await;
        assert!(Arc::ptr_eq(&first, &config.get_inner()), "nothing changed");
        put("broken", "broken");
        reload(&config, directory.path(), &mut used).await;
        assert!(Arc::ptr_eq(&first, &config.get_inner()), "the last valid certificate stays");
        put_new();
        reload(&config, directory.path(), &mut used).await;
        assert!(!Arc::ptr_eq(&first, &config.get_inner()));
    }
}

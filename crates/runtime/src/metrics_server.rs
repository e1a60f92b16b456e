//! `/metrics`, plain or guarded as Kubernetes guards its own: TLS, a bearer token that the API server knows, and the
//! right to `get` the path.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
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

use crate::metrics::render;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long an answer of the API server is believed.
const REMEMBER: Duration = Duration::from_mins(1);
/// How many answers are remembered: scrapers are few, and guesses of tokens must not fill the memory.
const MEMORY: usize = 256;
/// How often the certificate directory is looked at.
const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// Why the metrics server cannot start.
#[derive(Debug, Snafu)]
pub enum MetricsServerError {
    /// No certificate could be made.
    #[snafu(display("failed to make a self-signed certificate: {source}"))]
    MakeCertificate {
        /// What the library said.
        source: rcgen::Error,
    },
    /// The certificate or its key is missing.
    #[snafu(display(
        "failed to read {}: {source}; put tls.crt and tls.key there, or leave the directory out", path.display()
    ))]
    ReadCertificate {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate and key are not usable.
    #[snafu(display("failed to use the certificate: {source}"))]
    UseCertificate {
        /// What the library said.
        source: std::io::Error,
    },
}

/// The routes of a metrics server that anybody may read.
pub fn plain_router(registry: Arc<Registry>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(registry)
}

/// The routes of a metrics server that asks the API server who may read.
pub fn guarded_router(registry: Arc<Registry>, client: Client) -> Router {
    let guard = Guard { client, answers: Arc::default() };
    plain_router(registry).layer(middleware::from_fn_with_state(guard, guarded))
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&registry))
}

/// What the API server said about a token, and when.
type Answers = HashMap<[u8; 32], (Instant, StatusCode)>;

#[derive(Clone)]
struct Guard {
    client: Client,
    answers: Arc<Mutex<Answers>>,
}

async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let verdict = match bearer(request.headers()) {
        Some(token) => guard.judge(token).await,
        None => StatusCode::UNAUTHORIZED,
    };
    if verdict == StatusCode::OK { next.run(request).await } else { verdict.into_response() }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Guard {
    /// 200, 401 or 403 by the API server's word, or 503 if it has none.
    async fn judge(&self, token: &str) -> StatusCode {
        // Only a hash is kept: a token in memory longer than needed can leak.
        let key: [u8; 32] = Sha256::digest(token).into();
        let now = Instant::now();
        if let Some(verdict) = self.recall(&key, now) {
            return verdict;
        }
        match self.ask(token).await {
            Ok(verdict) => {
                self.remember(key, verdict, now);
                verdict
            }
            Err(error) => {
                tracing::warn!("failed to check a scraper's token: {}", explain(&error));
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn recall(&self, key: &[u8; 32], now: Instant) -> Option<StatusCode> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, verdict) = answers.get(key)?;
        (now.saturating_duration_since(*since) < REMEMBER).then_some(*verdict)
    }

    fn remember(&self, key: [u8; 32], verdict: StatusCode, now: Instant) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, (since, _)| now.saturating_duration_since(*since) < REMEMBER);
        if answers.len() < MEMORY {
            answers.insert(key, (now, verdict));
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

/// The certificate of the server: from `directory`, and read again when it changes, else made now.
pub async fn tls_config(directory: Option<&Path>, host: &str) -> Result<RustlsConfig, MetricsServerError> {
    let Some(directory) = directory else {
        let names = vec![host.to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).context(MakeCertificateSnafu)?;
        let key = made.signing_key.serialize_pem().into_bytes();
        return RustlsConfig::from_pem(made.cert.pem().into_bytes(), key).await.context(UseCertificateSnafu);
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

/// Certificate and key, as they are in their files.
type Pair = (Vec<u8>, Vec<u8>);

/// Uses the pair in the directory if it is another than before. What cannot be read or used changes nothing.
async fn reload(config: &RustlsConfig, directory: &Path, used: &mut Pair) {
    let Ok(found) = read_pair(directory).await else { return };
    if found == *used {
        return;
    }
    match config.reload_from_pem(found.0.clone(), found.1.clone()).await {
        Ok(()) => tracing::info!("metrics certificate read again"),
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
    fn only_a_bearer_token_counts() {
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
    async fn answers_are_believed_for_a_minute_and_memory_is_bounded() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let guard = Guard { client, answers: Arc::default() };
        let now = Instant::now();
        guard.remember([0; 32], StatusCode::OK, now);
        assert_eq!(guard.recall(&[0; 32], now + Duration::from_secs(59)), Some(StatusCode::OK));
        assert_eq!(guard.recall(&[0; 32], now + REMEMBER), None);
        assert_eq!(guard.recall(&[1; 32], now), None);
        for number in 0..1000_u32 {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            guard.remember(key, StatusCode::UNAUTHORIZED, now);
        }
        assert_eq!(guard.answers.lock().unwrap().len(), MEMORY);
    }

    #[tokio::test]
    async fn without_an_api_server_nobody_reads() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let guard = Guard { client, answers: Arc::default() };
        assert_eq!(guard.judge("token").await, StatusCode::SERVICE_UNAVAILABLE);
        assert!(guard.answers.lock().unwrap().is_empty(), "not knowing is not remembered");
    }

    #[tokio::test]
    async fn a_missing_certificate_names_the_file_and_the_fix() {
        let error = tls_config(Some(Path::new("/nonexistent")), "host").await.unwrap_err().to_string();
        assert!(error.contains("/nonexistent/tls.crt") && error.contains("tls.key"), "{error}");
        tls_config(None, "host").await.unwrap();
    }

    #[tokio::test]
    async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let put = |certificate: &str, key: &str| {
            std::fs::write(directory.path().join("tls.crt"), certificate).unwrap();
            std::fs::write(directory.path().join("tls.key"), key).unwrap();
        };
        let put_new = || {
            let made = rcgen::generate_simple_self_signed(["host".to_owned()]).unwrap();
            put(&made.cert.pem(), &made.signing_key.serialize_pem());
        };
        put_new();
        let config = tls_config(Some(directory.path()), "host").await.unwrap();
        let mut used = read_pair(directory.path()).await.unwrap();
        let first = config.get_inner();
        reload(&config, directory.path(), &mut used).await;
        assert!(Arc::ptr_eq(&first, &config.get_inner()), "nothing changed");
        put("broken", "broken");
        reload(&config, directory.path(), &mut used).await;
        assert!(Arc::ptr_eq(&first, &config.get_inner()), "the last good one stays");
        put_new();
        reload(&config, directory.path(), &mut used).await;
        assert!(!Arc::ptr_eq(&first, &config.get_inner()));
    }
}

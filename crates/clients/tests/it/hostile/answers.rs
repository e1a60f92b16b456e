//! Clusters whose answers have no end.

use std::{convert::Infallible, future::pending, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::Request, response::Response};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use vitistack_clients::kubernetes::{Cause, client_from_kubeconfig};

/// More than any answer may have, and little enough that a test without the limit ends.
const FLOOD: usize = 256 << 20;

/// A cluster of a tenant that answers every request in one way.
struct HostileCluster {
    handle: Handle<SocketAddr>,
    client: Client,
}

impl Drop for HostileCluster {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

impl HostileCluster {
    async fn start(answer: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (cert.pem(), signing_key.serialize_pem());
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = RustlsConfig::from_pem(certificate.clone().into_bytes(), key.into_bytes()).await.unwrap();
        let router = Router::new().fallback(move |_: Request| {
            let answer = answer.clone();
            async move { answer() }
        });
        let handle = Handle::new();
        let server = axum_server::bind_rustls(SocketAddr::from(([127, 0, 0, 1], 0)), tls)
            .handle(handle.clone())
            .serve(router.into_make_service());
        tokio::spawn(server);

        let address = handle.listening().await.unwrap();
        let authority = BASE64_STANDARD.encode(certificate);
        let kubeconfig = format!(
            "apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: one, user: me}}}}]
clusters: [{{name: one, cluster: {{server: 'https://{address}', certificate-authority-data: {authority}}}}}]
users: [{{name: me, user: {{token: a}}}}]
"
        );
        let client = client_from_kubeconfig(kubeconfig.as_bytes()).await.unwrap();
        Self { handle, client }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Why a list, a read of one object and a watch fail.
    async fn causes(&self) -> [Cause; 3] {
        let list = self.maps().list(&ListParams::default()).await.unwrap_err();
        let read = self.maps().get("a").await.unwrap_err();
        let mut watch = match self.maps().watch(&WatchParams::default(), "0").await {
            Ok(events) => events.boxed(),
            Err(error) => return [Cause::of(&list), Cause::of(&read), Cause::of(&error)],
        };
        let event = watch.next().await.unwrap().unwrap_err();
        [Cause::of(&list), Cause::of(&read), Cause::of(&event)]
    }
}

/// A body that repeats `part` after `start`, far beyond every limit.
fn flood(start: Vec<u8>, part: Vec<u8>) -> Body {
    let count = FLOOD / part.len();
    let part = Bytes::from(part);
    let parts = stream::once(async move { Bytes::from(start) }).chain(stream::repeat(part).take(count));
    Body::from_stream(parts.map(Ok::<_, Infallible>))
}

/// The beginning of a gzip stream of zeros, and a part that can follow it any number of times: each part of 13 bytes becomes
/// 2064 zeros.
///
/// One block with the fixed code of RFC 1951: the literal 0, and from then on "repeat the last byte 258 times" in 13 bits.
fn gzip_of_zeros() -> (Vec<u8>, Vec<u8>) {
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    // The last block and the fixed code, then the code of a zero: eight bits, the highest first.
    let bits =
        |text: &str| text.bytes().filter(|bit| *bit != b' ').map(|bit| bit == b'1').collect::<Vec<_>>();
    let pack = |bits: &[bool]| -> Vec<u8> {
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| (sum << 1) | u8::from(*bit))).collect()
    };
    // Block header 1 10, literal 0x00 as 00110000, then repeats until the stream is at the edge of a byte.
    let mut start = bits("1 10 00110000");
    let repeat = bits("11000101 00000");
    while start.len() % 8 != 0 {
        start.extend(&repeat);
    }
    let part: Vec<bool> = repeat.iter().copied().cycle().take(8 * repeat.len()).collect();
    ([&header[..], &pack(&start)].concat(), pack(&part))
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let cluster = HostileCluster::start(|| Response::new(flood(Vec::new(), vec![b'x'; 1 << 16]))).await;
    assert_eq!(cluster.causes().await, [Cause::TooLarge; 3]);
}

#[tokio::test]
async fn a_gzip_bomb_is_cut_off_after_decompression() {
    let cluster = HostileCluster::start(|| {
        let (start, part) = gzip_of_zeros();
        // 256 MiB of these parts would be 40 GiB of zeros.
        let body = flood(start, part.repeat(4096));
        Response::builder().header("content-encoding", "gzip").body(body).unwrap()
    })
    .await;
    assert_eq!(cluster.causes().await, [Cause::TooLarge; 3]);
}

#[tokio::test]
async fn an_error_without_end_is_cut_off() {
    let cluster = HostileCluster::start(|| {
        Response::builder().status(500).body(flood(Vec::new(), vec![b'x'; 1 << 16])).unwrap()
    })
    .await;
    assert_eq!(cluster.causes().await, [Cause::TooLarge; 3]);
}

#[tokio::test]
async fn an_answer_that_never_ends_is_given_up_after_thirty_seconds() {
    let cluster = HostileCluster::start(|| {
        let first = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"{")) });
        Response::new(Body::from_stream(first.chain(stream::once(pending()))))
    })
    .await;
    let maps = cluster.maps();
    // The connection is made in real time, everything after that in no time.
    let list = tokio::spawn(async move { maps.list(&ListParams::default()).await.unwrap_err() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    tokio::time::pause();
    assert_eq!(Cause::of(&list.await.unwrap()), Cause::TimedOut);
}

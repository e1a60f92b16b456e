//! Clients of the socket that do nothing, too much, or do not read.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use base64::Engine as _;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use vitistack_apiserver::{ApiServer, Limits, Serving};

use crate::harness::{MAPS, TestServer, map};

type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Starts a server with limits that tests can reach.
async fn serving() -> Serving {
    let limits = Limits {
        connections: 8,
        first_request: Duration::from_millis(500),
        idle: Duration::from_millis(500),
        stalled: Duration::from_secs(1),
        ..Limits::default()
    };
    let server = ApiServer::builder().limits(limits).build().await.unwrap();
    server.listen("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn value<'a>(kubeconfig: &'a str, name: &str) -> &'a str {
    kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap()
}

/// Connects with TLS.
fn connect(address: SocketAddr, kubeconfig: &str) -> Connection {
    let authority = value(kubeconfig, "certificate-authority-data: ");
    let authority = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(client, socket)
}

/// Waits until the server closes a connection; returns what it sent before.
fn closed(connection: &mut Connection) -> String {
    let mut received = Vec::new();
    let error = connection.read_to_end(&mut received).err();
    let is_open = error.is_some_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_open, "the connection is still open");
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_send_no_request_are_disconnected() {
    let serving = serving().await;
    let (address, kubeconfig) = (serving.address, serving.kubeconfig.clone());
    let clients = tokio::task::spawn_blocking(move || {
        for sent in ["", "GET /livez HTTP/1.1\r\nHost: x\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let mut connection = connect(address, &kubeconfig);
            connection.write_all(sent.as_bytes()).unwrap();
            connection.flush().unwrap();
            closed(&mut connection);
        }
    });
    clients.await.unwrap();
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited_and_become_free_again() {
    let serving = serving().await;
    let (address, kubeconfig) = (serving.address, serving.kubeconfig.clone());
    let clients = tokio::task::spawn_blocking(move || {
        let held: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        std::thread::sleep(Duration::from_millis(200));
        let mut refused = connect(address, &kubeconfig);
        let _ = refused.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(closed(&mut refused), "");

        drop(held);
        std::thread::sleep(Duration::from_millis(200));
        let mut accepted = connect(address, &kubeconfig);
        accepted.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert!(closed(&mut accepted).starts_with("HTTP/1.1 200"));
    });
    clients.await.unwrap();
    serving.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_does_not_read_is_disconnected() {
    let serving = serving().await;
    let (address, kubeconfig) = (serving.address, serving.kubeconfig.clone());
    let server = TestServer { api: serving.server.clone() };
    let mut object = map("m");
    object["data"]["a"] = "x".repeat(900_000).into();
    server.post(MAPS, object.clone()).await;
    let watcher = tokio::task::spawn_blocking(move || {
        let token = value(&kubeconfig, "token: ");
        let request =
            format!("GET {MAPS}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut connection = connect(address, &kubeconfig);
        connection.write_all(request.as_bytes()).unwrap();
        connection.flush().unwrap();
        // Nothing is read for longer than the server tolerates.
        std::thread::sleep(Duration::from_secs(4));
        closed(&mut connection).len()
    });

    for index in 0..40 {
        object["data"]["b"] = index.to_string().into();
        server.put(&format!("{MAPS}/m"), object.clone()).await;
    }
    let received = watcher.await.unwrap();
    assert!(received < 40 * 900_000, "the watch was cut off after {received} bytes");
    serving.stop().await;
}

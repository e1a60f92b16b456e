//! Kubeconfigs with credentials that cannot be used, and with servers that must not be reached.

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use vitistack_clients::kubernetes::client_from_kubeconfig;

const SECRET: &str = "top-secret";

fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

/// Returns a kubeconfig with this server and the fields of this user, as JSON.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: one, user: me}}}}]
clusters: [{{name: one, cluster: {{{cluster}}}}}]
users: [{{name: me, user: {{{user}}}}}]
"
    )
}

async fn refusal(cluster: &str, user: &str) -> Option<String> {
    client_from_kubeconfig(kubeconfig(cluster, user).as_bytes()).await.err().map(|error| error.to_string())
}

/// Returns why a user is refused.
async fn user_refusal(user: &str) -> Option<String> {
    refusal("server: 'https://192.0.2.1:6443'", user).await
}

async fn server_refusal(host: &str) -> Option<String> {
    refusal(&format!("server: 'https://{host}:443'"), "token: a").await
}

#[tokio::test]
async fn a_token_that_is_no_header_value_does_not_panic() {
    for token in [
        r#""top-secret\r\nX-Injected: 1""#,
        r#""top-secret\n""#,
        r#""top-secret\u0000""#,
        r#""top secret""#,
        r#""top-secret\u00e9""#,
        r#""""#,
    ] {
        let message = user_refusal(&format!("token: {token}")).await.unwrap();
        assert!(message.contains("user.token"), "{message}");
        assert!(!message.contains(SECRET) && !message.contains("Injected"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[tokio::test]
async fn a_token_with_a_line_break_at_its_end_is_refused_with_the_fix() {
    assert_eq!(
        user_refusal(r#"token: "top-secret\n""#).await.unwrap(),
        "failed to accept the kubeconfig: a user.token with a line break at its end is not accepted: remove the line break, for example with echo -n"
    );
}

#[tokio::test]
async fn a_login_that_cannot_be_sent_is_refused() {
    let message = user_refusal(r#"username: "a:b", password: top-secret"#).await.unwrap();
    assert!(message.contains("user.username"), "{message}");
    let message = user_refusal(r#"username: a, password: "top-secret\r\nX-Injected: 1""#).await.unwrap();
    assert!(message.contains("user.password") && !message.contains(SECRET), "{message}");
}

#[tokio::test]
async fn certificates_and_keys_that_cannot_be_read_are_refused_by_field() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["me".to_owned()]).unwrap();
    let (certificate, key) = (encode(&cert.pem()), encode(&signing_key.serialize_pem()));
    let user = |certificate: &str, key: &str| {
        format!("client-certificate-data: {certificate}, client-key-data: {key}")
    };
    assert_eq!(user_refusal(&user(&certificate, &key)).await, None);

    let broken = "-----BEGIN CERTIFICATE-----\n!top-secret!\n-----END CERTIFICATE-----\n";
    for data in ["'!top-secret'", "dG9wLXNlY3JldA==", "''", &encode(broken)] {
        let message = user_refusal(&user(data, &key)).await.unwrap();
        assert!(message.contains("user.client-certificate-data") && !message.contains(SECRET), "{message}");
        let message = user_refusal(&user(&certificate, data)).await.unwrap();
        assert!(message.contains("user.client-key-data") && !message.contains(SECRET), "{message}");
        let cluster = format!("server: 'https://192.0.2.1:6443', certificate-authority-data: {data}");
        let message = refusal(&cluster, "token: a").await.unwrap();
        assert!(message.contains("cluster.certificate-authority-data"), "{message}");
        assert!(!message.contains(SECRET), "{message}");
    }

    let message = user_refusal(&format!("client-certificate-data: {certificate}")).await.unwrap();
    assert!(message.contains("only one of client-certificate-data and client-key-data"), "{message}");
    let other = encode(&generate_simple_self_signed(["x".to_owned()]).unwrap().signing_key.serialize_pem());
    let message = user_refusal(&user(&certificate, &other)).await.unwrap();
    assert!(message.contains("belong together"), "{message}");
}

#[tokio::test]
async fn every_spelling_of_a_link_local_server_is_refused() {
    for host in [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[::169.254.169.254]",
        "[64:ff9b::169.254.169.254]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "[2001:0:a9fe:a9fe::1]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[2001:db8::1%25eth0]",
    ] {
        let message = server_refusal(host).await.unwrap();
        assert!(message.contains("cluster.server"), "{host}: {message}");
        assert!(!message.contains("a9fe") && !message.contains("169"), "{message}");
    }
    for host in ["198.51.100.7", "[2001:db8::1]", "[64:ff9b::198.51.100.7]", "[::1]", "127.0.0.1"] {
        assert_eq!(server_refusal(host).await, None, "{host}");
    }
}

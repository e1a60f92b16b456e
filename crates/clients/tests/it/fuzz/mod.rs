//! Fuzz targets: kubeconfigs that tenants write.
//!
//! `VITISTACK_FUZZ_SECONDS` sets how long each target runs; CONTRIBUTING.md explains how to replay an input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vitistack_clients::kubernetes::client_from_kubeconfig;
use vitistack_testkit::fuzz::{Draw, Target, Vocabulary};

/// Text of the file that no message may repeat.
const SECRET: &str = "top-secret";

const WORDS: Vocabulary<'static> = Vocabulary {
    names: &[
        "apiVersion",
        "kind",
        "current-context",
        "contexts",
        "clusters",
        "users",
        "name",
        "context",
        "cluster",
        "user",
        "server",
        "token",
        "tokenFile",
        "exec",
        "auth-provider",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "proxy-url",
        "tls-server-name",
        "username",
        "password",
        "command",
        "as",
        "namespace",
    ],
    texts: &[
        "here",
        "one",
        "me",
        SECRET,
        "/etc/passwd",
        "https://192.0.2.1:6443",
        "https://169.254.169.254",
        "https://[fe80::1]:443",
        "https://[::ffff:169.254.169.254]",
        "https://[64:ff9b::a9fe:a9fe]/",
        "https://user:top-secret@192.0.2.1",
        "http://192.0.2.1",
        "HTTPS://example.com:443/path?query#fragment",
        "https://",
        "dG9wLXNlY3JldA==",
        "top-secret\r\nX-Injected: 1",
        "-----BEGIN CERTIFICATE-----",
        "",
        "é",
    ],
};

fn good() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "me", "user": {"token": SECRET}}],
    })
}

/// Draws the address of a server, often a number that means a link-local address somewhere.
fn server(draw: &mut Draw<'_>) -> String {
    let bytes: [u8; 4] =
        [draw.pick(&[169, 0, 10, 224, 255]), draw.pick(&[254, 0, 255]), draw.byte(), draw.byte()];
    let address = Ipv4Addr::from(bytes);
    let [first, second, third, fourth] = bytes.map(u16::from);
    let (high, low) = (first << 8 | second, third << 8 | fourth);
    let host = match draw.below(9) {
        0 => address.to_string(),
        1 => format!("[::ffff:{address}]"),
        2 => format!("[64:ff9b::{address}]"),
        3 => format!("[2002:{high:x}:{low:x}::1]"),
        4 => format!("[::{address}]"),
        5 => u32::from(address).to_string(),
        6 => format!("{first:#x}.{second}.{third}.{fourth}"),
        7 => format!("[fe80::{high:x}%25eth0]"),
        _ => draw.text(&["a", ".", "example.com", "@", "%", "[", "]", ":", "169.254.1.1"]),
    };
    let scheme = draw.pick(&["https://", "https://", "HTTPS://", "http://", "https://a@", "https:/"]);
    format!("{scheme}{host}{}", draw.pick(&[":443", "", ":0", ":99999", "/x", "?a=b"]))
}

/// Draws a kubeconfig as text: JSON, which is YAML, or what is left of it.
fn build(draw: &mut Draw<'_>, corpus: &[String]) -> String {
    if draw.chance(20) {
        let text = draw.one_of(corpus).cloned().unwrap_or_default();
        return draw.mutated_text(
            &text,
            &["\n", "  ", "- ", ": ", "&a", "*a", "{", "}", "!!binary ", "exec", "|", "'"],
        );
    }
    let mut config = good();
    match draw.below(3) {
        0 => config["clusters"][0]["cluster"]["server"] = server(draw).into(),
        1 => {
            let field = draw.pick(WORDS.names);
            config["users"][0]["user"][field] = draw.json(&WORDS);
        }
        _ => {}
    }
    draw.mutate(&mut config, &WORDS);
    config.to_string()
}

/// The address that packets to an IPv6 address end up at, computed in another way than the code under test.
fn is_link_local(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            address.is_link_local() || address.is_unspecified() || address.is_multicast()
        }
        Ok(IpAddr::V6(address)) => {
            let text = address.segments().map(|segment| format!("{segment:04x}")).concat();
            let is_translated = ["0064ff9b", "2002", "000000000000000000000000", "00000000000000000000ffff"]
                .iter()
                .any(|prefix| text.starts_with(prefix));
            (address != Ipv6Addr::LOCALHOST && is_translated && text.contains("a9fe"))
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_multicast()
        }
        Err(_) => false,
    }
}

/// Asserts that an accepted kubeconfig makes the operator neither run a program nor read a file, nor call a link-local
/// address.
fn assert_harmless(config: &Kubeconfig) {
    for user in config.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        assert!(user.exec.is_none() && user.auth_provider.is_none());
        assert!(user.token_file.is_none() && user.client_certificate.is_none() && user.client_key.is_none());
    }
    for cluster in config.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        assert!(cluster.certificate_authority.is_none() && cluster.proxy_url.is_none());
        assert!(cluster.insecure_skip_tls_verify != Some(true));
        let server: http::Uri = cluster.server.as_deref().unwrap().parse().unwrap();
        assert_eq!(server.scheme_str(), Some("https"));
        assert!(!is_link_local(server.host().unwrap()), "{server}");
    }
}

fn check(text: &str, runtime: &Runtime) {
    let accepted = runtime.block_on(client_from_kubeconfig(text.as_bytes())).map(drop);
    match accepted {
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(SECRET) && !message.contains("Injected"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
        Ok(()) => assert_harmless(&Kubeconfig::from_yaml(text).unwrap()),
    }
}

#[test]
fn kubeconfigs() {
    let target = Target::new(env!("CARGO_MANIFEST_DIR"), "kubeconfigs");
    let runtime = Runtime::new().unwrap();
    let read = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
    let corpus = target.corpus(read);
    target.run(read, |draw| build(draw, &corpus), |text| check(text, &runtime));
}

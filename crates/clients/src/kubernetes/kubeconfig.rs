//! A client from a kubeconfig that a tenant wrote.
//!
//! Such a file is hostile until checked: it can name programs to run, files of ours to read and hosts to send
//! credentials to. Only inline data and an https server are accepted.

use std::{net::IpAddr, time::Duration};

use http::Uri;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig},
};
use snafu::{OptionExt, Snafu, ensure};
use tower::timeout::TimeoutLayer;

/// A server that is there takes a connection sooner than this.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A server that works begins to answer sooner than this; the webhooks that it asks have at most as long.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// A connection on which nothing comes for so long is dead: longer than a quiet watch lasts.
const SILENCE_LIMIT: Duration = Duration::from_mins(6);

/// One thing in a kubeconfig that we do not accept. Never carries a value of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{field} is not accepted; {fix}"))]
pub struct Refusal {
    /// The field, as it is written in the file.
    pub field: &'static str,
    /// What the author of the file can do.
    pub fix: &'static str,
}

/// Why there is no client.
#[derive(Debug, Snafu)]
pub enum KubeconfigError {
    /// Not YAML, or not a kubeconfig. The parser's words are left out: they quote the file.
    #[snafu(display(
        "failed to parse the kubeconfig; it has to be YAML as \"kubectl config view --raw --flatten --minify\" prints it"
    ))]
    ParseKubeconfig,

    /// The kubeconfig asks for something that we do not do for a tenant.
    #[snafu(display("failed to accept the kubeconfig: {refusal}"))]
    AcceptKubeconfig {
        /// What was refused.
        refusal: Refusal,
    },

    /// The inline data is not what it claims to be. The cause is left out: it may quote the data.
    #[snafu(display("failed to use the kubeconfig; certificates and keys have to be base64 of PEM"))]
    UseKubeconfig,
}

/// Refuses everything but one https server with inline credentials in the current context.
pub fn check(kubeconfig: &Kubeconfig) -> Result<(), Refusal> {
    let current = kubeconfig
        .current_context
        .as_deref()
        .filter(|name| !name.is_empty())
        .context(RefusalSnafu { field: "an empty current-context", fix: "name the context to use" })?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| context.name == current)
        .and_then(|context| context.context.as_ref())
        .context(RefusalSnafu {
            field: "a current-context that is not in contexts",
            fix: "add the context or name another",
        })?;
    ensure!(
        kubeconfig
            .clusters
            .iter()
            .any(|cluster| cluster.name == context.cluster && cluster.cluster.is_some()),
        RefusalSnafu {
            field: "a context whose cluster is not in clusters",
            fix: "add the cluster to the file"
        }
    );
    // All entries, not only those of the current context: which of them a client reads is not ours to guess.
    kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()).try_for_each(check_cluster)?;
    kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()).try_for_each(check_user)
}

fn check_cluster(cluster: &Cluster) -> Result<(), Refusal> {
    let secure = cluster.server.as_deref().is_some_and(|server| {
        server.split_at_checked(8).is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https://"))
    });
    ensure!(secure, RefusalSnafu { field: "a cluster.server without https", fix: "use an https:// address" });
    let server = cluster.server.as_deref().and_then(|server| server.parse::<Uri>().ok());
    let host = server.as_ref().and_then(Uri::host);
    ensure!(
        host.is_none_or(|host| address_of(host).is_some() || !ends_in_number(host)),
        RefusalSnafu {
            field: "a cluster.server whose host ends in a number and is no address",
            fix: "write an address as four numbers, as in 198.51.100.7, or name a host whose last label begins with a letter"
        }
    );
    ensure!(
        host.and_then(address_of).is_none_or(may_be_served_at),
        RefusalSnafu {
            field: "a cluster.server on a link-local, unspecified or multicast address",
            fix: "use an address that a cluster is served at"
        }
    );
    ensure!(
        cluster.insecure_skip_tls_verify != Some(true),
        RefusalSnafu {
            field: "cluster.insecure-skip-tls-verify",
            fix: "give the server's certificate authority in certificate-authority-data"
        }
    );
    ensure!(
        cluster.certificate_authority.is_none(),
        RefusalSnafu {
            field: "cluster.certificate-authority",
            fix: "put the certificate into certificate-authority-data"
        }
    );
    ensure!(
        cluster.proxy_url.is_none(),
        RefusalSnafu { field: "cluster.proxy-url", fix: "name a server that is reached directly" }
    );
    Ok(())
}

fn address_of(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// A resolver takes 2852039166 and 0xa9.254.169.254 for addresses too; no domain ends in a number.
fn ends_in_number(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next();
    last.is_some_and(|label| label.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Whether a cluster may be served at this address. What answers on link-local addresses is the cloud's own: the credentials
/// of the machine that we run on are there for whoever asks from it.
fn may_be_served_at(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_local || address.is_unspecified() || address.is_multicast())
}

fn check_user(user: &AuthInfo) -> Result<(), Refusal> {
    const INLINE: &str = "put a token, or client-certificate-data and client-key-data, into the file";
    let refused = [
        (user.exec.is_some(), "user.exec"),
        (user.auth_provider.is_some(), "user.auth-provider"),
        (user.token_file.is_some(), "user.tokenFile"),
        (user.client_certificate.is_some(), "user.client-certificate"),
        (user.client_key.is_some(), "user.client-key"),
    ];
    match refused.into_iter().find(|(present, _)| *present) {
        Some((_, field)) => RefusalSnafu { field, fix: INLINE }.fail(),
        None => Ok(()),
    }
}

/// Makes a client from the bytes of a kubeconfig, after [`check`]. Nothing is sent. The client waits for nothing without
/// end, because nobody here looks after that cluster.
pub async fn client_from_kubeconfig(bytes: &[u8]) -> Result<Client, KubeconfigError> {
    let kubeconfig = std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| Kubeconfig::from_yaml(text).ok())
        .context(ParseKubeconfigSnafu)?;
    check(&kubeconfig).map_err(|refusal| KubeconfigError::AcceptKubeconfig { refusal })?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .ok()
        .context(UseKubeconfigSnafu)?;
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.read_timeout = Some(SILENCE_LIMIT);
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config).ok().context(UseKubeconfigSnafu)?;
    Ok(builder.with_layer(&TimeoutLayer::new(ANSWER_LIMIT)).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: one, user: me}}]
clusters: [{name: one, cluster: {server: 'https://192.0.2.1:6443'}}]
users: [{name: me, user: {token: top-secret}}]
";

    fn refusal(text: &str) -> String {
        check(&Kubeconfig::from_yaml(text).unwrap()).unwrap_err().to_string()
    }

    #[track_caller]
    fn refuses(from: &str, to: &str, field: &str) {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD);
        let message = refusal(&text);
        assert!(message.starts_with(field), "{message}");
        assert!(message.contains("; "), "{message} names no fix");
        assert!(!message.contains("top-secret") && !message.contains("192.0.2.1"), "{message}");
    }

    #[test]
    fn inline_data_and_https_are_accepted() {
        check(&Kubeconfig::from_yaml(GOOD).unwrap()).unwrap();
        check(&Kubeconfig::from_yaml(&GOOD.replace("https://", "HTTPS://")).unwrap()).unwrap();
    }

    #[test]
    fn users_may_not_run_programs_or_read_files() {
        let user = "token: top-secret";
        refuses(user, "exec: {command: /bin/sh, args: [top-secret]}", "user.exec");
        refuses(user, "auth-provider: {name: oidc}", "user.auth-provider");
        refuses(user, "tokenFile: /var/run/secrets/token", "user.tokenFile");
        refuses(user, "client-certificate: /etc/passwd", "user.client-certificate");
        refuses(user, "token: top-secret, client-key: /etc/passwd", "user.client-key");
    }

    #[test]
    fn clusters_have_to_be_https_checked_and_direct() {
        refuses("https://", "http://", "a cluster.server without https");
        refuses("server: 'https://192.0.2.1:6443'", "", "a cluster.server without https");
        let server = "server: 'https://192.0.2.1:6443'";
        refuses(
            server,
            &format!("{server}, insecure-skip-tls-verify: true"),
            "cluster.insecure-skip-tls-verify",
        );
        refuses(
            server,
            &format!("{server}, certificate-authority: /etc/ca"),
            "cluster.certificate-authority",
        );
        refuses(server, &format!("{server}, proxy-url: 'http://192.0.2.1'"), "cluster.proxy-url");
    }

    #[test]
    fn clusters_are_not_served_where_a_cloud_keeps_its_own() {
        const FIELD: &str = "a cluster.server on a link-local";
        for host in
            ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "[::]", "224.0.0.1"]
        {
            refuses("192.0.2.1:6443", &format!("{host}:443"), FIELD);
        }
        for host in ["2852039166", "0xa9.254.169.254", "rack.1"] {
            refuses("192.0.2.1:6443", &format!("{host}:443"), "a cluster.server whose host ends in a number");
        }
        for host in ["10.0.0.1", "[2001:db8::1]", "cluster.example", "127.0.0.1"] {
            let text = GOOD.replace("192.0.2.1", host);
            check(&Kubeconfig::from_yaml(&text).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_context_has_to_be_current_and_complete() {
        refuses("current-context: here", "current-context: ''", "an empty current-context");
        refuses("current-context: here\n", "", "an empty current-context");
        refuses(
            "current-context: here",
            "current-context: there",
            "a current-context that is not in contexts",
        );
        refuses("cluster: one, user", "cluster: two, user", "a context whose cluster is not in clusters");
    }

    #[test]
    fn entries_outside_the_current_context_are_checked_too() {
        refuses("users: [", "users: [{name: other, user: {exec: {command: sh}}}, ", "user.exec");
    }

    #[tokio::test]
    async fn a_checked_kubeconfig_becomes_a_client() {
        client_from_kubeconfig(GOOD.as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_told_without_its_content() {
        for text in ["top-secret: [", "\u{0}", "[top-secret]"] {
            let message = client_from_kubeconfig(text.as_bytes()).await.map(|_| ()).unwrap_err().to_string();
            assert!(!message.contains("top-secret"), "{message}");
        }
        let broken = GOOD.replace("token: top-secret", "client-certificate-data: '!top-secret'");
        let message = client_from_kubeconfig(broken.as_bytes()).await.map(|_| ()).unwrap_err().to_string();
        assert!(!message.contains("top-secret"), "{message}");
    }
}

//! Clients from kubeconfigs that tenants write.
//!
//! Such a file is untrusted: it can name programs to run, local files to read and hosts to send credentials to. Only
//! inline data and an https server are accepted.

mod credentials;
mod server;

use std::time::Duration;

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{Cluster, KubeConfigOptions, Kubeconfig},
};
use snafu::{OptionExt, Snafu, ensure};

use self::{
    credentials::{check_authority, check_user},
    server::check_server,
};
use super::limits::LimitAnswersLayer;

/// The time limit for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may be silent: longer than an idle watch lasts.
const SILENCE_LIMIT: Duration = Duration::from_mins(6);

/// A part of a kubeconfig that is not accepted. Never contains a value of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("{field} is not accepted: {fix}"))]
pub struct Refusal {
    /// The field, as written in the file.
    pub field: &'static str,
    /// What the author of the file can do.
    pub fix: &'static str,
}

/// Why there is no client.
#[derive(Debug, Snafu)]
pub enum KubeconfigError {
    /// Not YAML, or not a kubeconfig. The parser's message is omitted because it quotes the file.
    #[snafu(display(
        "failed to parse the kubeconfig: use the output of \"kubectl config view --raw --flatten --minify\""
    ))]
    ParseKubeconfig,

    /// The kubeconfig requires something that is not done for a tenant.
    #[snafu(display("failed to accept the kubeconfig: {refusal}"))]
    AcceptKubeconfig {
        /// What was refused.
        refusal: Refusal,
    },

    /// Each part can be used, and all of them together cannot. The cause is omitted because it may quote the data.
    #[snafu(display(
        "failed to use the kubeconfig: use a client-certificate-data and a client-key-data that belong together, and a certificate-authority-data"
    ))]
    UseKubeconfig,
}

/// Refuses every kubeconfig but one with an https server and inline credentials that can be used in the current context.
pub fn check(kubeconfig: &Kubeconfig) -> Result<(), Refusal> {
    let current = kubeconfig
        .current_context
        .as_deref()
        .filter(|name| !name.is_empty())
        .context(RefusalSnafu { field: "an empty current-context", fix: "set it to the context to use" })?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|context| context.name == current)
        .and_then(|context| context.context.as_ref())
        .context(RefusalSnafu {
            field: "a current-context that is not in contexts",
            fix: "add the context, or set current-context to another",
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
    // All entries, not only those of the current context, because it depends on the client which of them it reads.
    kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()).try_for_each(check_cluster)?;
    kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()).try_for_each(check_user)
}

fn check_cluster(cluster: &Cluster) -> Result<(), Refusal> {
    check_server(cluster.server.as_deref().unwrap_or_default())?;
    ensure!(
        cluster.insecure_skip_tls_verify != Some(true),
        RefusalSnafu {
            field: "cluster.insecure-skip-tls-verify",
            fix: "put the certificate authority of the server into certificate-authority-data"
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
        RefusalSnafu { field: "cluster.proxy-url", fix: "use a server that can be reached directly" }
    );
    check_authority(cluster)
}

/// Returns a client from the bytes of a kubeconfig, after [`check`]. Nothing is sent. Every answer to the client is limited
/// in size and time, because the cluster is not under our control.
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
    Ok(builder.with_layer(&LimitAnswersLayer).build())
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
        assert!(message.contains(": "), "{message} has no fix");
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
    fn clusters_must_use_https_with_verification_and_without_a_proxy() {
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
    fn clusters_on_link_local_addresses_are_refused() {
        const FIELD: &str = "a cluster.server on a link-local";
        for host in [
            "169.254.169.254",
            "[fe80::1]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "0.0.0.0",
            "[::]",
            "224.0.0.1",
        ] {
            refuses("192.0.2.1:6443", &format!("{host}:443"), FIELD);
        }
        for host in ["2852039166", "0xa9.254.169.254", "rack.1"] {
            refuses("192.0.2.1:6443", &format!("{host}:443"), "a cluster.server whose host is neither");
        }
        for host in ["10.0.0.1", "[2001:db8::1]", "cluster.example", "127.0.0.1"] {
            let text = GOOD.replace("192.0.2.1", host);
            check(&Kubeconfig::from_yaml(&text).unwrap()).unwrap();
        }
    }

    #[test]
    fn the_current_context_must_exist_and_be_complete() {
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
    async fn an_unreadable_kubeconfig_is_reported_without_its_content() {
        for text in ["top-secret: [", "\u{0}", "[top-secret]"] {
            let message = client_from_kubeconfig(text.as_bytes()).await.map(|_| ()).unwrap_err().to_string();
            assert!(!message.contains("top-secret"), "{message}");
        }
        let broken = GOOD.replace("token: top-secret", "client-certificate-data: '!top-secret'");
        let message = client_from_kubeconfig(broken.as_bytes()).await.map(|_| ()).unwrap_err().to_string();
        assert!(!message.contains("top-secret"), "{message}");
    }
}

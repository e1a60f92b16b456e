//! The settings of every operator, as flags and environment variables. Only this module reads the environment.

use std::{
    ffi::OsString,
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use vitistack_types::{Duration, WatchedNamespaces};

/// The directory where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The environment variable with the path of the settings file.
const CONFIG_VARIABLE: &str = "VITISTACK_CONFIG";
/// An environment variable that every pod has.
const POD_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";
/// The ports of metrics and probes without the settings.
const METRICS_PORT: u16 = 8080;
const PROBE_PORT: u16 = 8081;
/// The namespace of an operator that runs outside a cluster without the setting.
const DEFAULT_NAMESPACE: &str = "vitistack-system";

/// The flags of every operator; flatten them into your own command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Operator settings")]
pub struct OperatorArgs {
    /// YAML file with settings; its keys are the flags in camelCase. Flags and environment variables override it
    #[arg(long, env = CONFIG_VARIABLE, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Kubeconfig of the cluster to manage (default: the pod's service account, otherwise ~/.kube/config)
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Resync interval: how often every object is reconciled even without a change
    #[arg(long, env = "RECONCILE_INTERVAL", value_name = "DURATION", default_value = "30s")]
    pub reconcile_interval: Duration,

    /// Maximum number of concurrent reconciles per controller
    #[arg(long, env = "MAX_CONCURRENT_RECONCILES", value_name = "NUMBER", default_value = "5")]
    pub max_concurrent_reconciles: NonZeroUsize,

    /// Address of the metrics server; 0 disables it (default: :8080 in a cluster, otherwise 127.0.0.1:8080)
    #[arg(long, env = "METRICS_BIND_ADDRESS", value_name = "ADDRESS")]
    pub metrics_bind_address: Option<BindAddress>,

    /// Serve metrics over TLS and only to authorized clients (default: true in a cluster or with --metrics-cert-dir)
    #[arg(long, env = "METRICS_SECURE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub metrics_secure: Option<bool>,

    /// Directory with tls.crt and tls.key for the metrics server (default: a self-signed certificate, generated at startup)
    #[arg(long, env = "METRICS_CERT_DIR", value_name = "DIRECTORY")]
    pub metrics_cert_dir: Option<PathBuf>,

    /// Address of the probes /healthz and /readyz; 0 disables them (default: :8081 in a pod, otherwise 127.0.0.1:8081)
    #[arg(long, env = "HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS")]
    pub health_probe_bind_address: Option<BindAddress>,

    /// Elect one replica as the leader, which alone reconciles; disable it only if there is never a second replica
    #[arg(long, env = "LEADER_ELECTION", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
        default_value = "true", action = clap::ArgAction::Set)]
    pub leader_election: bool,

    /// Namespace of the operator, which holds its leases (default: that of its service account, otherwise vitistack-system)
    #[arg(long, env = "NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Namespaces to watch and act in, separated by commas (default: all); cluster-scoped objects are always watched
    #[arg(long, env = "NAMESPACES", value_name = "NAMES")]
    pub namespaces: Option<WatchedNamespaces>,

    /// Minimum level of log lines
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub log_level: LogLevel,

    /// Format of log lines (default: text on a terminal, otherwise json)
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", ignore_case = true)]
    pub log_format: Option<LogFormat>,

    /// Address of an OpenTelemetry collector that receives traces over gRPC (default: no traces)
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otel_exporter_otlp_endpoint: Option<String>,

    /// Service name in traces
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME", default_value = "vitistack")]
    pub otel_service_name: String,

    /// Additional resource attributes in traces, as key=value,key=value
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "ATTRIBUTES", default_value = "")]
    pub otel_resource_attributes: String,
}

impl OperatorArgs {
    /// Returns whether the process runs as a pod and manages the cluster it runs in.
    #[must_use]
    pub fn is_in_cluster(&self) -> bool {
        self.kubeconfig.as_ref().is_none_or(|path| path.as_os_str().is_empty()) && is_pod()
    }

    /// Returns whether metrics are served over TLS and only to authorized clients.
    #[must_use]
    pub fn has_secure_metrics(&self) -> bool {
        self.metrics_secure.unwrap_or_else(|| self.is_in_cluster() || self.metrics_cert_dir.is_some())
    }

    /// Returns the address of the metrics server. Outside a cluster metrics are not protected by default, so that other
    /// hosts must not reach them.
    #[must_use]
    pub fn metrics_address(&self) -> BindAddress {
        self.metrics_bind_address.unwrap_or_else(|| default_address(METRICS_PORT, self.is_in_cluster()))
    }

    /// Returns the address of the probes. In a pod they are called from its node, whatever cluster the operator manages.
    #[must_use]
    pub fn health_probe_address(&self) -> BindAddress {
        self.health_probe_bind_address.unwrap_or_else(|| default_address(PROBE_PORT, is_in_pod()))
    }

    /// Returns the namespaces that the operator watches and acts in.
    #[must_use]
    pub fn watched_namespaces(&self) -> WatchedNamespaces {
        self.namespaces.clone().unwrap_or_default()
    }

    /// Returns the namespace of the operator.
    #[must_use]
    pub fn own_namespace(&self) -> String {
        self.namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| {
            std::fs::read_to_string(Path::new(SERVICE_ACCOUNT).join("namespace"))
                .map(|text| text.trim().to_owned())
                .ok()
                .filter(|namespace| !namespace.is_empty())
                .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
        })
    }
}

/// Returns whether the process runs as a pod with a service account.
#[must_use]
pub fn is_pod() -> bool {
    Path::new(SERVICE_ACCOUNT).is_dir()
}

/// Returns whether the process runs in a pod, even one without a service account.
fn is_in_pod() -> bool {
    is_pod() || std::env::var_os(POD_VARIABLE).is_some()
}

/// Returns the address of a server without the setting: all interfaces, or the host itself.
fn default_address(port: u16, is_for_others: bool) -> BindAddress {
    if is_for_others {
        BindAddress::All { port }
    } else {
        BindAddress::At(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

/// Returns the path of the settings file from the environment, which is needed before the arguments are parsed.
pub(crate) fn config_variable() -> Option<OsString> {
    std::env::var_os(CONFIG_VARIABLE)
}

/// The minimum level of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names are clear, and a doc comment would become help text")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names are clear, and a doc comment would become help text")]
pub enum LogFormat {
    Json,
    Text,
}

/// The address a server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// The server is disabled.
    Off,
    /// All interfaces.
    All {
        /// The port.
        port: u16,
    },
    /// One address.
    At(SocketAddr),
}

impl BindAddress {
    /// Starts to listen; returns `None` if the server is disabled. All interfaces include IPv4 and IPv6 where available.
    pub fn listen(self) -> std::io::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Off => return Ok(None),
            Self::At(address) => TcpListener::bind(address)?,
            Self::All { port } => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?,
        };
        listener.set_nonblocking(true)?;
        Ok(Some(listener))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("0"),
            Self::All { port } => write!(formatter, ":{port}"),
            Self::At(address) => write!(formatter, "{address}"),
        }
    }
}

impl FromStr for BindAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FIX: &str = "write it as :8080, 127.0.0.1:8080 or [::1]:8080, or 0 to disable it";
        if text == "0" {
            return Ok(Self::Off);
        }
        match text.strip_prefix(':') {
            Some(port) => port.parse().map(|port| Self::All { port }).map_err(|_| FIX),
            None => text.parse().map(Self::At).map_err(|_| FIX),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        operator: OperatorArgs,
    }

    fn parse(arguments: &[&str]) -> Result<OperatorArgs, String> {
        let all = std::iter::once("operator").chain(arguments.iter().copied());
        Cli::try_parse_from(all).map(|cli| cli.operator).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_have_the_syntax_of_go() {
        assert_eq!(":8080".parse(), Ok(BindAddress::All { port: 8080 }));
        assert_eq!("0".parse(), Ok(BindAddress::Off));
        for text in ["127.0.0.1:9000", "[::1]:9000", ":8080", "0"] {
            assert_eq!(text.parse::<BindAddress>().unwrap().to_string(), text);
        }
        for bad in ["8080", ":", ":99999", "localhost:80", ""] {
            assert!(bad.parse::<BindAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let defaults = parse(&[]).unwrap();
        assert_eq!(defaults.reconcile_interval.to_string(), "30s");
        assert_eq!(defaults.max_concurrent_reconciles.get(), 5);
        assert_eq!((defaults.metrics_bind_address, defaults.health_probe_bind_address), (None, None));
        assert_eq!(defaults.watched_namespaces(), WatchedNamespaces::ALL);
        assert!(defaults.leader_election);
        assert_eq!(defaults.log_level, LogLevel::Info);
        assert_eq!(defaults.otel_service_name, "vitistack");
    }

    #[test]
    fn only_a_cluster_reaches_servers_without_a_setting() {
        assert_eq!(default_address(8080, true).to_string(), ":8080");
        assert_eq!(default_address(8080, false).to_string(), "127.0.0.1:8080");
        let outside = parse(&["--kubeconfig", "/some/file"]).unwrap();
        assert_eq!(outside.metrics_address().to_string(), "127.0.0.1:8080");
        let chosen = ["--metrics-bind-address=:9000", "--health-probe-bind-address=:9001"];
        let chosen = parse(&[&["--kubeconfig", "/some/file"], &chosen[..]].concat()).unwrap();
        assert_eq!(chosen.metrics_address(), BindAddress::All { port: 9000 });
        assert_eq!(chosen.health_probe_address(), BindAddress::All { port: 9001 });
    }

    #[test]
    fn namespaces_are_listed_and_an_invalid_name_is_a_usage_error() {
        let watched = parse(&["--namespaces", "team-b,team-a"]).unwrap().watched_namespaces();
        assert_eq!(watched.to_string(), "team-a,team-b");
        for bad in ["", "a,,b", "Team", "a b", "*"] {
            let error = parse(&["--namespaces", bad]).unwrap_err();
            assert!(error.contains("--namespaces") && error.contains("team-a,team-b"), "{error}");
        }
    }

    #[test]
    fn a_switch_works_with_and_without_a_value() {
        assert!(!parse(&["--leader-election=false"]).unwrap().leader_election);
        assert!(!parse(&["--leader-election", "false"]).unwrap().leader_election);
        assert!(parse(&["--leader-election"]).unwrap().leader_election);
        assert_eq!(parse(&["--metrics-secure"]).unwrap().metrics_secure, Some(true));
        assert!(!parse(&["--metrics-secure", "false"]).unwrap().has_secure_metrics());
    }

    #[test]
    fn levels_ignore_case() {
        assert_eq!(parse(&["--log-level", "DEBUG"]).unwrap().log_level, LogLevel::Debug);
        assert_eq!(parse(&["--log-level", "Warn"]).unwrap().log_level, LogLevel::Warn);
    }

    #[test]
    fn a_bad_value_names_the_setting_the_value_and_the_fix() {
        let error = parse(&["--reconcile-interval", "soon"]).unwrap_err();
        assert!(
            error.contains("'soon'") && error.contains("--reconcile-interval") && error.contains("1m30s"),
            "{error}"
        );
        let error = parse(&["--metrics-bind-address", "8080"]).unwrap_err();
        assert!(error.contains("'8080'") && error.contains("write it as :8080"), "{error}");
        let error = parse(&["--max-concurrent-reconciles", "0"]).unwrap_err();
        assert!(error.contains("--max-concurrent-reconciles"), "{error}");
    }
}

//! The settings that every operator has, as flags and environment variables. The only place that reads either.

use std::{
    ffi::OsString,
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use vitistack_types::Duration;

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Environment variable that names the settings file.
const CONFIG_VARIABLE: &str = "VITISTACK_CONFIG";
/// The namespace of an operator that is told none.
const DEFAULT_NAMESPACE: &str = "vitistack-system";

/// Flags of every operator; flatten it into a command of your own.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Operator settings")]
pub struct KitArgs {
    /// YAML file with settings; its keys are the flags in camelCase. Flags and environment variables win over it
    #[arg(long, env = CONFIG_VARIABLE, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Kubeconfig of the cluster to work on; without it the service account of the pod, else ~/.kube/config
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// How often every object is looked at even if nothing happened to it
    #[arg(long, env = "RECONCILE_INTERVAL", value_name = "DURATION", default_value = "30s")]
    pub reconcile_interval: Duration,

    /// How many objects each controller works on at a time
    #[arg(long, env = "MAX_CONCURRENT_RECONCILES", value_name = "NUMBER", default_value = "5")]
    pub max_concurrent_reconciles: NonZeroUsize,

    /// Address of the metrics server; 0 turns it off
    #[arg(long, env = "METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: BindAddress,

    /// Whether metrics are served over TLS and only to who may read them; by default in a cluster, or with --metrics-cert-dir
    #[arg(long, env = "METRICS_SECURE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub metrics_secure: Option<bool>,

    /// Directory with tls.crt and tls.key for the metrics server; without it a certificate is made at start
    #[arg(long, env = "METRICS_CERT_DIR", value_name = "DIRECTORY")]
    pub metrics_cert_dir: Option<PathBuf>,

    /// Address of the probes /healthz and /readyz; 0 turns them off
    #[arg(long, env = "HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: BindAddress,

    /// Whether replicas agree on one that acts; turn it off only if there is never a second one
    #[arg(long, env = "LEADER_ELECTION", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
        default_value = "true", action = clap::ArgAction::Set)]
    pub leader_election: bool,

    /// Namespace of the operator, where its leases live; by default that of its service account, else vitistack-system
    #[arg(long, env = "NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// How much is logged
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", ignore_case = true)]
    pub log_level: LogLevel,

    /// Form of log lines; by default text on a terminal and json elsewhere
    #[arg(long, env = "LOG_FORMAT", value_name = "FORMAT", ignore_case = true)]
    pub log_format: Option<LogFormat>,

    /// Address of an OpenTelemetry collector that takes traces over gRPC; without it nothing is traced
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otel_exporter_otlp_endpoint: Option<String>,

    /// Name of the service in traces
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME", default_value = "vitistack")]
    pub otel_service_name: String,

    /// More attributes of the service in traces, as key=value,key=value
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "ATTRIBUTES", default_value = "")]
    pub otel_resource_attributes: String,
}

impl KitArgs {
    /// Whether the process runs as a pod and works on its own cluster.
    #[must_use]
    pub fn is_in_cluster(&self) -> bool {
        self.kubeconfig.as_ref().is_none_or(|path| path.as_os_str().is_empty()) && is_pod()
    }

    /// Whether metrics are guarded.
    #[must_use]
    pub fn has_secure_metrics(&self) -> bool {
        self.metrics_secure.unwrap_or_else(|| self.is_in_cluster() || self.metrics_cert_dir.is_some())
    }

    /// The namespace of the operator.
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

/// Whether the process runs as a pod with a service account.
#[must_use]
pub fn is_pod() -> bool {
    Path::new(SERVICE_ACCOUNT).is_dir()
}

/// The settings file that the environment names: it has to be known before the arguments are parsed.
pub(crate) fn config_variable() -> Option<OsString> {
    std::env::var_os(CONFIG_VARIABLE)
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names say it, and a doc comment would become help text")]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names say it, and a doc comment would become help text")]
pub enum LogFormat {
    Json,
    Text,
}

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// Nowhere.
    Off,
    /// On all interfaces.
    All {
        /// The port.
        port: u16,
    },
    /// On one address.
    At(SocketAddr),
}

impl BindAddress {
    /// Listens there; `None` if turned off. All interfaces means both families where the machine has both.
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
        const FIX: &str = "write it as :8080, 127.0.0.1:8080 or [::1]:8080, or 0 for none";
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
        kit: KitArgs,
    }

    fn parse(arguments: &[&str]) -> Result<KitArgs, String> {
        let all = std::iter::once("operator").chain(arguments.iter().copied());
        Cli::try_parse_from(all).map(|cli| cli.kit).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_read_as_go_reads_them() {
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
        let kit = parse(&[]).unwrap();
        assert_eq!(kit.reconcile_interval.to_string(), "30s");
        assert_eq!(kit.max_concurrent_reconciles.get(), 5);
        assert_eq!(kit.metrics_bind_address, BindAddress::All { port: 8080 });
        assert_eq!(kit.health_probe_bind_address, BindAddress::All { port: 8081 });
        assert!(kit.leader_election);
        assert_eq!(kit.log_level, LogLevel::Info);
        assert_eq!(kit.otel_service_name, "vitistack");
    }

    #[test]
    fn switches_take_a_value_or_none() {
        assert!(!parse(&["--leader-election=false"]).unwrap().leader_election);
        assert!(!parse(&["--leader-election", "false"]).unwrap().leader_election);
        assert!(parse(&["--leader-election"]).unwrap().leader_election);
        assert_eq!(parse(&["--metrics-secure"]).unwrap().metrics_secure, Some(true));
        assert!(!parse(&["--metrics-secure", "false"]).unwrap().has_secure_metrics());
    }

    #[test]
    fn levels_are_read_in_any_case() {
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

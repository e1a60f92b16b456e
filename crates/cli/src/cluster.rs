//! The cluster that a command talks to, and what is said when it cannot.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::DynamicObject,
    config::{InClusterError, Kubeconfig, KubeconfigError},
};
use snafu::{ResultExt, Snafu};
use tokio::time::timeout;
use vitistack_clients::kubernetes::explain;
use vitistack_runtime::{args::is_pod, read_kubeconfig};

pub use crate::args::ClusterArgs;
use crate::kinds::KnownKind;

/// Where `vitistack up` leaves its kubeconfig.
const UP: &str = ".vitistack/kubeconfig";
/// How long is waited to hear that a `vitistack up` does not run any more.
const UP_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// A person waits: kube's own limit is half a minute.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Indicates that there is no cluster to talk to.
#[derive(Debug, Snafu)]
pub enum ConnectError {
    /// Indicates that the kubeconfig, or a context of it, is not usable.
    #[snafu(display("failed to use the kubeconfig {}: {source}; give --kubeconfig a file and --context one of its contexts", path.display()))]
    ReadKubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KubeconfigError,
    },
    /// Indicates that the pod's service account is not usable.
    #[snafu(display("failed to use the pod's service account: {source}; give --kubeconfig a file"))]
    UseServiceAccount {
        /// Why.
        source: InClusterError,
    },
    /// Indicates that nothing names a cluster.
    #[snafu(display(
        "there is no cluster to talk to: give --kubeconfig a file, set KUBECONFIG, or start one here with `vitistack up`"
    ))]
    FindCluster,
    /// Indicates that the cluster's address or certificates are not usable.
    #[snafu(display("failed to make a client for {name}: {}", explain(source)))]
    MakeClient {
        /// The cluster.
        name: String,
        /// Why.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// A cluster to talk to.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The namespace that is meant where none is said.
    pub namespace: String,
    /// Where it is, for messages: its address and how it was found.
    pub name: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Cluster({}, namespace {})", self.name, self.namespace)
    }
}

impl Cluster {
    /// The cluster of the arguments: `--kubeconfig` or KUBECONFIG, else a running `vitistack up` of this directory, the
    /// pod's own cluster, or ~/.kube/config.
    pub async fn connect(arguments: &ClusterArgs) -> Result<Self, ConnectError> {
        let context = arguments.context.as_deref();
        let cluster = match arguments.kubeconfig.as_deref() {
            Some(path) if !path.as_os_str().is_empty() => from_file(path, context).await?,
            _ => match running_up(context).await {
                Some(cluster) => cluster,
                None if is_pod() => {
                    let config = Config::incluster().context(UseServiceAccountSnafu)?;
                    from_config(config, "the pod's service account")?
                }
                None => from_home(context).await?,
            },
        };
        let namespace = arguments.namespace.clone().filter(|namespace| !namespace.is_empty());
        Ok(Self { namespace: namespace.unwrap_or(cluster.namespace), ..cluster })
    }

    /// The objects of a kind: in one namespace, or in all of them if none is given.
    pub fn objects(&self, kind: &KnownKind, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) if kind.is_namespaced => Api::namespaced_with(client, namespace, &kind.resource),
            _ => Api::all_with(client, &kind.resource),
        }
    }

    /// Says in one sentence, with the fix, why a request was not answered as wanted. `doing` is what was tried, such as
    /// `list machines`.
    #[expect(clippy::needless_pass_by_value, reason = "an error that was told is done with")]
    pub fn failure(&self, doing: impl Into<String>, error: kube::Error) -> RequestError {
        let (doing, name) = (doing.into(), self.name.clone());
        match &error {
            kube::Error::Api(status) => match status.code {
                401 => RequestError::LogIn { name },
                403 => RequestError::Permit { doing, message: status.message.clone() },
                404 if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => {
                    RequestError::Serve { doing, name }
                }
                404 => RequestError::FindObject { doing },
                _ => RequestError::Answer { doing, message: explain(&error) },
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) => {
                RequestError::Reach { name, message: explain(&error) }
            }
            _ => RequestError::Answer { doing, message: explain(&error) },
        }
    }
}

/// Indicates that a request was not answered as wanted.
#[derive(Debug, Snafu)]
pub enum RequestError {
    /// Indicates that the server does not answer.
    #[snafu(display(
        "{name} does not answer ({message}): start it, or choose another cluster with --kubeconfig or --context"
    ))]
    Reach {
        /// The cluster.
        name: String,
        /// What happened.
        message: String,
    },
    /// Indicates that the server does not know who asks.
    #[snafu(display("{name} does not know you: renew the kubeconfig, or log in again"))]
    LogIn {
        /// The cluster.
        name: String,
    },
    /// Indicates that the server does not allow it.
    #[snafu(display(
        "you may not {doing} ({message}): ask an administrator for one of the roles of `vitistack rbac`"
    ))]
    Permit {
        /// What was tried.
        doing: String,
        /// What the server said.
        message: String,
    },
    /// Indicates that the server does not know the kind.
    #[snafu(display(
        "failed to {doing}: {name} does not serve that kind: install it with `vitistack crds | kubectl apply --server-side -f -`"
    ))]
    Serve {
        /// What was tried.
        doing: String,
        /// The cluster.
        name: String,
    },
    /// Indicates that the object is not there.
    #[snafu(display(
        "failed to {doing}: there is none of that name; `vitistack get -A` lists what there is"
    ))]
    FindObject {
        /// What was tried.
        doing: String,
    },
    /// Indicates any other answer.
    #[snafu(display("failed to {doing}: {message}"))]
    Answer {
        /// What was tried.
        doing: String,
        /// What the server said.
        message: String,
    },
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<Cluster, ConnectError> {
    let config = read_kubeconfig(path, context).await.context(ReadKubeconfigSnafu { path })?;
    from_config(config, &path.display().to_string())
}

/// A `vitistack up` of this directory that answers. One that left its kubeconfig behind and is gone is not talked to.
async fn running_up(context: Option<&str>) -> Option<Cluster> {
    let path = Path::new(UP);
    if !path.is_file() {
        return None;
    }
    let cluster = from_file(path, context).await.ok()?;
    let answer = timeout(UP_ANSWERS_WITHIN, cluster.client.apiserver_version()).await;
    // One that is gone refuses at once; one that is slow is there.
    answer.map_or(true, |answer| answer.is_ok()).then_some(cluster)
}

async fn from_home(context: Option<&str>) -> Result<Cluster, ConnectError> {
    let Ok(kubeconfig) = Kubeconfig::read() else { return FindClusterSnafu.fail() };
    let options = kube::config::KubeConfigOptions {
        context: context.map(ToOwned::to_owned),
        ..kube::config::KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    from_config(config.await.context(ReadKubeconfigSnafu { path: "~/.kube/config" })?, "~/.kube/config")
}

fn from_config(mut config: Config, found_in: &str) -> Result<Cluster, ConnectError> {
    config.connect_timeout = Some(CONNECT_WITHIN);
    let name = format!("{} ({found_in})", config.cluster_url.to_string().trim_end_matches('/'));
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context(MakeClientSnafu { name: &name })?;
    Ok(Cluster { client, namespace, name })
}

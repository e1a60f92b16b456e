//! Access to a cluster: connecting, reading, watching and changing objects.

pub mod change;
pub mod events;
pub mod kinds;
pub mod listing;
pub mod watching;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, PostParams},
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use snafu::{ResultExt, Snafu};
use tokio::time::timeout;
use vitistack_clients::kubernetes::explain;
use vitistack_runtime::{args::is_pod, read_kubeconfig};

use self::kinds::KnownKind;
use crate::args::ClusterArgs;

/// Where `vitistack up` writes its kubeconfig.
const UP_KUBECONFIG: &str = ".vitistack/kubeconfig";
/// The time limit for the check whether `vitistack up` is running.
const UP_TIMEOUT: Duration = Duration::from_secs(2);
/// Interactive use needs a shorter limit than the half minute of kube.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Errors of finding a cluster and creating a client for it.
#[derive(Debug, Snafu)]
pub enum ConnectError {
    /// The kubeconfig, or a context of it, is not usable.
    #[snafu(display(
        "failed to use kubeconfig {}: {source}; set --kubeconfig to a valid file and --context to one of its contexts",
        path.display()
    ))]
    ReadKubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: KubeconfigError,
    },
    /// The context is not in the kubeconfig.
    #[snafu(display(
        "context {context:?} not found in kubeconfig {}: set --context to {}", path.display(), one_of(known)
    ))]
    FindContext {
        /// The file.
        path: PathBuf,
        /// The context that was requested.
        context: String,
        /// The existing contexts.
        known: Vec<String>,
    },
    /// The kubeconfig selects no context.
    #[snafu(display(
        "kubeconfig {} has no current context: set --context to {}", path.display(), one_of(known)
    ))]
    ChooseContext {
        /// The file.
        path: PathBuf,
        /// The existing contexts.
        known: Vec<String>,
    },
    /// The service account of the pod is not usable.
    #[snafu(display("failed to use the service account of the pod: {source}; set --kubeconfig to a file"))]
    UseServiceAccount {
        /// The cause.
        source: InClusterError,
    },
    /// No cluster is configured.
    #[snafu(display(
        "no cluster is configured: set --kubeconfig or KUBECONFIG to a file, or start a control plane with \"vitistack up\""
    ))]
    FindCluster,
    /// The address or the certificates of the cluster are not usable.
    #[snafu(display("failed to create a client for {name}: {}", explain(source)))]
    CreateClient {
        /// The cluster.
        name: String,
        /// The cause.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The default namespace.
    pub namespace: String,
    /// The address and the origin of the configuration, for messages.
    pub name: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Cluster({}, namespace {})", self.name, self.namespace)
    }
}

impl Cluster {
    /// Connects to the cluster of the arguments: `--kubeconfig` or KUBECONFIG, else a running `vitistack up` in this
    /// directory, the service account of the pod, or ~/.kube/config.
    pub async fn connect(arguments: &ClusterArgs) -> Result<Self, ConnectError> {
        let context = arguments.context.as_deref();
        let cluster = match arguments.kubeconfig.as_deref() {
            Some(path) if !path.as_os_str().is_empty() => from_file(path, context).await?,
            _ => match running_up(context).await {
                Some(cluster) => cluster,
                None if is_pod() => {
                    let config = Config::incluster().context(UseServiceAccountSnafu)?;
                    from_config(config, "service account of the pod")?
                }
                None => from_home(context).await?,
            },
        };

        let namespace = arguments.namespace.clone().filter(|namespace| !namespace.is_empty());
        Ok(Self { namespace: namespace.unwrap_or(cluster.namespace), ..cluster })
    }

    /// Returns the API of a kind, for one namespace or for all.
    pub fn objects(&self, kind: &KnownKind, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) if kind.is_namespaced => Api::namespaced_with(client, namespace, &kind.resource),
            _ => Api::all_with(client, &kind.resource),
        }
    }

    /// Returns whether the user of the kubeconfig has a permission. Every user may ask about itself.
    pub async fn may(&self, permission: &ResourceAttributes) -> Result<bool, RequestError> {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(permission.clone()),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review).await;
        let reviewed = reviewed.map_err(|error| self.failure("review permissions", error))?;
        Ok(reviewed.status.is_some_and(|status| status.allowed))
    }

    /// Converts an error of the API into one that names the fix. `action` completes the sentence "failed to …", such as
    /// `list machines`.
    #[expect(clippy::needless_pass_by_value, reason = "the error is converted, not used again")]
    pub fn failure(&self, action: impl Into<String>, error: kube::Error) -> RequestError {
        let (doing, name) = (action.into(), self.name.clone());
        match &error {
            kube::Error::Api(status) => match status.code {
                401 => RequestError::Authenticate { name },
                403 => RequestError::Permit { doing, message: status.message.clone() },
                404 => match status.details.as_ref().filter(|details| !details.name.is_empty()) {
                    Some(details) => {
                        RequestError::FindObject { object: title_of_plural(&details.kind, &details.name) }
                    }
                    None => RequestError::Serve { doing, name },
                },
                _ => RequestError::Answer { doing, message: explain(&error) },
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) => {
                RequestError::Reach { name, message: explain(&error) }
            }
            _ => RequestError::Answer { doing, message: explain(&error) },
        }
    }
}

/// Returns the title of an object whose kind the server reports as a plural.
fn title_of_plural(plural: &str, name: &str) -> String {
    match KnownKind::find(plural) {
        Ok(kind) => kind.title(name),
        Err(_) => kinds::title(plural, name),
    }
}

/// Errors of requests to a cluster.
#[derive(Debug, Snafu)]
pub enum RequestError {
    /// The server cannot be reached.
    #[snafu(display(
        "failed to connect to {name}: {message}; check that the server is running, or select another cluster with --kubeconfig or --context"
    ))]
    Reach {
        /// The cluster.
        name: String,
        /// The cause.
        message: String,
    },
    /// The server does not accept the credentials.
    #[snafu(display("authentication to {name} failed: renew the credentials in the kubeconfig"))]
    Authenticate {
        /// The cluster.
        name: String,
    },
    /// The user lacks a permission.
    #[snafu(display(
        "not allowed to {doing} ({message}): ask an administrator for a role from \"vitistack rbac\""
    ))]
    Permit {
        /// The action, such as `list machines`.
        doing: String,
        /// The message of the server.
        message: String,
    },
    /// The server does not serve the kind.
    #[snafu(display(
        "failed to {doing}: {name} does not serve this kind: install the CRDs with \"vitistack crds | kubectl apply --server-side -f -\""
    ))]
    Serve {
        /// The action, such as `list machines`.
        doing: String,
        /// The cluster.
        name: String,
    },
    /// The object does not exist.
    #[snafu(display("{object} not found; run \"vitistack get -A\" to list objects"))]
    FindObject {
        /// The object, such as `machine/web-1`.
        object: String,
    },
    /// The server returned another error.
    #[snafu(display("failed to {doing}: {message}"))]
    Answer {
        /// The action, such as `list machines`.
        doing: String,
        /// The message of the server.
        message: String,
    },
}

/// Returns " in namespace NAME" for messages; nothing for all namespaces.
pub fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default()
}

/// Returns the values to choose from, for messages.
fn one_of(known: &[String]) -> String {
    match known {
        [] => "one of its contexts (it has none)".to_owned(),
        [one] => format!("{one:?}"),
        several => format!("one of {}", several.join(", ")),
    }
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<Cluster, ConnectError> {
    let kubeconfig = read_kubeconfig(path).context(ReadKubeconfigSnafu { path })?;
    from_kubeconfig(kubeconfig, path, context).await
}

/// Connects to the cluster of a context, by default of the current one.
async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    path: &Path,
    context: Option<&str>,
) -> Result<Cluster, ConnectError> {
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let options =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    match Config::from_custom_kubeconfig(kubeconfig, &options).await {
        Ok(config) => from_config(config, &path.display().to_string()),
        Err(KubeconfigError::LoadContext(context)) => FindContextSnafu { path, context, known }.fail(),
        Err(KubeconfigError::CurrentContextNotSet) => ChooseContextSnafu { path, known }.fail(),
        Err(source) => Err(source).context(ReadKubeconfigSnafu { path }),
    }
}

/// Returns the control plane of a `vitistack up` that is running in this directory. A kubeconfig that a stopped one left
/// behind is ignored.
async fn running_up(context: Option<&str>) -> Option<Cluster> {
    let path = Path::new(UP_KUBECONFIG);
    if !path.is_file() {
        return None;
    }

    let cluster = from_file(path, context).await.ok()?;
    let answer = timeout(UP_TIMEOUT, cluster.client.apiserver_version()).await;
    // A stopped server refuses the connection at once; one that is slow is running.
    answer.map_or(true, |answer| answer.is_ok()).then_some(cluster)
}

async fn from_home(context: Option<&str>) -> Result<Cluster, ConnectError> {
    let Ok(kubeconfig) = Kubeconfig::read() else { return FindClusterSnafu.fail() };
    from_kubeconfig(kubeconfig, Path::new("~/.kube/config"), context).await
}

fn from_config(mut config: Config, found_in: &str) -> Result<Cluster, ConnectError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let name = format!("{} ({found_in})", config.cluster_url.to_string().trim_end_matches('/'));
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).context(CreateClientSnafu { name: &name })?;
    Ok(Cluster { client, namespace, name })
}

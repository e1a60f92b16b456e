//! One process with its caches, its servers and one or more operators.

use std::{path::Path, sync::Arc};

use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use futures::future::{BoxFuture, FutureExt};
use kube::{
    Api, Client, Config, Resource,
    config::{Kubeconfig, KubeconfigError},
    core::{ClusterResourceScope, NamespaceResourceScope, PartialObjectMeta},
    runtime::watcher,
};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu, ensure};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use vitistack_types::WatchedNamespaces;

use crate::{
    args::{BindAddress, OperatorArgs},
    cache::{Cache, Kind, ProcessReporter, Source, metadata_only, whole_objects},
    events::Events,
    health::Health,
    lease::Election,
    metrics::{Metrics, Undecodable},
    metrics_server::{MetricsServerError, plain_router, protected_router, tls_config},
    probes,
    reload::{self, Origin},
    run::{Context, Controller},
};

/// Why the process cannot start. An unreachable API server is not a reason.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub enum StartError {
    /// A server cannot listen on its address.
    #[snafu(display("failed to listen on {setting} {address}: {source}; choose another address"))]
    Listen {
        /// The setting.
        setting: &'static str,
        /// Its value.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Two settings contradict each other.
    #[snafu(display("METRICS_CERT_DIR has no effect with METRICS_SECURE=false: remove one of them"))]
    ContradictSettings,
    /// The metrics server has no valid certificate.
    #[snafu(display("{source}"), context(false))]
    SecureMetrics {
        /// The error of the metrics server.
        source: MetricsServerError,
    },
    /// The kubeconfig cannot be read.
    #[snafu(display("failed to read the kubeconfig: {source}; set --kubeconfig to an existing file"))]
    ReadKubeconfig {
        /// The error of the client.
        source: KubeconfigError,
    },
    /// The pod's service account is invalid.
    #[snafu(display("failed to use the pod's service account: {source}; set --kubeconfig"))]
    UseServiceAccount {
        /// The error of the client.
        source: kube::config::InClusterError,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[snafu(display("failed to find a cluster: {source}; set --kubeconfig, or run in a cluster"))]
    FindCluster {
        /// The error of the client.
        source: kube::config::InferConfigError,
    },
    /// The cluster's address or certificates are invalid.
    #[snafu(display("failed to create a client: {source}"))]
    CreateClient {
        /// The error of the client.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// Creates a client for the configured cluster. Sends no request, so the API server may be unreachable. A client of a
/// kubeconfig follows its changes.
pub async fn client_from(settings: &OperatorArgs) -> Result<Client, StartError> {
    let config = match &settings.kubeconfig {
        Some(paths) if !paths.as_os_str().is_empty() => {
            return reload::client(Origin::Files(paths.clone())).await;
        }
        _ if settings.is_in_cluster() => Config::incluster().context(UseServiceAccountSnafu)?,
        _ if Origin::Default.read().is_ok() => return reload::client(Origin::Default).await,
        _ => Config::infer().await.context(FindClusterSnafu)?,
    };
    Client::try_from(config).context(CreateClientSnafu)
}

/// Reads a kubeconfig. As in kubectl, several files are separated by colons and merged.
pub fn read_kubeconfig(paths: &Path) -> Result<Kubeconfig, KubeconfigError> {
    Origin::Files(paths.to_owned()).read()
}

/// A process and what all of its operators share.
pub struct Process {
    settings: OperatorArgs,
    client: Client,
    instance: String,
    health: Health,
    registry: Registry,
    undecodable: Undecodable,
    feeds: Vec<Task>,
    operators: Vec<Operator>,
}

type Task = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

impl Process {
    /// Creates a process with these settings that manages the cluster of `client`.
    #[must_use]
    pub fn new(settings: OperatorArgs, client: Client) -> Self {
        let mut registry = Registry::default();
        let undecodable = Undecodable::register(registry.sub_registry_with_prefix("vitistack"));
        Self {
            settings,
            client,
            instance: instance(&hostname(), rand::random()),
            health: Health::default(),
            registry,
            undecodable,
            feeds: Vec::new(),
            operators: Vec::new(),
        }
    }

    /// Creates a cache of the objects of a kind in the watched namespaces, filled while the process runs.
    pub fn cache<K>(&mut self) -> Cache<K>
    where
        K: Kind<DynamicType: Default> + Resource<Scope = NamespaceResourceScope>,
    {
        let apis = self.apis();
        self.fill(K::DynamicType::default(), whole_objects(apis, watcher::Config::default()))
    }

    /// Creates a cache of all objects of a cluster-scoped kind.
    pub fn cluster_cache<K>(&mut self) -> Cache<K>
    where
        K: Kind<DynamicType: Default> + Resource<Scope = ClusterResourceScope>,
    {
        let apis = vec![Api::all(self.client.clone())];
        self.fill(K::DynamicType::default(), whole_objects(apis, watcher::Config::default()))
    }

    /// Creates a cache of the objects that `selection` selects in the whole cluster of `client`.
    pub fn cache_of<K: Kind>(
        &mut self,
        client: Client,
        resource: K::DynamicType,
        selection: watcher::Config,
    ) -> Cache<K> {
        let source = whole_objects(vec![Api::all_with(client, &resource)], selection);
        self.fill(resource, source)
    }

    /// Creates a cache of the metadata of the objects of a kind in the watched namespaces, for kinds with sensitive content
    /// such as Secrets.
    pub fn metadata_cache<K>(&mut self) -> Cache<PartialObjectMeta<K>>
    where
        K: Kind<DynamicType: Default> + Resource<Scope = NamespaceResourceScope>,
        PartialObjectMeta<K>: Kind + Resource<DynamicType = K::DynamicType, Scope = NamespaceResourceScope>,
    {
        let apis = self.apis();
        self.fill(K::DynamicType::default(), metadata_only::<K>(apis, watcher::Config::default()))
    }

    /// Creates a cache of the metadata of all objects of a cluster-scoped kind.
    pub fn cluster_metadata_cache<K>(&mut self) -> Cache<PartialObjectMeta<K>>
    where
        K: Kind<DynamicType: Default> + Resource<Scope = ClusterResourceScope>,
        PartialObjectMeta<K>: Kind + Resource<DynamicType = K::DynamicType>,
    {
        let apis = vec![Api::all(self.client.clone())];
        self.fill(K::DynamicType::default(), metadata_only::<K>(apis, watcher::Config::default()))
    }

    /// Returns the namespaces that the process watches.
    #[must_use]
    pub fn watched_namespaces(&self) -> WatchedNamespaces {
        self.settings.watched_namespaces()
    }

    /// Returns the API of each watched namespace, or of the whole cluster.
    fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: Resource<DynamicType: Default, Scope = NamespaceResourceScope>,
    {
        match self.settings.watched_namespaces().listed() {
            None => vec![Api::all(self.client.clone())],
            Some(names) => names.iter().map(|name| Api::namespaced(self.client.clone(), name)).collect(),
        }
    }

    fn fill<K: Kind>(&mut self, resource: K::DynamicType, source: Source<K>) -> Cache<K> {
        let (cache, feed) = Cache::new(resource);
        let (health, undecodable, filled) = (self.health.clone(), self.undecodable.clone(), cache.clone());
        self.feeds.push(Box::new(move |end| {
            let reporter = ProcessReporter::new(&filled, &health, undecodable);
            feed.run(source, Some(Box::new(reporter)), end).boxed()
        }));
        cache
    }

    /// Creates an operator. Its name is also the name of its lease and, with underscores, the prefix of its metrics.
    #[must_use]
    pub fn operator(&mut self, name: &str) -> Operator {
        let metrics = Metrics::register(self.series(name));
        let events = Events::new(self.client.clone(), name, &self.instance, self.watched_namespaces());
        Operator { name: name.to_owned(), metrics, events, controllers: Vec::new() }
    }

    /// Returns the registry for more metrics of an operator, with its prefix.
    pub fn series(&mut self, operator: &str) -> &mut Registry {
        self.registry.sub_registry_with_prefix(operator.replace('-', "_"))
    }

    /// Adds an operator.
    pub fn add(&mut self, operator: Operator) {
        self.operators.push(operator);
    }

    /// Runs everything until `end`, then stops in order: reconciles, leases, caches, servers.
    pub async fn run(self, end: CancellationToken) -> Result<(), StartError> {
        let settings = self.settings;
        let is_secure = settings.has_secure_metrics();
        ensure!(is_secure || settings.metrics_cert_dir.is_none(), ContradictSettingsSnafu);

        let servers_end = CancellationToken::new();
        let mut servers = JoinSet::new();
        let registry = Arc::new(self.registry);
        let (tls, metrics) = if is_secure {
            let tls = tls_config(settings.metrics_cert_dir.as_deref(), &hostname()).await?;
            (Some(tls), protected_router(registry, self.client.clone()))
        } else {
            (None, plain_router(registry))
        };
        let address = settings.metrics_address();
        serve(&mut servers, "METRICS_BIND_ADDRESS", address, metrics, tls, &servers_end)?;
        let address = settings.health_probe_address();
        let probes = probes::router(self.health.clone(), &settings.watched_namespaces());
        serve(&mut servers, "HEALTH_PROBE_BIND_ADDRESS", address, probes, None, &servers_end)?;

        if let Some(names) = settings.watched_namespaces().to_setting() {
            tracing::info!(namespaces = names, "watching these namespaces only");
        }
        let feeds_end = CancellationToken::new();
        let mut feeds = JoinSet::new();
        for feed in self.feeds {
            feeds.spawn(feed(feeds_end.clone()));
        }

        let shared = Shared { client: self.client, settings, instance: self.instance, health: self.health };
        let mut operators = JoinSet::new();
        for operator in self.operators {
            operators.spawn(operator.run(shared.clone(), end.clone()));
        }

        end.cancelled().await;
        while operators.join_next().await.is_some() {}
        feeds_end.cancel();
        while feeds.join_next().await.is_some() {}
        servers_end.cancel();
        while servers.join_next().await.is_some() {}
        Ok(())
    }
}

#[derive(Clone)]
struct Shared {
    client: Client,
    settings: OperatorArgs,
    instance: String,
    health: Health,
}

/// The controllers that share one lease.
pub struct Operator {
    name: String,
    metrics: Metrics,
    events: Events,
    controllers: Vec<Box<dyn FnOnce(Context) -> BoxFuture<'static, ()> + Send>>,
}

impl Operator {
    /// Adds a controller.
    pub fn control<K: Kind>(&mut self, controller: Controller<K>) {
        self.controllers.push(Box::new(move |context| controller.run(context).boxed()));
    }

    /// Returns the publisher for Events of the operator's reconcilers.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    async fn run(self, shared: Shared, end: CancellationToken) {
        let Shared { client, settings, instance, health } = shared;
        let (leads, led) = watch::channel(!settings.leader_election);
        let election_end = CancellationToken::new();
        let mut election = JoinSet::new();
        // Without an election the sender stays open: a closed channel would mean that the lease is lost.
        let mut leads = Some(leads);
        if settings.leader_election
            && let Some(leads) = leads.take()
        {
            let namespace = settings.own_namespace();
            let candidate = Election::new(client, &namespace, &self.name, &instance, leads, &health)
                .watching(settings.watched_namespaces());
            election.spawn(candidate.run(election_end.clone()));
        }

        let context = Context {
            interval: settings.reconcile_interval.get(),
            slots: settings.max_concurrent_reconciles.get(),
            metrics: self.metrics.clone(),
            events: self.events,
            health,
            leads: led.clone(),
            end,
        };

        let mut controllers = JoinSet::new();
        for controller in self.controllers {
            controllers.spawn(controller(context.clone()));
        }
        election.spawn(export_leadership(self.metrics, led, election_end.clone()));

        while controllers.join_next().await.is_some() {}
        context.end.cancelled().await;
        // All controllers have stopped: only now may another replica start.
        election_end.cancel();
        while election.join_next().await.is_some() {}
        drop(leads);
    }
}

/// Exports whether this replica is the leader.
async fn export_leadership(metrics: Metrics, mut led: watch::Receiver<bool>, end: CancellationToken) {
    loop {
        metrics.leads(*led.borrow_and_update());
        tokio::select! {
            () = end.cancelled() => return,
            changed = led.changed() => if changed.is_err() { return },
        }
    }
}

/// Starts a server, unless it is disabled.
fn serve(
    servers: &mut JoinSet<()>,
    setting: &'static str,
    address: BindAddress,
    router: Router,
    tls: Option<RustlsConfig>,
    end: &CancellationToken,
) -> Result<(), StartError> {
    let context = || ListenSnafu { setting, address: address.to_string() };
    let Some(listener) = address.listen().with_context(|_| context())? else { return Ok(()) };
    let at = listener.local_addr().with_context(|_| context())?;
    tracing::info!(setting, address = %at, "listening");

    let handle = axum_server::Handle::new();
    let service = router.into_make_service();
    let serving = if let Some(tls) = tls {
        let server = axum_server::from_tcp_rustls(listener, tls).with_context(|_| context())?;
        server.handle(handle.clone()).serve(service).boxed()
    } else {
        let server = axum_server::from_tcp(listener).with_context(|_| context())?;
        server.handle(handle.clone()).serve(service).boxed()
    };

    let end = end.clone();
    servers.spawn(async move {
        tokio::select! {
            result = serving => {
                if let Err(error) = result {
                    tracing::error!(setting, "the server failed: {error}");
                }
            }
            () = end.cancelled() => handle.shutdown(),
        }
    });
    Ok(())
}

/// Returns a unique name for this process, which also differs from an earlier process on the same host.
fn instance(host: &str, number: u64) -> String {
    format!("{host}_{number:016x}")
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

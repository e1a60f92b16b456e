//! The assembly: one process, its caches and servers, and one or several operators in it.

use std::{path::Path, sync::Arc};

use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use futures::future::{BoxFuture, FutureExt};
use kube::{
    Client, Config, Resource,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::PartialObjectMeta,
    runtime::watcher,
};
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu, ensure};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{BindAddress, KitArgs},
    cache::{Cache, Kind},
    events::Events,
    feed::{Reports, Source, metadata_only, whole_objects},
    health::Health,
    lease::Election,
    metrics::{Metrics, Undecodable},
    metrics_server::{MetricsServerError, guarded_router, plain_router, tls_config},
    probes,
    run::{Context, Controller},
};

/// Why the process cannot start. An API server that is away is no reason.
#[derive(Debug, Snafu)]
pub enum StartError {
    /// An address cannot be listened on.
    #[snafu(display("failed to listen on {setting} {address}: {source}; choose another address"))]
    Listen {
        /// The setting.
        setting: &'static str,
        /// Its value.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Two settings cannot both be honoured.
    #[snafu(display("METRICS_CERT_DIR has no use with METRICS_SECURE=false: remove one of the two"))]
    ContradictSettings,
    /// The metrics server has no certificate.
    #[snafu(display("{source}"), context(false))]
    SecureMetrics {
        /// What is wrong with it.
        source: MetricsServerError,
    },
    /// The kubeconfig cannot be read.
    #[snafu(display("failed to read the kubeconfig: {source}; give --kubeconfig an existing file"))]
    ReadKubeconfig {
        /// What the client said.
        source: KubeconfigError,
    },
    /// The pod's service account is not usable.
    #[snafu(display("failed to use the pod's service account: {source}; give --kubeconfig a file"))]
    UseServiceAccount {
        /// What the client said.
        source: kube::config::InClusterError,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[snafu(display("failed to find a cluster: {source}; give --kubeconfig a file, or run in a cluster"))]
    FindCluster {
        /// What the client said.
        source: kube::config::InferConfigError,
    },
    /// The cluster's address or certificates are not usable.
    #[snafu(display("failed to make a client: {source}"))]
    MakeClient {
        /// What the client said.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// A client for the cluster of the settings. Nothing is sent, so a server that is away does not matter.
pub async fn client_from(settings: &KitArgs) -> Result<Client, StartError> {
    let config = match &settings.kubeconfig {
        Some(paths) if !paths.as_os_str().is_empty() => {
            read_kubeconfig(paths, None).await.context(ReadKubeconfigSnafu)?
        }
        _ if settings.is_in_cluster() => Config::incluster().context(UseServiceAccountSnafu)?,
        _ => Config::infer().await.context(FindClusterSnafu)?,
    };
    Client::try_from(config).context(MakeClientSnafu)
}

/// The cluster that a context of these kubeconfigs names; the current one if no context is given. As kubectl has it:
/// several files, separated by colons, are merged.
pub async fn read_kubeconfig(paths: &Path, context: Option<&str>) -> Result<Config, KubeconfigError> {
    let kubeconfig = std::env::split_paths(paths)
        .try_fold(Kubeconfig::default(), |merged, path| merged.merge(Kubeconfig::read_from(path)?))?;
    let options =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await
}

/// What all operators of one process share.
pub struct Process {
    settings: KitArgs,
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
    /// A process with these settings that works on the cluster of `client`.
    #[must_use]
    pub fn new(settings: KitArgs, client: Client) -> Self {
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

    /// A cache of all objects of a kind in the process's cluster, filled while the process runs.
    pub fn cache<K: Kind<DynamicType: Default>>(&mut self) -> Cache<K> {
        let client = self.client.clone();
        self.cache_of(client, K::DynamicType::default(), watcher::Config::default())
    }

    /// A cache of the objects that `selection` selects in the cluster of `client`.
    pub fn cache_of<K: Kind>(
        &mut self,
        client: Client,
        resource: K::DynamicType,
        selection: watcher::Config,
    ) -> Cache<K> {
        let source = whole_objects(client, &resource, selection);
        self.fill(resource, source)
    }

    /// A cache of the metadata of all objects of a kind, for kinds whose content is nobody's business until it is needed.
    pub fn metadata_cache<K: Kind<DynamicType: Default>>(&mut self) -> Cache<PartialObjectMeta<K>>
    where
        PartialObjectMeta<K>: Kind + Resource<DynamicType = K::DynamicType>,
    {
        let resource = K::DynamicType::default();
        let source = metadata_only::<K>(self.client.clone(), &resource, watcher::Config::default());
        self.fill(resource, source)
    }

    fn fill<K: Kind>(&mut self, resource: K::DynamicType, source: Source<K>) -> Cache<K> {
        let reports =
            Reports { health: Some(self.health.clone()), undecodable: Some(self.undecodable.clone()) };
        let (cache, feed) = Cache::new(resource);
        self.feeds.push(Box::new(move |end| feed.run(source, reports, end).boxed()));
        cache
    }

    /// An operator of this name, which is also the name of its lease and, with underscores, the prefix of its series.
    #[must_use]
    pub fn operator(&mut self, name: &str) -> Operator {
        let metrics = Metrics::register(self.series(name));
        let events = Events::new(self.client.clone(), name, &self.instance);
        Operator { name: name.to_owned(), metrics, events, controllers: Vec::new() }
    }

    /// The registry for more series of an operator, with its prefix.
    pub fn series(&mut self, operator: &str) -> &mut Registry {
        self.registry.sub_registry_with_prefix(operator.replace('-', "_"))
    }

    /// Adds a finished operator.
    pub fn add(&mut self, operator: Operator) {
        self.operators.push(operator);
    }

    /// Runs everything until `end`, then stops in order: reconciles, leases, caches, servers.
    pub async fn run(self, end: CancellationToken) -> Result<(), StartError> {
        let settings = self.settings;
        let servers_end = CancellationToken::new();
        let mut servers = JoinSet::new();
        let registry = Arc::new(self.registry);
        let is_secure = settings.has_secure_metrics();
        ensure!(is_secure || settings.metrics_cert_dir.is_none(), ContradictSettingsSnafu);
        let (tls, metrics) = if is_secure {
            let tls = tls_config(settings.metrics_cert_dir.as_deref(), &hostname()).await?;
            (Some(tls), guarded_router(registry, self.client.clone()))
        } else {
            (None, plain_router(registry))
        };
        let address = settings.metrics_bind_address;
        serve(&mut servers, "METRICS_BIND_ADDRESS", address, metrics, tls, &servers_end)?;
        let address = settings.health_probe_bind_address;
        let probes = probes::router(self.health.clone());
        serve(&mut servers, "HEALTH_PROBE_BIND_ADDRESS", address, probes, None, &servers_end)?;

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
    settings: KitArgs,
    instance: String,
    health: Health,
}

/// The controllers that act under one lease.
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

    /// Where the operator's reconcilers publish Events.
    #[must_use]
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    async fn run(self, shared: Shared, end: CancellationToken) {
        let Shared { client, settings, instance, health } = shared;
        let (leads, led) = watch::channel(!settings.leader_election);
        let election_end = CancellationToken::new();
        let mut election = JoinSet::new();
        // Without an election the sender is kept, so that nobody mistakes its end for a loss.
        let mut kept = Some(leads);
        if settings.leader_election
            && let Some(leads) = kept.take()
        {
            let namespace = settings.own_namespace();
            let candidate = Election::new(client, &namespace, &self.name, &instance, leads, &health);
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
        election.spawn(count_leadership(self.metrics, led, election_end.clone()));
        while controllers.join_next().await.is_some() {}
        context.end.cancelled().await;
        // Only now, when nothing acts any more, may somebody else begin.
        election_end.cancel();
        while election.join_next().await.is_some() {}
        drop(kept);
    }
}

async fn count_leadership(metrics: Metrics, mut led: watch::Receiver<bool>, end: CancellationToken) {
    loop {
        metrics.leads(*led.borrow_and_update());
        tokio::select! {
            () = end.cancelled() => return,
            changed = led.changed() => if changed.is_err() { return },
        }
    }
}

/// Starts a server, unless it is turned off.
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
                    tracing::error!(setting, "the server ended: {error}");
                }
            }
            () = end.cancelled() => handle.shutdown(),
        }
    });
    Ok(())
}

/// A name for this process that no other has, also not its predecessor of the same host.
fn instance(host: &str, number: u64) -> String {
    format!("{host}_{number:016x}")
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

//! Many machines on the embedded API with the simulated backend, all in one process.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use clap::Parser as _;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
    runtime::watcher::{self, watcher},
};
use snafu::{OptionExt, ResultExt, Whatever, whatever};
use tokio_util::sync::CancellationToken;
use tower::Service;
use vitistack_apiserver::{ApiServer, ApiService};
use vitistack_controller::operators::{self, Operator, Options};
use vitistack_machine::simulated::MemoryStore;
use vitistack_runtime::{KitArgs, Process};
use vitistack_types::{
    ObjectReference, conditions, definitions,
    v1alpha1::{Machine, MachineProvider, ProviderType},
};

use super::{
    Figures,
    load::{CLIENTS, resident},
};

/// Time between two resyncs; three of them are watched for writes.
const INTERVAL: Duration = Duration::from_secs(5);
/// Longer than this nothing takes that works.
const LIMIT: Duration = Duration::from_mins(10);

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    kit: KitArgs,
}

/// The service of the API, with the operators' requests counted: all but Events.
#[derive(Clone)]
struct Counted {
    inner: ApiService,
    writes: Arc<AtomicU64>,
}

impl Service<Request<kube::client::Body>> for Counted {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = <ApiService as Service<Request<kube::client::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        if *request.method() != Method::GET && !request.uri().path().contains("/events") {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.call(request)
    }
}

/// Measures everything.
pub async fn measure(count: usize) -> Result<Figures, Whatever> {
    let mut figures = Figures::default();
    let server = ApiServer::builder().build().await.whatever_context("failed to start the API server")?;
    let user = Client::new(server.service(), "default");
    install(&user).await?;
    let writes = Arc::new(AtomicU64::new(0));
    let counted = Counted { inner: server.service(), writes: Arc::clone(&writes) };
    let end = CancellationToken::new();
    let running = start(Client::new(counted, "default"), end.clone())?;
    let written = || writes.load(Ordering::Relaxed);
    let per_machine = |writes: u64| u32::try_from(writes).map_or(f64::NAN, f64::from) / as_float(count);

    let started = Instant::now();
    let (all_ready, created) = tokio::join!(until(&user, count, is_ready), create(&user, count));
    created?;
    all_ready?;
    figures.add("all_ready", started.elapsed().as_secs_f64(), "s");
    let settled = written();
    figures.add("writes_until_ready", per_machine(settled), "per_machine");
    figures.add("rss_ready", own_resident()?, "MiB");

    // What is still on its way when the last machine is ready is not rest.
    tokio::time::sleep(INTERVAL).await;
    let rest = written();
    tokio::time::sleep(INTERVAL * 3).await;
    figures.add("writes_in_three_resyncs", per_machine(written() - rest) * as_float(count), "writes");

    let started = Instant::now();
    let machines: Api<Machine> = Api::default_namespaced(user.clone());
    create_one(&machines, "one-more").await?;
    until(&user, count + 1, is_ready).await?;
    figures.add("one_more_ready", started.elapsed().as_secs_f64(), "s");

    let before = written();
    let started = Instant::now();
    machines
        .delete_collection(&DeleteParams::default(), &kube::api::ListParams::default())
        .await
        .whatever_context("failed to delete the machines")?;
    until(&user, 0, |_| true).await?;
    figures.add("all_deleted", started.elapsed().as_secs_f64(), "s");
    figures.add("writes_until_deleted", per_machine(written() - before), "per_machine");
    figures.add("rss_deleted", own_resident()?, "MiB");
    end.cancel();
    running.await.whatever_context("the operators panicked")?.whatever_context("the operators failed")?;
    Ok(figures)
}

fn as_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

fn own_resident() -> Result<f64, Whatever> {
    resident(i32::try_from(std::process::id()).whatever_context("a process id beyond all bounds")?)
}

async fn install(client: &Client) -> Result<(), Whatever> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        api.create(&PostParams::default(), &definition).await.whatever_context("failed to install a kind")?;
    }
    let provider =
        MachineProvider::builder().provider_type(ProviderType::Simulated).build("simulated", "default");
    let provider = provider.whatever_context("failed to build a provider")?;
    let api: Api<MachineProvider> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &provider).await.whatever_context("failed to create a provider")?;
    Ok(())
}

type Running = tokio::task::JoinHandle<Result<(), vitistack_runtime::StartError>>;

fn start(client: Client, end: CancellationToken) -> Result<Running, Whatever> {
    let interval = format!("--reconcile-interval={}s", INTERVAL.as_secs());
    let off = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
    let settings = Settings::try_parse_from([&["bench", &interval], &off[..]].concat());
    let kit = settings.whatever_context("failed to make settings")?.kit;
    let mut process = Process::new(kit, client.clone());
    let options = Options {
        operators: BTreeSet::from([Operator::Simulated]),
        stores: Arc::new(|_| Arc::new(MemoryStore::default())),
        is_own_cluster_offered: false,
    };
    operators::add(&mut process, &client, &options);
    Ok(tokio::spawn(process.run(end)))
}

async fn create(client: &Client, count: usize) -> Result<(), Whatever> {
    let machines: Api<Machine> = Api::default_namespaced(client.clone());
    let mut creates = futures::stream::iter(0..count)
        .map(|number| {
            let machines = machines.clone();
            async move { create_one(&machines, &format!("vm-{number}")).await }
        })
        .buffer_unordered(CLIENTS);
    while let Some(created) = creates.next().await {
        created?;
    }
    Ok(())
}

async fn create_one(machines: &Api<Machine>, name: &str) -> Result<(), Whatever> {
    let provider = ObjectReference { name: "simulated".to_owned(), namespace: None };
    let machine = Machine::builder().template("small").provider_ref(provider).build(name, "default");
    let machine = machine.whatever_context("failed to build a machine")?;
    machines.create(&PostParams::default(), &machine).await.whatever_context("failed to create a machine")?;
    Ok(())
}

fn is_ready(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, conditions::READY))
}

/// Waits until exactly so many machines are so.
async fn until(client: &Client, count: usize, is_so: impl Fn(&Machine) -> bool) -> Result<(), Whatever> {
    let machines: Api<Machine> = Api::default_namespaced(client.clone());
    let mut events = watcher(machines, watcher::Config::default()).boxed();
    let (mut so, mut is_listed) = (BTreeSet::new(), false);
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !is_listed || so.len() != count {
        let Ok(event) = tokio::time::timeout_at(deadline, events.next()).await else {
            whatever!("{} of {count} machines after {} s", so.len(), LIMIT.as_secs());
        };
        match event.whatever_context("the watch ended")?.whatever_context("the watch failed")? {
            watcher::Event::Init => so.clear(),
            watcher::Event::InitDone => is_listed = true,
            watcher::Event::InitApply(machine) | watcher::Event::Apply(machine) => {
                if is_so(&machine) {
                    so.insert(machine.name_any());
                } else {
                    so.remove(&machine.name_any());
                }
            }
            watcher::Event::Delete(machine) => {
                so.remove(&machine.name_any());
            }
        }
    }
    Ok(())
}

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
use http::{Method, Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use snafu::{ResultExt, Whatever};
use tokio_util::sync::CancellationToken;
use tower::Service;
use vitistack_apiserver::{ApiServer, ApiService};
use vitistack_controller::operators::{self, Options};
use vitistack_machine::{BackendContext, simulated::MemoryStore};
use vitistack_runtime::{OperatorArgs, Process};
use vitistack_types::{
    OperatorName, definitions,
    v1alpha1::{MachineProvider, ProviderType},
};

use super::{
    Figures, as_float,
    crowd::{Crowd, is_ready},
    load::resident,
};

/// The resync interval; writes are counted for three of them.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(clap::Parser)]
struct Settings {
    #[command(flatten)]
    operator: OperatorArgs,
}

/// The API service, which counts the writes of the operators except Events.
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
    let running = start(&Client::new(counted, "default"), end.clone())?;
    let written = || writes.load(Ordering::Relaxed);
    let per_machine = |writes: u64| u32::try_from(writes).map_or(f64::NAN, f64::from) / as_float(count);

    let started = Instant::now();
    let crowd = Crowd::new(&user, Some("simulated"));
    let (all_ready, created) = tokio::join!(crowd.until(count, is_ready), crowd.create(count));
    created?;
    all_ready?;
    figures.add("all_ready", started.elapsed().as_secs_f64(), "s");
    let settled = written();
    figures.add("writes_until_ready", per_machine(settled), "per_machine");
    figures.add("rss_ready", own_resident()?, "MiB");

    // Wait for pending work before idle writes are counted.
    tokio::time::sleep(INTERVAL).await;
    let rest = written();
    tokio::time::sleep(INTERVAL * 3).await;
    figures.add("writes_in_three_resyncs", per_machine(written() - rest) * as_float(count), "writes");

    let started = Instant::now();
    crowd.create_one("one-more").await?;
    crowd.until(count + 1, is_ready).await?;
    figures.add("one_more_ready", started.elapsed().as_secs_f64(), "s");

    let before = written();
    let started = Instant::now();
    crowd.delete().await?;
    crowd.until(0, |_| true).await?;
    figures.add("all_deleted", started.elapsed().as_secs_f64(), "s");
    figures.add("writes_until_deleted", per_machine(written() - before), "per_machine");
    figures.add("rss_deleted", own_resident()?, "MiB");
    end.cancel();
    running.await.whatever_context("the operators panicked")?.whatever_context("the operators failed")?;
    Ok(figures)
}

fn own_resident() -> Result<f64, Whatever> {
    resident(i32::try_from(std::process::id()).whatever_context("the process id is out of range")?)
}

async fn install(client: &Client) -> Result<(), Whatever> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        api.create(&PostParams::default(), &definition).await.whatever_context("failed to install a CRD")?;
    }
    let provider =
        MachineProvider::builder().provider_type(ProviderType::Simulated).build("simulated", "default");
    let provider = provider.whatever_context("failed to build a provider")?;
    let api: Api<MachineProvider> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &provider).await.whatever_context("failed to create a provider")?;
    Ok(())
}

type Running = tokio::task::JoinHandle<Result<(), vitistack_runtime::StartError>>;

fn start(client: &Client, end: CancellationToken) -> Result<Running, Whatever> {
    let interval = format!("--reconcile-interval={}s", INTERVAL.as_secs());
    let off = ["--leader-election=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"];
    let settings = Settings::try_parse_from([&["bench", &interval], &off[..]].concat());
    let operator = settings.whatever_context("failed to parse settings")?.operator;
    let mut process = Process::new(operator, client.clone());
    let options = Options {
        operators: BTreeSet::from([OperatorName::Machine(ProviderType::Simulated)]),
        context: BackendContext {
            client: client.clone(),
            watched: vitistack_types::WatchedNamespaces::ALL,
            stores: Arc::new(|_| Arc::new(MemoryStore::default())),
        },
        is_own_cluster_offered: false,
    };
    operators::add(&mut process, &options);
    Ok(tokio::spawn(process.run(end)))
}

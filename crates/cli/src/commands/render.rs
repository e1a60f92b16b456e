//! Shows what a Machine becomes on KubeVirt, without making it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use kube::{
    Api,
    api::{DynamicObject, ObjectMeta},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};
use vitistack_machine::{
    Order, Target,
    kubevirt::{Found, Kind, OwnerKind, Settings, plan},
};
use vitistack_plan::{
    Redacted,
    machine::{Desired, Problem, References, identity, resolve},
};
use vitistack_types::{
    GROUP, check,
    conditions::reason,
    decode,
    v1alpha1::{Machine, MachineClass, MachineProvider, NetworkConfiguration, ProviderType},
};

use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, document};
use crate::{
    cluster::{Cluster, ClusterArgs},
    documents::{self, ReadError},
    output::Console,
};

/// What stands for an identity that is only given when the Machine is created.
const NO_IDENTITY: &str = "00000000-0000-0000-0000-000000000000";

/// Indicates that a file could not be rendered.
#[derive(Debug, Snafu)]
pub enum RenderError {
    /// Indicates that the file could not be read.
    #[snafu(display("{source}"), context(false))]
    ReadDocuments { source: ReadError },
    /// Indicates that there is no Machine in the file.
    #[snafu(display("there is no Machine in {}: `vitistack samples machine-basic` prints one", path.display()))]
    FindMachine { path: PathBuf },
    /// Indicates that the machine is made elsewhere.
    #[snafu(display(
        "machine/{name} is made on MachineProvider {provider:?}, which is not of type kubevirt: there is nothing to render"
    ))]
    UseProvider { name: String, provider: String },
    /// Indicates that the machine cannot be made as it is written.
    #[snafu(display("machine/{name} cannot be made: {message}"))]
    Resolve { name: String, message: String },
}

/// Which Machines.
#[derive(Args, Debug)]
#[command(
    after_help = "What a Machine refers to is taken from the file, else from the cluster. A Machine without providerRef is shown as it is made in the cluster it lives in. Secrets are neither read nor shown.\n\nExamples:\n  vitistack render -f machine.yaml\n  vitistack samples machine-with-overrides | vitistack render -f -"
)]
pub struct RenderArgs {
    /// File with Machines and, if you like, what they refer to; - is standard input
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Shows them.
pub async fn run(arguments: &RenderArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let path = &arguments.filename;
    let mut known = Manifests::read(path)?;
    let namespace = arguments.cluster.namespace.clone().unwrap_or_else(|| "default".to_owned());
    known.settle(&namespace);
    if known.machines.is_empty() {
        return Ok(FindMachineSnafu { path }.fail()?);
    }
    if !known.is_complete() {
        known.complete(&arguments.cluster, console).await.context(WriteOutputSnafu)?;
    }
    for machine in &known.machines {
        write(&known, machine, console)?;
    }
    Ok(Ending::Done)
}

/// The manifests of a file, and what was found for them.
#[derive(Debug, Default)]
struct Manifests {
    machines: Vec<Machine>,
    classes: Vec<MachineClass>,
    networks: Vec<NetworkConfiguration>,
    providers: Vec<MachineProvider>,
}

impl Manifests {
    fn read(path: &Path) -> Result<Self, RenderError> {
        let refused = |message: String| ReadError::ParseFile { path: path.to_owned(), message };
        let mut known = Self::default();
        for document in documents::read(path)? {
            let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
            let is_ours = text("apiVersion").split('/').next() == Some(GROUP);
            match text("kind") {
                "Machine" if is_ours => known.machines.push(read_one(document).map_err(refused)?),
                "MachineClass" if is_ours => known.classes.push(read_one(document).map_err(refused)?),
                "NetworkConfiguration" if is_ours => {
                    known.networks.push(read_one(document).map_err(refused)?);
                }
                "MachineProvider" if is_ours => known.providers.push(read_one(document).map_err(refused)?),
                // The file may hold anything else that is applied together with the Machines.
                _ => {}
            }
        }
        Ok(known)
    }

    /// Puts what names no namespace into this one, as an API server would.
    fn settle(&mut self, namespace: &str) {
        let metadata = self
            .machines
            .iter_mut()
            .map(|machine| &mut machine.metadata)
            .chain(self.networks.iter_mut().map(|network| &mut network.metadata))
            .chain(self.providers.iter_mut().map(|provider| &mut provider.metadata));
        for metadata in metadata {
            metadata.namespace.get_or_insert_with(|| namespace.to_owned());
        }
    }

    fn network(&self, namespace: Option<&str>, name: &str) -> Option<&NetworkConfiguration> {
        self.networks.iter().find(|network| is_named(&network.metadata, namespace, name))
    }

    fn class(&self, name: &str) -> Option<&MachineClass> {
        self.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// The provider that a Machine names, as `namespace/name`, and what is known of it.
    fn provider(&self, machine: &Machine) -> Option<(String, Option<&MachineProvider>)> {
        let reference = machine.spec.provider_ref.as_ref()?;
        let namespace = reference.namespace.as_deref().or(machine.metadata.namespace.as_deref());
        let found =
            self.providers.iter().find(|provider| is_named(&provider.metadata, namespace, &reference.name));
        Some((format!("{}/{}", namespace.unwrap_or_default(), reference.name), found))
    }

    /// Whether everything is there that the Machines refer to.
    fn is_complete(&self) -> bool {
        self.machines.iter().all(|machine| {
            let namespace = machine.metadata.namespace.as_deref();
            let built_in = |name: &str| vitistack_types::v1alpha1::BUILT_IN_CLASSES.contains(&name);
            machine.spec.template.iter().all(|name| built_in(name) || self.class(name).is_some())
                && machine
                    .spec
                    .networks
                    .iter()
                    .all(|interface| self.network(namespace, &interface.network_name).is_some())
                && self.provider(machine).is_none_or(|(_, found)| found.is_some())
        })
    }

    /// Adds what the cluster has. What the file says wins; a cluster that does not answer is told, and adds nothing.
    async fn complete(&mut self, cluster: &ClusterArgs, console: &mut Console<'_>) -> std::io::Result<()> {
        let found = async {
            let cluster = Cluster::connect(cluster).await?;
            let failure = |error| Error::from(cluster.failure("list what Machines refer to", error));
            let client = || cluster.client.clone();
            let everything = kube::api::ListParams::default();
            let classes: Api<MachineClass> = Api::all(client());
            let networks: Api<NetworkConfiguration> = Api::all(client());
            let providers: Api<MachineProvider> = Api::all(client());
            Ok::<_, Error>((
                classes.list(&everything).await.map_err(failure)?,
                networks.list(&everything).await.map_err(failure)?,
                providers.list(&everything).await.map_err(failure)?,
            ))
        };
        match found.await {
            Ok((classes, networks, providers)) => {
                self.classes.extend(classes);
                self.networks.extend(networks);
                self.providers.extend(providers);
                Ok(())
            }
            Err(error) => writeln!(console.errors, "vitistack: the cluster was not looked at: {error}"),
        }
    }
}

fn is_named(metadata: &ObjectMeta, namespace: Option<&str>, name: &str) -> bool {
    metadata.name.as_deref() == Some(name) && metadata.namespace.as_deref() == namespace
}

/// Reads an object as an API server would take it.
fn read_one<K>(document: Value) -> Result<K, String>
where
    K: kube::core::CustomResourceExt + kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let object: K = decode(document).map_err(|error| error.to_string())?;
    check(&object).map_err(|error| error.to_string())?;
    Ok(object)
}

fn write(known: &Manifests, machine: &Machine, console: &mut Console<'_>) -> Result<(), Error> {
    let name = machine.metadata.name.clone().unwrap_or_default();
    let settings = settings(known, machine)?;
    let desired = resolve(machine, &references(known, machine))
        .map_err(|refusal| RenderError::Resolve { name: name.clone(), message: refusal.message })?;
    let carried = identity(machine);
    let is_given = !carried.as_str().is_empty();
    let identity = if is_given { carried } else { vitistack_plan::machine::Identity::new(NO_IDENTITY) };
    let target = Target {
        uid: machine.metadata.uid.clone().unwrap_or_else(|| identity.as_str().to_owned()),
        identity,
        name: name.clone(),
        namespace: machine.metadata.namespace.clone().unwrap_or_default(),
    };
    let found = assumed(&desired);
    let planned = plan(&settings, &Order { target, desired }, &found);
    // What the cluster has cannot be known here.
    let is_unknown =
        |reason: &str| [reason::STORAGE_CLASS_NOT_FOUND, reason::SOURCE_NOT_FOUND].contains(&reason);
    let problem = planned.problems.iter().map(Problem::refusal).find(|refusal| !is_unknown(refusal.reason));
    if let Some(refusal) = problem {
        return Ok(ResolveSnafu { name, message: refusal.message.clone() }.fail()?);
    }
    let mut comments = Vec::new();
    if !is_given {
        comments
            .push(format!("machine/{name} is given its identity when it is created; zeros stand for it."));
    }
    if let Some(secret) = &planned.secret {
        let keys: Vec<&str> = secret.data.keys().copied().collect();
        comments.push(format!(
            "Secret {} with {} is made too, and not shown.",
            secret.name,
            keys.join(" and ")
        ));
    }
    for comment in comments {
        writeln!(console.output, "# {comment}").context(WriteOutputSnafu)?;
    }
    let volumes = planned.volumes.iter().map(|volume| &volume.child);
    for child in planned.attachments.iter().chain(volumes).chain([&planned.virtual_machine]) {
        let yaml = serde_saphyr::to_string(&child.object).context(WriteObjectSnafu)?;
        document(&yaml, console)?;
    }
    Ok(())
}

/// How the provider of a Machine makes it.
fn settings(known: &Manifests, machine: &Machine) -> Result<Settings, RenderError> {
    let owner = || Some(OwnerKind { api_version: format!("{GROUP}/v1alpha1"), kind: "Machine".to_owned() });
    let Some((place, found)) = known.provider(machine) else {
        return Ok(Settings { namespace: None, owner: owner(), zones: Vec::new() });
    };
    let name = machine.metadata.name.clone().unwrap_or_default();
    let provider = found.with_context(|| ResolveSnafu {
        name: &name,
        message: format!("spec.providerRef names {place:?}, which is neither in the file nor in the cluster: add the MachineProvider to the file"),
    })?;
    if provider.spec.type_ != ProviderType::Kubevirt {
        return UseProviderSnafu { name, provider: place }.fail();
    }
    Ok(Settings {
        namespace: provider.spec.kubevirt.as_ref().and_then(|kubevirt| kubevirt.namespace.clone()),
        owner: owner().filter(|_| provider.spec.credentials.is_none()),
        zones: provider.spec.zones.clone(),
    })
}

fn references(known: &Manifests, machine: &Machine) -> References {
    let namespace = machine.metadata.namespace.as_deref();
    let interfaces = machine.spec.networks.iter();
    // The content of a Secret is never shown, so none is read.
    let secret = machine.spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    References {
        class: machine.spec.template.as_deref().and_then(|name| known.class(name)).cloned(),
        networks: interfaces
            .filter_map(|interface| known.network(namespace, &interface.network_name))
            .filter_map(|network| Some((network.metadata.name.clone()?, network.clone())))
            .collect(),
        secret: secret.map(|secret| BTreeMap::from([(secret.key.clone(), Redacted::new(String::new()))])),
    }
}

/// A cluster that has whatever the machine names.
fn assumed(desired: &Desired) -> Found {
    let class = |name: &String| {
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        Arc::new(DynamicObject {
            metadata,
            ..Kind::StorageClass.child(ObjectMeta::default(), Value::Null).object
        })
    };
    let named = desired.disks.iter().filter_map(|disk| disk.storage_class.as_ref());
    Found {
        has_kubevirt: true,
        has_cdi: true,
        has_multus: true,
        storage_classes: named.filter(|name| *name != "default").map(class).collect(),
        ..Found::default()
    }
}

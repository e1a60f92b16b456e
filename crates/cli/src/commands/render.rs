//! Prints the objects that would be created for a Machine, without creating them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use kube::{Api, api::ObjectMeta};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};
use vitistack_machine::{Order, Rendered, Target, backend_type};
use vitistack_plan::{
    Redacted,
    machine::{Identity, References, identity, provider_of, resolve},
};
use vitistack_types::{
    GROUP, ObjectName, check, decode,
    v1alpha1::{Machine, MachineClass, MachineProvider, NetworkConfiguration, ProviderType},
};

use super::{Ending, Error, WriteObjectSnafu, WriteOutputSnafu, document};
use crate::{
    args::ClusterArgs,
    cluster::{Cluster, listing::text},
    manifests::documents::{self, ReadError},
    printing::{Console, write_line},
};

/// The placeholder for an identity, which is assigned when the Machine is created.
const NO_IDENTITY: &str = "00000000-0000-0000-0000-000000000000";

/// Errors of rendering Machines.
#[derive(Debug, Snafu)]
pub enum RenderError {
    /// The file cannot be read.
    #[snafu(display("{source}"), context(false))]
    ReadDocuments { source: ReadError },
    /// The file contains no Machine.
    #[snafu(display("no Machine found in {}: \"vitistack samples machine-basic\" prints one", path.display()))]
    FindMachine { path: PathBuf },
    /// Machines on the provider are not made of Kubernetes objects.
    #[snafu(display(
        "machine/{name} cannot be rendered: providers of type {provider_type} do not create Kubernetes objects"
    ))]
    UseProvider { name: String, provider_type: ProviderType },
    /// The Machine cannot be created as specified.
    #[snafu(display("machine/{name} cannot be created: {message}"))]
    Resolve { name: String, message: String },
}

/// The arguments of `vitistack render`.
#[derive(Args, Debug)]
#[command(
    after_help = "Objects that a Machine refers to are read from the file, or else from the cluster. A Machine without spec.providerRef is rendered for the cluster it is in. Secrets are neither read nor shown.

Examples:
  # Render the machines of a file
  vitistack render -f machine.yaml

  # Render a sample
  vitistack samples machine-with-overrides | vitistack render -f -"
)]
pub struct RenderArgs {
    /// File with Machines and, optionally, the objects they refer to; - for standard input
    #[arg(short, long, value_name = "FILE")]
    filename: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Prints the objects of each Machine.
pub async fn run(arguments: &RenderArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let path = &arguments.filename;
    let mut manifests = Manifests::read(path)?;
    let namespace = arguments.cluster.namespace.clone().unwrap_or_else(|| "default".to_owned());
    manifests.set_namespace(&namespace);
    if manifests.machines.is_empty() {
        return Ok(FindMachineSnafu { path }.fail()?);
    }

    if !manifests.is_complete() {
        manifests.complete(&arguments.cluster, console).await.context(WriteOutputSnafu)?;
    }
    for machine in &manifests.machines {
        write(&manifests, machine, console)?;
    }
    Ok(Ending::Done)
}

/// The Machines of a file, and the objects they refer to.
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
        let mut manifests = Self::default();
        for document in documents::read(path)? {
            let is_ours = text(&document, "/apiVersion").split('/').next() == Some(GROUP);
            match text(&document, "/kind") {
                "Machine" if is_ours => manifests.machines.push(read_one(document).map_err(refused)?),
                "MachineClass" if is_ours => manifests.classes.push(read_one(document).map_err(refused)?),
                "NetworkConfiguration" if is_ours => {
                    manifests.networks.push(read_one(document).map_err(refused)?);
                }
                "MachineProvider" if is_ours => {
                    manifests.providers.push(read_one(document).map_err(refused)?);
                }
                // Other objects that are applied together with the Machines are ignored.
                _ => {}
            }
        }
        Ok(manifests)
    }

    /// Sets the namespace of objects that specify none.
    fn set_namespace(&mut self, namespace: &str) {
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

    /// Returns the name of a Machine's provider, and the object if it is known.
    fn provider(&self, machine: &Machine) -> Option<(ObjectName, Option<&MachineProvider>)> {
        let name = provider_of(machine)?;
        let found = self.providers.iter().find(|provider| name.is_of(&provider.metadata));
        Some((name, found))
    }

    /// Returns whether all objects that the Machines refer to are known.
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

    /// Adds the objects of the cluster; those of the file take precedence. A cluster that cannot be read is reported only.
    async fn complete(&mut self, cluster: &ClusterArgs, console: &mut Console<'_>) -> std::io::Result<()> {
        let found = async {
            let cluster = Cluster::connect(cluster).await?;
            let failure =
                |error| Error::from(cluster.failure("list the objects that Machines refer to", error));
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
            Err(error) => {
                write_line(console.errors, format_args!("vitistack: the cluster was not read: {error}"))
            }
        }
    }
}

fn is_named(metadata: &ObjectMeta, namespace: Option<&str>, name: &str) -> bool {
    metadata.name.as_deref() == Some(name) && metadata.namespace.as_deref() == namespace
}

/// Decodes and validates an object, as an API server would.
fn read_one<K>(document: Value) -> Result<K, String>
where
    K: kube::core::CustomResourceExt + kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let object: K = decode(document).map_err(|error| error.to_string())?;
    check(&object).map_err(|error| error.to_string())?;
    Ok(object)
}

/// Prints the objects of a Machine.
fn write(manifests: &Manifests, machine: &Machine, console: &mut Console<'_>) -> Result<(), Error> {
    let name = machine.metadata.name.clone().unwrap_or_default();
    let provider = find_provider(manifests, machine)?;
    let desired = resolve(machine, &references(manifests, machine))
        .map_err(|refusal| RenderError::Resolve { name: name.clone(), message: refusal.message })?;
    let assigned = identity(machine);
    let has_identity = !assigned.as_str().is_empty();
    let identity = if has_identity { assigned } else { Identity::new(NO_IDENTITY) };

    let target = Target {
        uid: machine.metadata.uid.clone().unwrap_or_else(|| identity.as_str().to_owned()),
        identity,
        name: name.clone(),
        namespace: machine.metadata.namespace.clone().unwrap_or_default(),
    };
    let provider_type = provider.map_or(ProviderType::OWN_CLUSTER, |provider| provider.spec.type_);
    let rendered = backend_type(provider_type)
        .render(provider, &Order { target, desired })
        .with_context(|| UseProviderSnafu { name: &name, provider_type })?;
    let Rendered { objects, hidden } =
        rendered.map_err(|refusal| RenderError::Resolve { name: name.clone(), message: refusal.message })?;

    let mut comments = Vec::new();
    if !has_identity {
        comments.push(format!(
            "The identity of machine/{name} is assigned on creation; zeros are a placeholder."
        ));
    }
    comments.extend(hidden.into_iter().map(|hidden| format!("{hidden} is created too, but not shown.")));

    for comment in comments {
        write_line(console.output, format_args!("# {comment}")).context(WriteOutputSnafu)?;
    }
    for object in &objects {
        let yaml = serde_saphyr::to_string(object).context(WriteObjectSnafu)?;
        document(&yaml, console)?;
    }
    Ok(())
}

/// Returns the provider of a Machine; without spec.providerRef it is the cluster that the Machine is in.
fn find_provider<'a>(
    manifests: &'a Manifests,
    machine: &Machine,
) -> Result<Option<&'a MachineProvider>, RenderError> {
    let Some((provider, found)) = manifests.provider(machine) else { return Ok(None) };
    let found = found.with_context(|| ResolveSnafu {
        name: machine.metadata.name.clone().unwrap_or_default(),
        message: format!("spec.providerRef: MachineProvider \"{provider}\" not found in the file or the cluster: add it to the file"),
    })?;
    Ok(Some(found))
}

/// Returns the objects that a Machine refers to.
fn references(manifests: &Manifests, machine: &Machine) -> References {
    let namespace = machine.metadata.namespace.as_deref();
    let interfaces = machine.spec.networks.iter();
    // Only the key is needed: the content is never shown.
    let secret = machine.spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    References {
        class: machine.spec.template.as_deref().and_then(|name| manifests.class(name)).cloned(),
        networks: interfaces
            .filter_map(|interface| manifests.network(namespace, &interface.network_name))
            .filter_map(|network| Some((network.metadata.name.clone()?, network.clone())))
            .collect(),
        secret: secret.map(|secret| BTreeMap::from([(secret.key.clone(), Redacted::new(String::new()))])),
    }
}

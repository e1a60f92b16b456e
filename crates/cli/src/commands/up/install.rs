//! The definitions in a cluster: whether they are there, and putting them there.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use snafu::{ResultExt, Snafu};
use vitistack_clients::kubernetes::explain;
use vitistack_types::definitions as known;

use crate::manifests;

/// The name under which definitions are applied, the same as kubectl's so that either may do it.
const MANAGER: &str = "kubectl";

/// How long a server may take to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Indicates that the definitions are not there.
#[derive(Debug, Snafu)]
pub enum InstallError {
    /// Indicates that the cluster could not be asked.
    #[snafu(display(
        "failed to list the definitions of the cluster: {}; check --kubeconfig",
        explain(source)
    ))]
    ListDefinitions {
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// Indicates that a definition could not be made.
    #[snafu(display("{source}"))]
    MakeDefinition { source: manifests::Error },
    /// Indicates that the cluster refused a definition.
    #[snafu(display(
        "failed to install {name}: {}; whoever installs needs the right to patch customresourcedefinitions",
        explain(source)
    ))]
    ApplyDefinition {
        name: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// Indicates that the cluster took a definition and does not serve it.
    #[snafu(display("the cluster does not serve {name} after {} s: see kubectl describe crd {name}", SERVED_WITHIN.as_secs()))]
    ServeKind { name: String },
}

/// The definitions that a cluster lacks; none if it has all.
pub async fn missing(client: &Client) -> Result<Option<Vec<String>>, InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let there = api.list_metadata(&ListParams::default()).await.context(ListDefinitionsSnafu)?;
    let is_there = |name: &String| there.iter().any(|definition| definition.name_any() == *name);
    let missing: Vec<String> =
        known().iter().map(ResourceExt::name_any).filter(|name| !is_there(name)).collect();
    Ok((!missing.is_empty()).then_some(missing))
}

/// Installs the definitions and waits until they are served.
pub async fn definitions(client: &Client) -> Result<(), InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in known() {
        let name = definition.name_any();
        let definition = manifests::definition(&definition).context(MakeDefinitionSnafu)?;
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .context(ApplyDefinitionSnafu { name: &name })?;
    }
    for name in known().iter().map(ResourceExt::name_any) {
        let served = await_condition(api.clone(), &name, is_crd_established());
        if !matches!(tokio::time::timeout(SERVED_WITHIN, served).await, Ok(Ok(_))) {
            return ServeKindSnafu { name }.fail();
        }
    }
    Ok(())
}

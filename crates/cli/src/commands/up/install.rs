//! Checks and installs the CRDs.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use snafu::{ResultExt, Snafu};
use vitistack_clients::kubernetes::explain;
use vitistack_types::definitions;

use crate::manifests;

/// The field manager of CRDs: that of kubectl, so that either can update them.
const MANAGER: &str = "kubectl";

/// How long a server may take to serve a new kind.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Errors of checking and installing CRDs.
#[derive(Debug, Snafu)]
pub enum InstallError {
    /// The CRDs cannot be listed.
    #[snafu(display("failed to list the CRDs of the cluster: {}; check --kubeconfig", explain(source)))]
    ListCrds {
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A CRD cannot be generated.
    #[snafu(display("{source}"))]
    GenerateCrd { source: manifests::Error },
    /// The cluster rejected a CRD.
    #[snafu(display(
        "failed to install CRD {name}: {}; permission to patch customresourcedefinitions is required",
        explain(source)
    ))]
    ApplyCrd {
        name: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// The cluster accepted a CRD but does not serve it.
    #[snafu(display("CRD {name} is not served after {} s: see \"kubectl describe crd {name}\"", ESTABLISH_TIMEOUT.as_secs()))]
    ServeKind { name: String },
}

/// Returns the CRDs that a cluster lacks; `None` if it has all.
pub async fn missing(client: &Client) -> Result<Option<Vec<String>>, InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let existing = api.list_metadata(&ListParams::default()).await.context(ListCrdsSnafu)?;
    let exists = |name: &String| existing.iter().any(|definition| definition.name_any() == *name);
    let missing: Vec<String> =
        definitions().iter().map(ResourceExt::name_any).filter(|name| !exists(name)).collect();
    Ok((!missing.is_empty()).then_some(missing))
}

/// Installs the CRDs and waits until they are served.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        let name = definition.name_any();
        let definition = manifests::crd_value(&definition).context(GenerateCrdSnafu)?;
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .context(ApplyCrdSnafu { name: &name })?;
    }

    for name in definitions().iter().map(ResourceExt::name_any) {
        let served = await_condition(api.clone(), &name, is_crd_established());
        if !matches!(tokio::time::timeout(ESTABLISH_TIMEOUT, served).await, Ok(Ok(_))) {
            return ServeKindSnafu { name }.fail();
        }
    }
    Ok(())
}

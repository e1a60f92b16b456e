//! What a fresh `vitistack up` shows: a simulated datacenter, and the samples of the specification on it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use snafu::{ResultExt, Snafu};
use vitistack_types::{labels::SYSTEM_NAMESPACE, samples};

use crate::kinds::{KnownKind, NameError};

/// The name under which objects are applied.
pub const MANAGER: &str = "vitistack-up";

/// The object that says that the samples were applied once: what a user deleted stays deleted.
const MARK: &str = "vitistack-up";

/// The samples that need a cluster with KubeVirt, or a name that the demonstration has already.
const NOT_SHOWN: [&str; 3] =
    ["machine-provider-kubevirt", "machine-provider-simulated", "machine-every-field"];

/// Indicates that the samples could not be applied.
#[derive(Debug, Snafu)]
pub enum DemoError {
    /// Indicates that a manifest is not readable.
    #[snafu(display("failed to read the sample {name:?}: {source}"))]
    ReadSample {
        name: String,
        #[snafu(source(from(serde_saphyr::Error, Box::new)))]
        source: Box<serde_saphyr::Error>,
    },
    /// Indicates that a sample is of a kind that nobody knows.
    #[snafu(display("{source}"))]
    FindKind { source: NameError },
    /// Indicates that the API refused an object.
    #[snafu(display("failed to apply {name:?}: {}", vitistack_clients::kubernetes::explain(source)))]
    ApplyObject {
        name: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// Makes the namespace of the platform.
pub async fn prepare(client: &Client) -> Result<(), DemoError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM_NAMESPACE } });
    api.patch(SYSTEM_NAMESPACE, &PatchParams::apply(MANAGER).force(), &Patch::Apply(namespace))
        .await
        .context(ApplyObjectSnafu { name: SYSTEM_NAMESPACE })?;
    Ok(())
}

/// Applies the samples, unless that was done before. Says whether it did.
pub async fn show(client: &Client) -> Result<bool, DemoError> {
    let marks: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    if marks.get_opt(MARK).await.context(ApplyObjectSnafu { name: MARK })?.is_some() {
        return Ok(false);
    }
    for object in objects()? {
        let name = object.name_any();
        let word = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        let kind = KnownKind::find(&word).context(FindKindSnafu)?;
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) if kind.is_namespaced => {
                Api::namespaced_with(client.clone(), &namespace, &kind.resource)
            }
            _ if kind.is_namespaced => Api::namespaced_with(client.clone(), "default", &kind.resource),
            _ => Api::all_with(client.clone(), &kind.resource),
        };
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object))
            .await
            .context(ApplyObjectSnafu { name: &name })?;
    }
    let mark = ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some(MARK.to_owned()), ..Default::default() },
        ..ConfigMap::default()
    };
    marks.create(&PostParams::default(), &mark).await.context(ApplyObjectSnafu { name: MARK })?;
    Ok(true)
}

/// Everything that is shown, in an order in which it can be applied.
fn objects() -> Result<Vec<DynamicObject>, DemoError> {
    let shown = samples().iter().filter(|sample| !NOT_SHOWN.contains(&sample.name));
    let manifests = [("demo", include_str!("demo.yaml"))]
        .into_iter()
        .chain(shown.map(|sample| (sample.name, sample.manifest)));
    let mut objects = Vec::new();
    for (name, manifest) in manifests {
        let documents: Vec<DynamicObject> =
            serde_saphyr::from_multiple(manifest).context(ReadSampleSnafu { name })?;
        objects.extend(documents);
    }
    Ok(objects)
}

//! The demo of a new `vitistack up`: a simulated datacenter and the samples.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;
use snafu::{ResultExt, Snafu};
use vitistack_types::{labels::SYSTEM_NAMESPACE, samples};

use crate::cluster::kinds::{KnownKind, NameError};

/// The field manager of applied objects.
pub const MANAGER: &str = "vitistack-up";

/// The ConfigMap that records that the samples were applied, so that objects a user deletes stay deleted.
const MARKER: &str = "vitistack-up";

/// Samples that require KubeVirt, or whose names the demo already uses.
const EXCLUDED: [&str; 3] =
    ["machine-provider-kubevirt", "machine-provider-simulated", "machine-every-field"];

/// Errors of applying the samples.
#[derive(Debug, Snafu)]
pub enum DemoError {
    /// The manifest cannot be parsed.
    #[snafu(display("failed to parse sample {name:?}: {source}"))]
    ReadSample {
        name: String,
        #[snafu(source(from(serde_saphyr::Error, Box::new)))]
        source: Box<serde_saphyr::Error>,
    },
    /// The kind is unknown.
    #[snafu(display("{source}"))]
    FindKind { source: NameError },
    /// The API rejected an object.
    #[snafu(display("failed to apply {name:?}: {}", vitistack_clients::kubernetes::explain(source)))]
    ApplyObject {
        name: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// Creates the namespace of the operators.
pub async fn prepare(client: &Client) -> Result<(), DemoError> {
    let api: Api<Namespace> = Api::all(client.clone());
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM_NAMESPACE } });
    api.patch(SYSTEM_NAMESPACE, &PatchParams::apply(MANAGER).force(), &Patch::Apply(namespace))
        .await
        .context(ApplyObjectSnafu { name: SYSTEM_NAMESPACE })?;
    Ok(())
}

/// Applies the samples, unless this was done before. Returns whether they were applied.
pub async fn apply(client: &Client) -> Result<bool, DemoError> {
    let markers: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    if markers.get_opt(MARKER).await.context(ApplyObjectSnafu { name: MARKER })?.is_some() {
        return Ok(false);
    }

    for object in objects()? {
        let name = object.name_any();
        let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        let kind = KnownKind::find(&kind).context(FindKindSnafu)?;
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

    let marker = ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some(MARKER.to_owned()), ..Default::default() },
        ..ConfigMap::default()
    };
    markers.create(&PostParams::default(), &marker).await.context(ApplyObjectSnafu { name: MARKER })?;
    Ok(true)
}

/// Returns the objects of the demo, in an order in which they can be applied.
fn objects() -> Result<Vec<DynamicObject>, DemoError> {
    let samples = samples().iter().filter(|sample| !EXCLUDED.contains(&sample.name));
    let manifests = [("demo", include_str!("demo.yaml"))]
        .into_iter()
        .chain(samples.map(|sample| (sample.name, sample.manifest)));
    let mut objects = Vec::new();
    for (name, manifest) in manifests {
        let documents: Vec<DynamicObject> =
            serde_saphyr::from_multiple(manifest).context(ReadSampleSnafu { name })?;
        objects.extend(documents);
    }
    Ok(objects)
}

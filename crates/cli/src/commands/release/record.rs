//! The record of a machine that was released.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use vitistack_plan::machine::{identity, placement};
use vitistack_types::{labels, v1alpha1::Machine};

use super::Dependent;
use crate::{
    cluster::{
        Cluster,
        change::{FIELD_MANAGER, WriteRecordSnafu},
    },
    commands::Error,
};

/// A ConfigMap that describes the backing machine and its disks.
#[derive(Clone, Debug)]
pub struct Record(ConfigMap);

impl Record {
    /// Creates the record of a Machine and its objects.
    pub fn new(machine: &Machine, dependents: &[Dependent], now: Timestamp) -> Self {
        let name = machine.metadata.name.clone().unwrap_or_default();
        let identity = identity(machine).as_str().to_owned();
        let vm_name = machine.status.as_ref().and_then(|status| status.vm_name.clone());
        let fields = [
            ("machine", Some(name.clone())),
            ("provider", placement(machine).map(|placement| placement.to_string())),
            ("identity", Some(identity.clone())),
            ("vmName", vm_name),
            ("disks", Some(disks(machine, dependents))),
            ("released", Some(now.to_string())),
        ];
        let data = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();

        Self(ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("released-{name}")),
                namespace: machine.metadata.namespace.clone(),
                labels: Some(BTreeMap::from([
                    (labels::RELEASED.to_owned(), "true".to_owned()),
                    (labels::MACHINE.to_owned(), name),
                    (labels::IDENTITY.to_owned(), identity),
                ])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        })
    }

    /// Returns the name of the ConfigMap.
    pub fn name(&self) -> String {
        self.0.name_any()
    }

    /// Returns the data of the ConfigMap.
    pub fn data(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.data.iter().flatten()
    }

    fn api(&self, cluster: &Cluster) -> Api<ConfigMap> {
        Api::namespaced(cluster.client.clone(), &self.0.namespace().unwrap_or_default())
    }

    fn failure(&self, cluster: &Cluster, verb: &str, error: kube::Error) -> Error {
        cluster.failure(format!("{verb} ConfigMap {}", self.name()), error).into()
    }

    /// Returns whether the record was written by an earlier release that was interrupted. The record of another machine is
    /// an error.
    pub async fn is_written(&self, cluster: &Cluster) -> Result<bool, Error> {
        let found = self.api(cluster).get_opt(&self.name()).await;
        match found.map_err(|error| self.failure(cluster, "read", error))? {
            None => Ok(false),
            Some(found) if found.labels().get(labels::IDENTITY) == self.0.labels().get(labels::IDENTITY) => {
                Ok(true)
            }
            Some(_) => Ok(WriteRecordSnafu { name: self.name() }.fail()?),
        }
    }

    /// Writes the record.
    pub async fn write(&self, cluster: &Cluster, dry_run: bool) -> Result<(), Error> {
        let parameters = PatchParams { dry_run, ..PatchParams::apply(FIELD_MANAGER).force() };
        let written = self.api(cluster).patch(&self.name(), &parameters, &Patch::Apply(&self.0)).await;
        written.map_err(|error| self.failure(cluster, "write", error))?;
        Ok(())
    }
}

/// Returns the volumes that were found, else the disks of the spec.
fn disks(machine: &Machine, dependents: &[Dependent]) -> String {
    let volumes: Vec<String> =
        dependents.iter().filter(|dependent| dependent.kind.is_volume).map(ToString::to_string).collect();
    if !volumes.is_empty() {
        return volumes.join("\n");
    }
    let template = machine.spec.template.iter().map(|template| format!("disks of template {template}"));
    let own = machine.spec.disks.iter().map(|disk| disk.name.clone());
    template.chain(own).collect::<Vec<_>>().join("\n")
}

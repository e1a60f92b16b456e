//! A platform with its machines, moved to a fresh control plane by the commands of the guide: none is made twice.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use vitistack_controller::backends::world_of;
use vitistack_machine::simulated::{KubernetesStore, Settings, WorldStore as _, world::World};
use vitistack_types::v1alpha1::MachineProvider;

use crate::guide::{blocks, programs, script, succeed, until, up};

/// Everything that the guide's test asks of one control plane.
struct Plane<'a> {
    directory: &'a Path,
    kubeconfig: &'a str,
}

impl Plane<'_> {
    fn tell(&self, text: &str) -> String {
        let mut command = script(self.directory, &programs(), text);
        succeed(&command.env("KUBECONFIG", self.directory.join(self.kubeconfig)).output().unwrap())
    }

    fn objects(&self, kind: &str) -> Vec<Value> {
        let list: Value =
            serde_json::from_str(&self.tell(&format!("kubectl get {kind} -A -o json"))).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Of each Machine: what it is at its provider, and whether it runs.
    fn machines(&self) -> BTreeMap<String, Value> {
        let told = |machine: &Value| {
            let status = &machine["status"];
            json!([
                status["phase"],
                status["nodeName"],
                status["identity"],
                status["vmName"],
                status["provider"],
                status["ipAddresses"],
                machine["metadata"]["annotations"]["vitistack.io/identity"],
                machine["metadata"]["annotations"]["vitistack.io/placement"]
            ])
        };
        let name = |machine: &Value| {
            let text = |field: &str| machine["metadata"][field].as_str().unwrap().to_owned();
            format!("{}/{}", text("namespace"), text("name"))
        };
        self.objects("machines").iter().map(|machine| (name(machine), told(machine))).collect()
    }

    fn all_run(&self) -> bool {
        let machines = self.machines();
        !machines.is_empty() && machines.values().all(|machine| machine[0] == "Running")
    }

    /// The worlds as their hypervisors know them: every machine with its number, name, identity and starts.
    async fn worlds(&self) -> Vec<String> {
        let config = Kubeconfig::read_from(self.directory.join(self.kubeconfig)).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let mut worlds = Vec::new();
        for provider in self.objects("machineproviders") {
            let provider: MachineProvider = serde_json::from_value(provider).unwrap();
            let store = KubernetesStore::new(client.clone(), "vitistack-system", &world_of(&provider));
            let stored = store.load().await.unwrap();
            let records = stored.records.iter().map(Vec::as_slice);
            let world = World::restore(Settings::default(), records, Timestamp::now()).unwrap();
            worlds.extend(world.machines().map(|machine| {
                let name = provider.metadata.name.as_deref().unwrap();
                format!(
                    "{name}: {} {} {:?} {:?} {}",
                    machine.id, machine.name, machine.tag, machine.started, machine.starts
                )
            }));
            worlds.extend(
                world.volumes().map(|volume| format!("{} {} {:?}", volume.id, volume.name, volume.tag)),
            );
        }
        worlds
    }
}

/// Does what the guide says, with a change to its commands, and looks that nothing was made twice.
async fn restored(change: impl Fn(&str) -> String) {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    let old = Plane { directory, kubeconfig: ".vitistack/kubeconfig" };
    let new = Plane { directory, kubeconfig: "other/kubeconfig" };
    let first = up(directory, &[]);
    until("the samples run", || old.all_run());
    let [export, apply, adopt]: [String; 3] = blocks("docs/backup.md").try_into().unwrap();
    old.tell(&export);
    let (machines, worlds) = (old.machines(), old.worlds().await);
    assert!(worlds.len() > machines.len(), "{worlds:#?}");
    drop(first);

    let _second = up(directory, &["--data-dir", "other", "--empty"]);
    new.tell(&change(&apply));
    let held = |machine: &Value| machine["status"]["conditions"].to_string().contains("IdentityHeld");
    until("every Machine waits", || new.objects("machines").iter().all(held));
    assert_eq!(new.worlds().await, worlds, "nothing is done before somebody says so");
    let told = new.tell(&adopt);
    assert!(told.contains("machine/web-1 in namespace default has the identity"), "{told}");
    until("all machines run", || new.all_run());
    assert_eq!(new.machines(), machines);
    assert_eq!(new.worlds().await, worlds, "no machine was made twice");
    assert_eq!(new.tell("vitistack adopt --all -A"), "no Machine waits to be adopted\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_restored_by_the_commands_of_the_guide_and_no_machine_is_made_twice() {
    restored(str::to_owned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_restored_in_any_order() {
    // Machines first, worlds last: the operators see a Machine without its provider, and a provider without its world.
    let shuffled = "awk 'BEGIN { RS = \"---\\n\" } NR > 1 { documents[NR] = $0 } END { for (number = NR; number > 1; number--) printf \"---\\n%s\", documents[number] }' all.yaml > shuffled.yaml";
    restored(|apply| {
        let apply = apply.replace("apply --server-side", "create").replace("all.yaml", "shuffled.yaml");
        format!("{shuffled}\n{apply}")
    })
    .await;
}

//! Moves a platform with its machines to a new control plane by the commands of the guide, without duplicates.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use vitistack_machine::simulated::{KubernetesStore, Settings, WorldStore as _, world::World, world_of};
use vitistack_types::v1alpha1::MachineProvider;

use crate::guide::{blocks, programs, script, succeed, until, up};

/// One of the two control planes of the guide.
struct Plane<'a> {
    directory: &'a Path,
    kubeconfig: &'a str,
}

impl Plane<'_> {
    fn run(&self, text: &str) -> String {
        let mut command = script(self.directory, &programs(), text);
        succeed(&command.env("KUBECONFIG", self.directory.join(self.kubeconfig)).output().unwrap())
    }

    fn objects(&self, kind: &str) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.run(&format!("kubectl get {kind} -A -o json"))).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Returns the state of each Machine at its provider.
    fn machines(&self) -> BTreeMap<String, Value> {
        let state = |machine: &Value| {
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
        self.objects("machines").iter().map(|machine| (name(machine), state(machine))).collect()
    }

    fn all_running(&self) -> bool {
        let machines = self.machines();
        !machines.is_empty() && machines.values().all(|machine| machine[0] == "Running")
    }

    /// Returns the machines and volumes of all simulated worlds.
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

/// Returns the commands of the guide: export, apply and adopt; backup and restore.
fn commands() -> [String; 5] {
    blocks("docs/backup.md").try_into().unwrap()
}

/// Runs the commands of the guide, with a change to the restore, and checks that nothing was created twice.
async fn restored(change: impl Fn(&str) -> String) {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    let old = Plane { directory, kubeconfig: ".vitistack/kubeconfig" };
    let new = Plane { directory, kubeconfig: "other/kubeconfig" };
    let first = up(directory, &[]);
    until("the samples are running", || old.all_running());
    let [export, apply, adopt, _, _] = commands();
    old.run(&export);
    let (machines, worlds) = (old.machines(), old.worlds().await);
    assert!(worlds.len() > machines.len(), "{worlds:#?}");
    drop(first);

    let _second = up(directory, &["--data-dir", "other", "--empty"]);
    new.run(&change(&apply));
    let held = |machine: &Value| machine["status"]["conditions"].to_string().contains("IdentityHeld");
    until("every Machine is held", || new.objects("machines").iter().all(held));
    assert_eq!(new.worlds().await, worlds, "nothing is changed before the adoption");
    let output = new.run(&adopt);
    assert!(output.contains("machine/web-1 adopted in namespace default, identity"), "{output}");
    until("all machines are running", || new.all_running());
    assert_eq!(new.machines(), machines);
    assert_eq!(new.worlds().await, worlds, "no machine was created twice");
    assert_eq!(new.run("vitistack adopt --all -A"), "No Machine is waiting for adoption.\n");

    // An apply of the original manifest can remove the identity; what the condition advises restores it.
    new.run("kubectl annotate machine web-1 vitistack.io/identity-");
    let web = || new.objects("machines").into_iter().find(|machine| machine["metadata"]["name"] == "web-1");
    until("the Machine is held", || web().as_ref().is_some_and(held));
    let condition = web().unwrap_or_default()["status"]["conditions"].to_string();
    assert!(condition.contains("vitistack adopt machine/web-1 -n default"), "{condition}");
    let output = new.run("vitistack adopt machine/web-1 -n default");
    assert!(output.contains("machine/web-1 repaired, identity"), "{output}");
    until("all machines are running again", || new.all_running());
    assert_eq!(new.machines(), machines);
    assert_eq!(new.worlds().await, worlds, "the same machine, and no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_restored_by_the_commands_of_the_guide_without_duplicates() {
    restored(str::to_owned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_restored_in_any_order() {
    // Machines first, worlds last: operators see Machines without a provider, and providers without a world.
    let shuffled = "awk 'BEGIN { RS = \"---\\n\" } NR > 1 { documents[NR] = $0 } END { for (number = NR; number > 1; number--) printf \"---\\n%s\", documents[number] }' all.yaml > shuffled.yaml";
    restored(|apply| {
        let apply = apply.replace("apply --server-side", "create").replace("all.yaml", "shuffled.yaml");
        format!("{shuffled}\n{apply}")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_backup_is_restored_by_the_commands_of_the_guide() {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    let old = Plane { directory, kubeconfig: ".vitistack/kubeconfig" };
    let new = Plane { directory, kubeconfig: "restored/kubeconfig" };
    let first = up(directory, &[]);
    until("the samples are running", || old.all_running());
    old.run("kubectl create secret generic credentials --from-literal password=hunter2");
    let [_, _, _, backup, restore] = commands();
    let output = old.run(&backup);
    assert!(output.contains("backup \"backup.age\" written"), "{output}");
    let (machines, worlds) = (old.machines(), old.worlds().await);
    drop(first);

    let output = old.run(&restore);
    assert!(output.contains("data directory \"restored\" restored"), "{output}");
    let _second = up(directory, &["--data-dir", "restored", "--empty"]);
    until("all machines are running", || new.all_running());
    assert_eq!(new.machines(), machines, "no Machine has to be adopted");
    assert_eq!(new.worlds().await, worlds, "no machine was created twice");
    let password = new.run("kubectl get secret credentials -o 'jsonpath={.data.password}'");
    assert_eq!(password, "aHVudGVyMg==");
}

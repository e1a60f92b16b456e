//! Text of a hostile tenant in the output of every command.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{CommandOutput, Stage};

/// Clears the screen and colors the rest in two ways, forges a line, and reverses the text after it.
const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\r\nvitistack: forged\u{202e}\u{2066}\u{7f}\tend";

const PLATFORM: &str = "apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: rack, namespace: default}
spec: {type: simulated}
---
apiVersion: vitistack.io/v1alpha1
kind: Datacenter
metadata: {name: west, namespace: default}
spec: {region: west, machineProviders: [{name: rack, priority: 1}]}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: default}
spec: {template: small, datacenterRef: {name: west}}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: plain, namespace: default}
spec: {template: small}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: restored, namespace: default}
spec: {template: small}";

/// Asserts that nothing in an output does more than to be shown.
fn assert_harmless(command: &str, report: &CommandOutput) {
    for text in [&report.output, &report.errors] {
        let is_active = |character: &char| {
            (character.is_control() && *character != '\n')
                || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert_eq!(text.chars().find(is_active), None, "{command}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("vitistack: forged")), "{command}: {text}");
    }
}

/// Writes the hostile text wherever the server accepts it, and returns where.
async fn plant(stage: &Stage) -> Vec<String> {
    let mut planted = Vec::new();
    let annotations = [
        "placement",
        "placement-reason",
        "zone",
        "identity",
        "adopted",
        "passed-over",
        "admitted",
        "restart-at",
        "paused",
        "allow-references-from",
        "is-default-provider",
        "watched-namespaces",
    ];
    let spec = [
        json!({ "zone": HOSTILE }),
        json!({ "template": HOSTILE }),
        json!({ "providerRef": { "name": HOSTILE } }),
        json!({ "region": HOSTILE }),
        json!({ "location": HOSTILE }),
        json!({ "description": HOSTILE }),
        json!({ "zones": [HOSTILE] }),
        json!({ "cloudInit": { "userData": HOSTILE } }),
    ];
    let objects =
        [("Machine", "web"), ("Machine", "plain"), ("MachineProvider", "rack"), ("Datacenter", "west")];
    for (kind, name) in objects {
        let api = stage.objects("vitistack.io/v1alpha1", kind);
        let mut try_patch = async |what: String, patch: Value| {
            let patch = Patch::Merge(patch);
            let is_accepted = api.patch(name, &PatchParams::default(), &patch).await.is_ok();
            planted.extend(is_accepted.then_some(what));
        };
        for annotation in annotations {
            // A placement decides which of the other texts a command comes to.
            let is_own = name == "plain" || !["placement", "paused", "identity"].contains(&annotation);
            if is_own {
                let annotations = json!({ format!("vitistack.io/{annotation}"): HOSTILE });
                try_patch(
                    format!("{kind} {annotation}"),
                    json!({ "metadata": { "annotations": annotations } }),
                )
                .await;
            }
        }
        for fields in &spec {
            try_patch(format!("{kind} {fields}"), json!({ "spec": fields })).await;
        }
        try_patch(
            format!("{kind} finalizer"),
            json!({ "metadata": { "finalizers": [format!("a.io/{HOSTILE}")] } }),
        )
        .await;
        try_patch(format!("{kind} label"), json!({ "metadata": { "labels": { "team": HOSTILE } } })).await;

        let condition = json!({ "type": "Ready", "status": "False", "reason": "ProviderUnreachable", "message": HOSTILE,
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        api.patch_status(name, &PatchParams::default(), &status).await.unwrap();

        let event: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": { "name": format!("{name}.1"), "namespace": "default" },
            "involvedObject": { "apiVersion": "vitistack.io/v1alpha1", "kind": kind, "name": name, "namespace": "default" },
            "type": HOSTILE, "reason": HOSTILE, "message": HOSTILE, "lastTimestamp": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        stage.objects("v1", "Event").create(&PostParams::default(), &event).await.unwrap();
    }

    let restored = json!({ "metadata": { "annotations": { "vitistack.io/identity": HOSTILE } } });
    let machines = stage.machines();
    machines.patch("restored", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
    planted
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_a_tenant_is_shown_and_never_acts() {
    let stage = Stage::new().await;
    stage.namespace("vitistack-system").await;
    stage.apply(PLATFORM).await;
    let planted = plant(&stage).await;
    assert!(planted.len() > 20, "too little was accepted: {planted:#?}");

    let file = stage.directory.path().join("file.yaml");
    let change = json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "web", "namespace": "default", "annotations": { "note": HOSTILE } },
        "spec": { "template": "medium", "datacenterRef": { "name": "west" } },
    });
    std::fs::write(&file, change.to_string()).unwrap();
    let plan = format!("plan -f {}", file.display());
    let mut shown = 0;
    let commands = [
        "get",
        "get -A",
        "get machines -o wide",
        "get machines -o name",
        "get machines --show-labels --sort-by=.spec.template",
        "get machine web",
        "get events",
        "describe machine/web",
        "describe machine/plain",
        "describe machineprovider/rack",
        "describe datacenter/west",
        "why",
        "why -A",
        "why machine/web",
        "why machine/plain",
        "why machine/restored",
        "why machineprovider/rack",
        "why datacenter/west",
        "events",
        "events machine/web",
        "doctor",
        &plan,
        "export -A",
        "render -f /nonexistent",
        "release machine/web --dry-run",
        "release machine/plain --dry-run",
        "power off machine/web",
        "power off --all --dry-run",
        "release --all --dry-run",
        "pause machine/web",
        "resume machine/web",
        "adopt machine/plain",
        "adopt machine/restored",
        "adopt --all --yes",
        "why machine/absent",
    ];
    for command in commands {
        let arguments: Vec<&str> = command.split(' ').collect();
        let report = stage.run(&arguments).await;
        let is_yaml = command.starts_with("export");
        if !is_yaml {
            assert_harmless(command, &report);
        }
        shown += usize::from(report.output.contains(r"\u{1b}[2J") || report.errors.contains(r"\u{1b}[2J"));
    }
    assert!(shown > 8, "the text was shown by {shown} commands only");

    let (_watching, mut lines) = stage.start(&["watch", "machines"]);
    for line in (0..3).map_while(|_| lines.next()) {
        assert_harmless("watch", &CommandOutput { code: 0, output: line, errors: String::new() });
    }
}

//! Checks what tenants can do: where providers create machines, and who may write the kinds of the platform.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kube::{Api, api::ListParams};
use vitistack_plan::Inventory;
use vitistack_types::{ObjectName, labels, v1alpha1::MachineProvider};

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    inventory::load,
    manifests::roles::{EDITOR, PLATFORM_EDITOR, platform_kinds},
};

const NAMESPACES: &str = "namespaces of providers";
const EDITORS: &str = "role vitistack-editor";

/// Roles that write what `vitistack-editor` writes, because it is aggregated to them.
const AGGREGATED: [&str; 3] = ["edit", "admin", EDITOR];

/// Checks that every provider may create machines in the namespace that it names.
pub async fn check_namespaces(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let loaded = match load(cluster).await {
        Ok(loaded) => loaded,
        Err(failure) => return Ok(vec![unknown(NAMESPACES, failure)?]),
    };
    let findings: Vec<Finding> = loaded
        .inventory
        .providers
        .iter()
        .filter_map(|each| judge_provider(each, &loaded.inventory))
        .collect();
    if !findings.is_empty() {
        return Ok(findings);
    }
    Ok(vec![Finding::ok(NAMESPACES, "every provider creates machines where it is allowed to")])
}

/// Reports a provider that may not act in the namespace that it names, with the Machines that this blocks.
fn judge_provider(provider: &MachineProvider, inventory: &Inventory) -> Option<Finding> {
    let (name, target) = (ObjectName::of(provider), provider.spec.own_cluster_namespace()?);
    if inventory.namespaces.is_none() {
        let message = format!(
            "not checked: MachineProvider {name} creates machines in namespace {target}, and namespaces could not be listed"
        );
        return Some(Finding::warning(NAMESPACES, message, "use a kubeconfig with the permission"));
    }

    let blocked: Vec<String> = inventory
        .placed_on(&name)
        .filter(|machine| inventory.check_namespace(machine, provider).is_err())
        .map(|machine| ObjectName::of(machine).to_string())
        .collect();
    let is_permitted = name.namespace == target || inventory.permits(target, &name.namespace);
    if blocked.is_empty() && is_permitted {
        return None;
    }

    let machines = match blocked.as_slice() {
        [] => "no machine is created there".to_owned(),
        some => format!("these machines keep running, but are not changed: {}", some.join(", ")),
    };
    let message = format!(
        "MachineProvider {name} creates machines in namespace {target}, which does not allow it; {machines}"
    );
    let fix = format!(
        "run \"kubectl annotate namespace {target} {}={}\"",
        labels::ALLOW_REFERENCES_FROM,
        name.namespace
    );
    Some(Finding::warning(NAMESPACES, message, fix))
}

/// Checks that tenants may not write the kinds of the platform. An earlier version of the role allowed it.
pub async fn check_editors(cluster: &Cluster) -> Result<Finding, RequestError> {
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let role = match roles.get_opt(EDITOR).await {
        Ok(Some(role)) => role,
        Ok(None) => return Ok(Finding::ok(EDITORS, "not installed")),
        Err(error) => return unknown(EDITORS, cluster.failure("read the role vitistack-editor", error)),
    };
    if written_kinds(&role).is_empty() {
        return Ok(Finding::ok(EDITORS, "writes machines only"));
    }

    let everywhere: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let local: Api<RoleBinding> = Api::all(cluster.client.clone());
    let all = ListParams::default();
    let bindings = match tokio::try_join!(everywhere.list(&all), local.list(&all)) {
        Ok((everywhere, local)) => {
            let everywhere = everywhere.items.into_iter().map(|each| (None, each.role_ref, each.subjects));
            let local =
                local.items.into_iter().map(|each| (each.metadata.namespace, each.role_ref, each.subjects));
            everywhere.chain(local).collect::<Vec<_>>()
        }
        Err(error) => return unknown(EDITORS, cluster.failure("list role bindings", error)),
    };
    Ok(judge_editors(&role, &bindings))
}

/// A binding: its namespace, or none for all; its role; its subjects.
type Binding = (Option<String>, RoleRef, Option<Vec<Subject>>);

/// The kinds of the platform that a role may create.
fn written_kinds(role: &ClusterRole) -> Vec<String> {
    let rules = role.rules.iter().flatten().filter(|rule| rule.verbs.iter().any(|verb| verb == "create"));
    let written: Vec<&String> = rules.flat_map(|rule| rule.resources.iter().flatten()).collect();
    platform_kinds().into_iter().filter(|kind| written.contains(&kind)).collect()
}

/// Reports who loses the access that an earlier version of the role gave, and how to give it back.
fn judge_editors(role: &ClusterRole, bindings: &[Binding]) -> Finding {
    let mut losing: Vec<(String, String)> = Vec::new();
    for (namespace, role_ref, subjects) in bindings {
        if !AGGREGATED.contains(&role_ref.name.as_str()) {
            continue;
        }
        for subject in subjects.iter().flatten() {
            let place = namespace.as_ref().map_or("everywhere".to_owned(), |name| format!("in {name}"));
            losing.push((
                format!("{} {} {place}", subject.kind, subject.name),
                binding_command(namespace.as_deref(), subject),
            ));
        }
    }
    losing.sort();
    losing.dedup();

    let kinds = written_kinds(role).join(", ");
    let lost = format!("the installed version writes {kinds}; that of this version writes machines only");
    if losing.is_empty() {
        return Finding::warning(EDITORS, lost, "apply \"vitistack rbac\" again");
    }
    let (who, commands): (Vec<String>, Vec<String>) = losing.into_iter().unzip();
    Finding::warning(
        EDITORS,
        format!("{lost}, and these lose access: {}", who.join(", ")),
        format!("give it back to those who need it: {}", commands.join("; ")),
    )
}

/// The command that lets a subject write the kinds of the platform.
fn binding_command(namespace: Option<&str>, subject: &Subject) -> String {
    let who = match subject.kind.as_str() {
        "ServiceAccount" => {
            format!("--serviceaccount={}:{}", subject.namespace.as_deref().unwrap_or_default(), subject.name)
        }
        "Group" => format!("--group={}", subject.name),
        _ => format!("--user={}", subject.name),
    };
    let name: String = subject
        .name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    match namespace {
        Some(namespace) => format!(
            "kubectl create rolebinding {PLATFORM_EDITOR}-{name} -n {namespace} --clusterrole={PLATFORM_EDITOR} {who}"
        ),
        None => format!(
            "kubectl create clusterrolebinding {PLATFORM_EDITOR}-{name} --clusterrole={PLATFORM_EDITOR} {who}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(resources: &[&str]) -> ClusterRole {
        let rule =
            json!({ "apiGroups": ["vitistack.io"], "resources": resources, "verbs": ["create", "patch"] });
        serde_json::from_value(json!({ "metadata": { "name": EDITOR }, "rules": [rule] })).unwrap()
    }

    fn binding(namespace: Option<&str>, role: &str, kind: &str, name: &str) -> Binding {
        let role_ref = RoleRef { name: role.to_owned(), ..RoleRef::default() };
        let subject = Subject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: (kind == "ServiceAccount").then(|| "ci".to_owned()),
            ..Subject::default()
        };
        (namespace.map(str::to_owned), role_ref, Some(vec![subject]))
    }

    #[test]
    fn the_role_of_this_version_writes_no_kind_of_the_platform() {
        assert_eq!(written_kinds(&role(&["machines"])), Vec::<String>::new());
    }

    #[test]
    fn users_who_lose_access_are_named_with_the_command_that_gives_it_back() {
        let bindings = [
            binding(Some("team-a"), "edit", "User", "alice@example.com"),
            binding(None, "admin", "Group", "platform"),
            binding(Some("team-b"), EDITOR, "ServiceAccount", "deployer"),
            binding(Some("team-b"), "view", "User", "bob"),
        ];
        let finding = judge_editors(&role(&["machines", "machineproviders", "datacenters"]), &bindings);
        for who in ["User alice@example.com in team-a", "Group platform everywhere", "deployer in team-b"] {
            assert!(finding.message.contains(who), "{}", finding.message);
        }
        assert!(!finding.message.contains("bob"), "{}", finding.message);

        let role = "--clusterrole=vitistack-platform-editor";
        let fix = finding.fix.unwrap();
        for command in [
            format!(
                "rolebinding vitistack-platform-editor-alice-example-com -n team-a {role} --user=alice@example.com"
            ),
            format!("clusterrolebinding vitistack-platform-editor-platform {role} --group=platform"),
            format!("-n team-b {role} --serviceaccount=ci:deployer"),
        ] {
            assert!(fix.contains(&command), "{fix}");
        }
    }
}

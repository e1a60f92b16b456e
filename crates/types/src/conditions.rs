//! Condition types and reasons as users see them in `kubectl describe`, and functions to find and set
//! conditions.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// The content of a condition, without the times and the generation that [`set`] fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Type of the condition, for example `Ready`.
    pub type_: &'a str,
    /// `True`, `False`, or `Unknown` if `None`.
    pub status: Option<bool>,
    /// Reason in `CamelCase`.
    pub reason: &'a str,
    /// One sentence for people, with the fix if there is one.
    pub message: &'a str,
}

/// Sets one condition, as observed at `generation`.
///
/// The transition time changes only with the status, so that setting the same statement again changes
/// nothing. The order of the conditions is preserved, and duplicates of the type, which only another writer
/// can have added, are removed.
pub fn set(
    conditions: &mut Vec<Condition>,
    statement: &Statement<'_>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = status_text(statement.status);
    let last_transition_time = match find(conditions, statement.type_) {
        Some(before) if before.status == status => before.last_transition_time.clone(),
        _ => Time(now),
    };
    let condition = Condition {
        type_: statement.type_.to_owned(),
        status: status.to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message.to_owned(),
        observed_generation: generation,
        last_transition_time,
    };

    let index = conditions.iter().position(|each| each.type_ == statement.type_).unwrap_or(conditions.len());
    conditions.retain(|each| each.type_ != statement.type_);
    conditions.insert(index.min(conditions.len()), condition);
}

/// Returns the condition of a type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|each| each.type_ == type_)
}

/// Whether the condition exists and is true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

fn status_text(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// Whether the object is in its desired state. Every kind has this condition.
pub const READY: &str = "Ready";

/// Whether the VirtualMachine of a Machine exists and is running.
pub const VIRTUAL_MACHINE_READY: &str = "VirtualMachineReady";

/// Whether the disks of a Machine are provisioned.
pub const STORAGE_READY: &str = "StorageReady";

/// Whether the networks of a Machine are configured.
pub const NETWORK_READY: &str = "NetworkReady";

/// Whether the backing machine matches the spec.
pub const UP_TO_DATE: &str = "UpToDate";

/// Whether every field that is set is honored. Present only while one is not.
pub const FIELDS_HONOURED: &str = "FieldsHonoured";

/// On a Datacenter, only while false: its machines use more than its quotas allow.
pub const WITHIN_QUOTAS: &str = "WithinQuotas";

/// Whether a provider responds to health checks.
pub const REACHABLE: &str = "Reachable";

/// Whether the credentials of a provider exist and are usable. Present only if the provider has credentials.
pub const CREDENTIALS_VALID: &str = "CredentialsValid";

/// Whether the annotation `vitistack.io/paused` stops reconciliation of the object.
pub const PAUSED: &str = "Paused";

/// Reasons of conditions and events.
pub mod reason {
    /// The observed state matches the spec.
    pub const AS_SPECIFIED: &str = "AsSpecified";
    /// The provider is creating the machine.
    pub const CREATING: &str = "Creating";
    /// The provider is changing the machine.
    pub const UPDATING: &str = "Updating";
    /// The machine or the object is being deleted.
    pub const DELETING: &str = "Deleting";
    /// The machine is starting.
    pub const STARTING: &str = "Starting";
    /// The machine is powered off, as specified.
    pub const STOPPED: &str = "Stopped";
    /// The machine is running.
    pub const RUNNING: &str = "Running";
    /// A change takes effect at the next restart.
    pub const RESTART_REQUIRED: &str = "RestartRequired";
    /// The provider does not support a field, or cannot change it on an existing machine.
    pub const FIELD_NOT_SUPPORTED: &str = "FieldNotSupported";
    /// The annotation `vitistack.io/paused` stops reconciliation.
    pub const PAUSED: &str = "Paused";
    /// The Machine has the identity of another Machine and has not been adopted yet.
    pub const IDENTITY_HELD: &str = "IdentityHeld";
    /// Another machine or object at the provider already has the name.
    pub const NAME_TAKEN: &str = "NameTaken";
    /// The VirtualMachine exists.
    pub const VM_CREATED: &str = "VMCreated";
    /// The VirtualMachine could not be created or is not running.
    pub const VM_FAILED: &str = "VMFailed";
    /// Every PersistentVolumeClaim is bound.
    pub const PVC_BOUND: &str = "PVCBound";
    /// A PersistentVolumeClaim is not bound yet.
    pub const PVC_PENDING: &str = "PVCPending";
    /// Every network is configured.
    pub const NETWORK_CONFIGURED: &str = "NetworkConfigured";
    /// A network could not be configured.
    pub const NETWORK_FAILED: &str = "NetworkFailed";
    /// The MachineClass in `spec.template` was not found.
    pub const TEMPLATE_NOT_FOUND: &str = "TemplateNotFound";
    /// The spec is invalid in a way that the schema cannot detect.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// The Secret in `secretRef.name` was not found.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// The Secret does not have the key in `secretRef.key`.
    pub const SECRET_KEY_NOT_FOUND: &str = "SecretKeyNotFound";
    /// The NetworkConfiguration in `networkName` was not found.
    pub const NETWORK_CONFIGURATION_NOT_FOUND: &str = "NetworkConfigurationNotFound";
    /// The PersistentVolumeClaim in `source.claim` was not found.
    pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";
    /// The StorageClass in `storageClass` was not found.
    pub const STORAGE_CLASS_NOT_FOUND: &str = "StorageClassNotFound";
    /// The MachineProvider that is referred to was not found.
    pub const PROVIDER_NOT_FOUND: &str = "ProviderNotFound";
    /// The Datacenter that is referred to was not found.
    pub const DATACENTER_NOT_FOUND: &str = "DatacenterNotFound";
    /// The target of a reference from another namespace does not permit it.
    pub const REFERENCE_NOT_PERMITTED: &str = "ReferenceNotPermitted";
    /// What an object refers to is in a namespace that the operators do not watch.
    pub const NAMESPACE_NOT_WATCHED: &str = "NamespaceNotWatched";
    /// A Machine sets no provider and there is no default provider.
    pub const NO_DEFAULT_PROVIDER: &str = "NoDefaultProvider";
    /// A Machine sets no provider and there are several default providers.
    pub const SEVERAL_DEFAULT_PROVIDERS: &str = "SeveralDefaultProviders";
    /// The placement contradicts the references of the Machine.
    pub const PLACEMENT_NOT_PERMITTED: &str = "PlacementNotPermitted";
    /// The machine to adopt has disks that the spec does not list.
    pub const DISKS_NOT_LISTED: &str = "DisksNotListed";
    /// The provider is paused and accepts no machines.
    pub const PROVIDER_PAUSED: &str = "ProviderPaused";
    /// The provider does not respond.
    pub const PROVIDER_UNREACHABLE: &str = "ProviderUnreachable";
    /// The provider rejects the credentials, or they are not usable.
    pub const INVALID_CREDENTIALS: &str = "InvalidCredentials";
    /// The provider responds and accepts machines.
    pub const PROVIDER_READY: &str = "ProviderReady";
    /// No provider of the Datacenter accepts machines.
    pub const NO_USABLE_PROVIDER: &str = "NoUsableProvider";
    /// A Datacenter chose the provider of a Machine.
    pub const PLACED: &str = "Placed";
    /// A Datacenter chose another provider for a Machine that has no backing machine yet.
    pub const MOVED: &str = "Moved";
    /// A provider could not host a Machine and is not tried again for a while.
    pub const PASSED_OVER: &str = "PassedOver";
    /// A quota of the Datacenter is exhausted.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// No node or provider has enough capacity.
    pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
    /// The KubeVirt API rejected a request or did not respond.
    // backend: allow, a reason that the specification names
    pub const KUBEVIRT_API_ERROR: &str = "KubeVirtApiError";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: Option<bool>, message: &str) -> Statement<'_> {
        Statement { type_: "Ready", status, reason: "Because", message }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, &ready(Some(false), "not yet"), Some(1), at(1));
        set(&mut conditions, &ready(Some(false), "still not"), Some(2), at(2));
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert_eq!(conditions[0].message, "still not");
        assert_eq!(conditions[0].observed_generation, Some(2));
        set(&mut conditions, &ready(Some(true), "yes"), Some(2), at(3));
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn setting_the_same_condition_again_changes_nothing() {
        let mut conditions = Vec::new();
        set(&mut conditions, &ready(None, "unknown"), Some(1), at(1));
        let before = conditions.clone();
        set(&mut conditions, &ready(None, "unknown"), Some(1), at(9));
        assert_eq!(conditions, before);
    }

    #[test]
    fn order_is_preserved_and_duplicates_are_removed() {
        let mut conditions = Vec::new();
        for type_ in ["A", "Ready", "B"] {
            set(&mut conditions, &Statement { type_, ..ready(Some(true), "") }, None, at(1));
        }
        conditions.push(conditions[1].clone());
        set(&mut conditions, &ready(Some(false), "no"), None, at(2));
        let types: Vec<_> = conditions.iter().map(|each| each.type_.as_str()).collect();
        assert_eq!(types, ["A", "Ready", "B"]);
    }

    #[test]
    fn a_condition_is_found_by_its_type() {
        let mut conditions = Vec::new();
        assert_eq!(find(&conditions, "Ready"), None);
        set(&mut conditions, &ready(Some(true), "yes"), None, at(1));
        assert_eq!(find(&conditions, "Ready").unwrap().message, "yes");
        assert_eq!(find(&conditions, "Paused"), None);
    }

    #[test]
    fn only_a_true_condition_is_true() {
        let mut conditions = Vec::new();
        assert!(!is_true(&conditions, "Ready"));
        set(&mut conditions, &ready(None, ""), None, at(1));
        assert!(!is_true(&conditions, "Ready"));
        set(&mut conditions, &ready(Some(true), ""), None, at(1));
        assert!(is_true(&conditions, "Ready"));
    }
}

//! Condition types and reasons, by the words users see in `kubectl describe`, and how a condition is set.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

/// What a condition is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Type of the condition, for example `Ready`.
    pub type_: &'a str,
    /// `True`, `False` or, as `None`, `Unknown`.
    pub status: Option<bool>,
    /// Reason in `CamelCase`.
    pub reason: &'a str,
    /// Sentence for a person.
    pub message: &'a str,
}

/// Makes the conditions say this as of `generation`.
///
/// The transition time moves only with the status, so that saying the same again changes nothing. A condition keeps
/// its place; a type that is there twice, which only a foreign hand can have made, is there once afterwards.
pub fn set(
    conditions: &mut Vec<Condition>,
    statement: &Statement<'_>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = status_text(statement.status);
    let before = conditions.iter().find(|each| each.type_ == statement.type_);
    let last_transition_time = match before {
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
    let place = conditions.iter().position(|each| each.type_ == statement.type_).unwrap_or(conditions.len());
    conditions.retain(|each| each.type_ != statement.type_);
    conditions.insert(place.min(conditions.len()), condition);
}

/// Whether the condition is there and true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|each| each.type_ == type_ && each.status == "True")
}

fn status_text(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// Overall readiness; every kind has it.
pub const READY: &str = "Ready";

/// Whether the VirtualMachine of a Machine exists and runs.
pub const VIRTUAL_MACHINE_READY: &str = "VirtualMachineReady";

/// Whether the disks of a Machine are provisioned.
pub const STORAGE_READY: &str = "StorageReady";

/// Whether the networks of a Machine are configured.
pub const NETWORK_READY: &str = "NetworkReady";

/// Whether the real machine has everything that the spec says.
pub const UP_TO_DATE: &str = "UpToDate";

/// Whether every field that is set is acted on; told only while one is not.
pub const FIELDS_HONOURED: &str = "FieldsHonoured";

/// Whether a provider answers its health checks.
pub const REACHABLE: &str = "Reachable";

/// Whether the credentials of a provider are there and can be used; told only where it has some.
pub const CREDENTIALS_VALID: &str = "CredentialsValid";

/// Whether all action on the object is stopped by its annotation.
pub const PAUSED: &str = "Paused";

/// Why a condition is as it is.
pub mod reason {
    /// Everything is as it shall be.
    pub const AS_SPECIFIED: &str = "AsSpecified";
    /// It is being made.
    pub const CREATING: &str = "Creating";
    /// It is being changed.
    pub const UPDATING: &str = "Updating";
    /// It is being deleted.
    pub const DELETING: &str = "Deleting";
    /// It starts.
    pub const STARTING: &str = "Starting";
    /// It is powered off, as the spec says.
    pub const STOPPED: &str = "Stopped";
    /// It runs.
    pub const RUNNING: &str = "Running";
    /// A change takes effect with the next restart.
    pub const RESTART_REQUIRED: &str = "RestartRequired";
    /// The provider cannot honour a field, or not on a machine that exists.
    pub const FIELD_NOT_SUPPORTED: &str = "FieldNotSupported";
    /// The annotation stops all action.
    pub const PAUSED: &str = "Paused";
    /// The object carries the identity of another one and was not adopted yet.
    pub const IDENTITY_HELD: &str = "IdentityHeld";
    /// Something else has the name that the machine needs.
    pub const NAME_TAKEN: &str = "NameTaken";
    /// The VirtualMachine exists.
    pub const VM_CREATED: &str = "VMCreated";
    /// The VirtualMachine could not be made or does not run.
    pub const VM_FAILED: &str = "VMFailed";
    /// Every claim is bound.
    pub const PVC_BOUND: &str = "PVCBound";
    /// A claim is not bound yet.
    pub const PVC_PENDING: &str = "PVCPending";
    /// Every network is configured.
    pub const NETWORK_CONFIGURED: &str = "NetworkConfigured";
    /// A network could not be configured.
    pub const NETWORK_FAILED: &str = "NetworkFailed";
    /// `spec.template` names no template.
    pub const TEMPLATE_NOT_FOUND: &str = "TemplateNotFound";
    /// The spec lacks something that only other objects can show to be missing.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// `secretRef.name` names no Secret.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// `secretRef.key` is not in the Secret.
    pub const SECRET_KEY_NOT_FOUND: &str = "SecretKeyNotFound";
    /// `networkName` names no NetworkConfiguration.
    pub const NETWORK_CONFIGURATION_NOT_FOUND: &str = "NetworkConfigurationNotFound";
    /// `source.claim` names no claim.
    pub const SOURCE_NOT_FOUND: &str = "SourceNotFound";
    /// `storageClass` names no StorageClass.
    pub const STORAGE_CLASS_NOT_FOUND: &str = "StorageClassNotFound";
    /// A reference names no MachineProvider.
    pub const PROVIDER_NOT_FOUND: &str = "ProviderNotFound";
    /// A reference names no Datacenter.
    pub const DATACENTER_NOT_FOUND: &str = "DatacenterNotFound";
    /// A reference crosses namespaces and its target does not allow it.
    pub const REFERENCE_NOT_PERMITTED: &str = "ReferenceNotPermitted";
    /// A Machine names no provider and there is no default one.
    pub const NO_DEFAULT_PROVIDER: &str = "NoDefaultProvider";
    /// A Machine names no provider and there are several default ones.
    pub const SEVERAL_DEFAULT_PROVIDERS: &str = "SeveralDefaultProviders";
    /// The placement does not agree with what the Machine refers to.
    pub const PLACEMENT_NOT_PERMITTED: &str = "PlacementNotPermitted";
    /// The provider does not answer, or not yet.
    pub const PROVIDER_UNREACHABLE: &str = "ProviderUnreachable";
    /// The provider does not accept the credentials, or they are not usable.
    pub const INVALID_CREDENTIALS: &str = "InvalidCredentials";
    /// The provider answers and takes machines.
    pub const PROVIDER_READY: &str = "ProviderReady";
    /// No provider of the Datacenter can take machines.
    pub const NO_USABLE_PROVIDER: &str = "NoUsableProvider";
    /// A Datacenter chose the provider of a Machine.
    pub const PLACED: &str = "Placed";
    /// A Datacenter chose another provider for a Machine of which nothing was made yet.
    pub const MOVED: &str = "Moved";
    /// A quota of the Datacenter is full.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// No node or provider has room.
    pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
    /// KubeVirt's API refused or did not answer.
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
    fn the_transition_time_moves_only_with_the_status() {
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
    fn saying_the_same_again_changes_nothing() {
        let mut conditions = Vec::new();
        set(&mut conditions, &ready(None, "who knows"), Some(1), at(1));
        let before = conditions.clone();
        set(&mut conditions, &ready(None, "who knows"), Some(1), at(9));
        assert_eq!(conditions, before);
    }

    #[test]
    fn order_is_kept_and_duplicates_go() {
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
    fn only_a_true_condition_is_true() {
        let mut conditions = Vec::new();
        assert!(!is_true(&conditions, "Ready"));
        set(&mut conditions, &ready(None, ""), None, at(1));
        assert!(!is_true(&conditions, "Ready"));
        set(&mut conditions, &ready(Some(true), ""), None, at(1));
        assert!(is_true(&conditions, "Ready"));
    }
}

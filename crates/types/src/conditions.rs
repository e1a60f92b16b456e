//! Condition types and reasons, by the words users see in `kubectl describe`.

/// Overall readiness; every kind has it.
pub const READY: &str = "Ready";

/// Whether the VirtualMachine of a Machine exists and runs.
pub const VIRTUAL_MACHINE_READY: &str = "VirtualMachineReady";

/// Whether the disks of a Machine are provisioned.
pub const STORAGE_READY: &str = "StorageReady";

/// Whether the networks of a Machine are configured.
pub const NETWORK_READY: &str = "NetworkReady";

/// Whether all action on the object is stopped by its annotation.
pub const PAUSED: &str = "Paused";

/// Why a condition is as it is.
pub mod reason {
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
    /// `networkName` names no NetworkConfiguration.
    pub const NETWORK_CONFIGURATION_NOT_FOUND: &str = "NetworkConfigurationNotFound";
    /// `storageClass` names no StorageClass.
    pub const STORAGE_CLASS_NOT_FOUND: &str = "StorageClassNotFound";
    /// No node, provider or quota has room.
    pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
    /// KubeVirt's API refused or did not answer.
    pub const KUBEVIRT_API_ERROR: &str = "KubeVirtApiError";
}

//! Sample manifests: those of the specification, unchanged, and one for each kind that it has no sample of.

/// One sample manifest.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// File name without its extension.
    pub name: &'static str,
    /// The manifest, one or more YAML documents.
    pub manifest: &'static str,
}

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(Sample { name: $name, manifest: include_str!(concat!("../samples/", $name, ".yaml")) }),*]
    };
}

/// All samples, in an order in which they can be applied.
#[must_use]
pub fn samples() -> &'static [Sample] {
    samples![
        "datacenter-single-cloud",
        "datacenter-multi-cloud",
        "datacenter-hybrid",
        "datacenter-edge",
        "deployment-models",
        "machine-provider-simulated",
        "machine-provider-kubevirt",
        "machine-class",
        "network-configurations",
        "machine-basic",
        "machine-with-overrides",
        "machine-with-networking",
        "machine-with-cloud-init",
        "machine-every-field",
    ]
}

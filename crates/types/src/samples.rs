//! Sample manifests: those of the specification to the letter, and one for each kind it shows none of.

/// One sample manifest.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// File name, without the ending.
    pub name: &'static str,
    /// The manifest, one or more YAML documents.
    pub manifest: &'static str,
}

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(Sample { name: $name, manifest: include_str!(concat!("../samples/", $name, ".yaml")) }),*]
    };
}

/// Every sample, in an order in which they can be applied.
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

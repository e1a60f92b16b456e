//! What a backend can do. Decisions look at this and never at a backend's name.

use serde::Serialize;

/// How a backend carries out a kind of change on a machine that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Support {
    /// At once, while it runs.
    InPlace,
    /// It is stored at once and takes effect with the next restart.
    AtRestart,
    /// Never; a machine that needs it has to be made anew.
    Never,
}

/// What a backend can do. Honest: the conformance suite tries every line of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// More or fewer processors, more or less memory.
    pub resize: Support,
    /// A larger disk.
    pub grow_disk: Support,
    /// Another disk, or one less.
    pub change_disks: Support,
    /// Another interface, one less, or another network or model.
    pub change_interfaces: Support,
    /// Boot order, firmware, features, board.
    pub change_hardware: Support,
    /// Whether a machine can be switched off and kept.
    pub power: bool,
    /// Whether a new machine honours a zone.
    pub zones: bool,
    /// Fields of the spec (paths such as `domain.features.hyperv`) that it cannot honour at all. A Machine that sets one is
    /// told so in a condition that names it.
    pub refused_fields: Vec<&'static str>,
}

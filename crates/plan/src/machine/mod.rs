//! What should happen to one machine.
//!
//! [`resolve`] turns a Machine and what it refers to into a [`Desired`] state that is always valid, or a refusal with the
//! fix. A backend returns the [`Observed`] state. [`plan`] compares the two, by the backend's [`Capabilities`] and never by
//! its name, and returns steps, status, events and when to reconcile again.

mod adoption;
mod capability;
mod checks;
mod decide;
mod desired;
mod failure;
mod lane;
mod locate;
mod observed;
mod permitted;
mod plan;
mod release;
mod resolve;
mod status;
mod step;
mod template;

pub use adoption::{Adoption, adoption};
pub use capability::{Capabilities, Support};
pub use checks::Checks;
pub(crate) use decide::{annotation, has_own_identity, refusal_before_provider};
pub use decide::{identity, is_placed_by_datacenter};
pub use desired::{
    AttachedNetwork, CpuShape, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, Identity, SecretPart,
};
pub use failure::{AfterFailure, ErrorKind, StepFailure, StepResult};
pub use lane::is_settled;
pub use locate::{
    Location, PlacementContext, datacenter_of, has_finalizer, is_held_by_others, locate,
    may_have_backing_machine, placement, placement_in, provider_of,
};
pub(crate) use locate::{has_platform_provider, is_default};
pub use observed::{Elsewhere, Observed, ObservedDisk, ObservedMachine, Power, Problem};
pub use permitted::check_namespace;
pub use plan::{MachinePlan, Snapshot, plan, plan_refused};
pub use release::{NotReleasable, release};
pub use resolve::{References, resolve};
pub(crate) use resolve::{problems, shape};
pub(crate) use status::{not_ready_while_paused, paused};
pub use step::{Action, Part, Step, Update};

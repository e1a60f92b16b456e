//! What should happen to one machine.
//!
//! [`resolve`] turns a Machine and what it refers to into a [`Desired`] that cannot hold a bad state, or a refusal with
//! the fix. A backend answers what there is with an [`Observed`]. What is between the two is decided from
//! [`Capabilities`], never by asking which backend it is. [`decide`] says what is to be done, [`status`] what is told.

mod adoption;
mod capability;
mod desired;
mod lifecycle;
mod locate;
mod observed;
mod release;
mod resolve;
mod status;
mod step;
mod template;

pub use adoption::{Adoption, adoption};
pub use capability::{Capabilities, Support};
pub use desired::{
    AttachedNetwork, CpuShape, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, Identity, SecretPart,
};
pub use lifecycle::{Decision, Snapshot, Verdict, decide, identity, is_placed_by_datacenter};
pub(crate) use lifecycle::{annotation, has_own_identity};
pub use locate::{Location, Places, full_name, has_finalizer, is_let_go, locate, may_be_made, placement};
pub use observed::{Elsewhere, Observed, ObservedDisk, ObservedMachine, Power, Problem};
pub use release::{Kept, release};
pub(crate) use resolve::shape;
pub use resolve::{References, resolve};
pub(crate) use status::paused_statements;
pub use status::status;
pub use step::{Action, Part, Step, Update};

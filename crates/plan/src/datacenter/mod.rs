//! What should happen in one datacenter: who is within its quotas, and which provider a machine goes to.

mod placement;
mod quota;

pub use placement::{Candidate, Placement, place};
pub use quota::{Claim, Usage, admit};

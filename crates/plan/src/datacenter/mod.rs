//! What should happen in one datacenter: who is within its quotas, and which provider a machine goes to.

mod candidate;
mod passed_over;
mod placement;
mod quota;
mod round;
mod status;
mod usage;

pub use candidate::{candidate, zone_of};
pub use passed_over::{Fullness, is_passed_over_by, pass_over};
pub use placement::{Candidate, Placement, Problem, Request, place};
pub use quota::{Claim, admit};
pub use round::{Assignment, Decision, Member, Snapshot, Verdict, annotations, decide};
pub use status::{datacenter_status, missing_datacenter, paused_machine, refused_machine};
pub use usage::{Usage, usage_of};

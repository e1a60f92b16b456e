//! What should happen in one datacenter: which machines fit its quotas, and which provider hosts each of them.

mod allocate;
mod candidate;
mod choose;
mod growth;
mod passed_over;
mod plan;
mod quota;
mod status;
mod trigger;
mod usage;

pub use allocate::{Assignment, Member, Snapshot};
pub(crate) use allocate::{MemberDecision, allocate};
pub use candidate::{candidate, zone_of};
pub use choose::{Candidate, Choice, Problem, Request, choose};
pub use growth::{check_growth, hosted_usage};
pub use passed_over::{Fullness, is_passed_over_by, pass_over};
pub(crate) use plan::orphaned;
pub use plan::{DatacenterPlan, MemberAction, MemberStep, only_totals_changed, plan, plan_orphan};
pub use quota::{Admission, Claim, admit};
pub(crate) use status::paused_datacenter;
pub use trigger::MachineChange;
pub use usage::{Usage, usage_of};

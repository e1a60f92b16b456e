//! Clients of external APIs. Nothing here depends on the kinds of VitiStack.

pub mod egress;
pub mod kubernetes;

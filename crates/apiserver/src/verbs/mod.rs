//! One file for each verb.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod scale;
pub mod update;
pub mod watch;
pub mod write;

//! Kubeconfigs and clusters that are made to do harm.

mod answers;
mod kubeconfigs;

//! Whose work an object is.

/// Whose work an object is, and which other system it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    /// Who the object belongs to, usually its namespace. Tenants take turns.
    pub tenant: String,
    /// The system whose answers a reconcile waits for, besides the Kubernetes API. A system that does not answer in time
    /// delays no object of another one.
    pub system: Option<String>,
}

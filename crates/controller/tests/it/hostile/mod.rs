//! Tenants and providers that are made to do harm.

mod credentials;
mod growth;
mod hanging;

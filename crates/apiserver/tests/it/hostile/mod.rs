//! Requests of hostile clients: each would end the server, stop it for others, or get around its checks.

mod patches;
mod requests;
mod rules;
mod sockets;
mod storage;
mod work;

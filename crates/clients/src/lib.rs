//! Wire clients of foreign APIs. Nothing here knows the kinds of VitiStack.

pub mod kubernetes;

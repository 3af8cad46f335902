//! Forwarders of our own: the fault injector, which does known things to packets, and the redirecting
//! XDP program.

pub mod fault;
mod limit;
mod ports;
pub mod redirect;

pub use limit::Limit;
pub use ports::PortsError;

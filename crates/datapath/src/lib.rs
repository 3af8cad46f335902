//! The privileged part of tailtap: the traffic generator, the eBPF taps and the fault-injecting
//! forwarder.
//!
//! [`tap`], [`hardware`], [`generate`] and [`forward`] are the operations, one file or folder and
//! one error enum each; everything else here serves them. All work in the network namespace of the
//! calling thread, take times from CLOCK_MONOTONIC (but for stamps of cards), and stop on SIGINT or
//! SIGTERM with a full report.

#[cfg(not(target_endian = "little"))]
compile_error!("the stamp ring and the stamp file are little-endian");

mod af_xdp;
mod arrival;
pub mod clock;
pub mod cpu;
pub mod device;
pub mod forward;
pub mod generate;
pub mod hardware;
pub mod interface;
pub mod packet;
mod program;
pub mod replay;
mod ring;
pub mod schedule;
pub mod signals;
pub mod slip;
mod socket;
pub mod tap;
pub mod tapfile;
pub mod template;
pub mod writer;
pub mod xdp;

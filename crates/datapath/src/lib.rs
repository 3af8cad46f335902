//! The privileged part of tailtap. Each operation is a folder:
//!
//! - [`tap`]: taps on links, by eBPF programs, and stamps by network cards.
//! - [`trace`]: what the kernel did on chosen cores meanwhile.
//! - [`generate`]: the traffic generator, which sends through a [`device`].
//! - [`load`]: what a neighbour of the device does to a CPU.
//! - [`noise`]: what takes a core that is idle.
//! - [`forward`]: the forwarders that are ours: the fault injector and the redirecting XDP program.
//!
//! `bpf` loads and attaches eBPF programs for them. All work in the network namespace of the calling
//! thread, but for taps that name another one ([`namespace`]). They take times from CLOCK_MONOTONIC (but
//! for stamps of cards), and stop on SIGINT or SIGTERM with a full report.

use std::error::Error;

#[cfg(not(target_endian = "little"))]
compile_error!("the stamp ring and the stamp file are little-endian");

pub mod audit;
pub mod bpf;
pub mod clock;
pub mod cpu;
pub mod device;
mod file;
pub mod forward;
pub mod generate;
pub mod interface;
pub mod load;
pub mod namespace;
pub mod noise;
pub mod privileges;
mod ring;
pub mod signals;
mod socket;
pub mod tap;
pub mod trace;

/// Called by an operation once it has begun: taps are attached, packets are forwarded.
pub type OnReady<'a> = dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

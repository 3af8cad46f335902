//! Why a trace could not be taken.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use super::{MAX_CPUS, MAX_RECORDS};
use crate::bpf::BpfError;
use crate::cpu::CpuError;

/// A trace could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The ring would be empty or too large.
    #[error("{records} records are not possible: give --records a number from 1 to {MAX_RECORDS}")]
    Records {
        /// The number asked for.
        records: u64,
    },
    /// No such CPU.
    #[error(
        "CPU {cpu} cannot be traced: it does not exist or is offline (choose others with --cpus; at \
         most {MAX_CPUS} CPUs can be told from each other)"
    )]
    Cpus {
        /// The CPU asked for.
        cpu: usize,
    },
    /// The kernel does not describe its structures.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux, by which the tracer reads its structures: use a \
         kernel with CONFIG_DEBUG_INFO_BTF, as those of distributions are"
    )]
    NoTypes,
    /// The CPU of the thread that writes cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The eBPF programs cannot be used.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// No memory for the ring.
    #[error(
        "no memory for {records} records of 32 B for each CPU in the kernel: give a lower number to --records"
    )]
    Memory {
        /// The number asked for.
        records: u64,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's function failed.
    #[error("{0}")]
    Ready(Box<dyn Error + Send + Sync>),
}

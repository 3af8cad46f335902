//! Why a tap could not do its work.

use std::error::Error;
use std::io;

use tailtap_analysis::key::KeyKind;
use tailtap_analysis::marks::MOST_LEVEL;

use super::writer::WriteError;
use super::{MAX_RECORDS, MAX_SNAP};
use crate::bpf::BpfError;
use crate::cpu::CpuError;
use crate::interface::InterfaceError;
use crate::namespace::NamespaceError;

/// A tap could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The ring would be empty or too large.
    #[error("{records} records are not possible: give --records a number from 1 to {MAX_RECORDS}")]
    Records {
        /// The number asked for.
        records: u64,
    },
    /// The snap length is out of range.
    #[error("a snap length of {snap} B is not possible: give --snap-length 1 B to {MAX_SNAP} B")]
    Snap {
        /// The length asked for.
        snap: u32,
    },
    /// A key, and packets as a whole.
    #[error(
        "--key is for stamp files: a pcap has the packets themselves, so give the key when it is \
         evaluated"
    )]
    KeyOfPackets,
    /// Marks without a key.
    #[error(
        "marks are hashes of a key: give --hash packet-nat (or packet, packet-flow, packet-payload, \
         packet-id), or --hash {link}=KEY for this link"
    )]
    NoHash {
        /// The link.
        link: String,
    },
    /// A key of which marks keep too little.
    #[error(
        "--hash {key} is not possible: a mark keeps 64 bits of a packet, and this key needs its bytes; \
         write a pcap, or give packet, packet-nat, packet-flow, packet-payload, packet-id, moonsniff or \
         a number"
    )]
    NoMarks {
        /// The key.
        key: KeyKind,
    },
    /// A key that the kernel's side does not find.
    #[error(
        "samples are chosen where packets pass, and '{key}' is not found there: give --hash packet-nat \
         or another key of packets, moonsniff, or a number at a place of the frame (42:4:le)"
    )]
    NoSample {
        /// The key.
        key: KeyKind,
    },
    /// A sample that is too thin.
    #[error(
        "a sample of 1/{of} is not possible: give --sample 1/1 to 1/{}",
        1 << MOST_LEVEL
    )]
    Sample {
        /// How many packets there are for each that is stamped.
        of: u64,
    },
    /// A budget for files that do not say of what samples they are.
    #[error(
        "--budget is for marks, whose file says when the sample changed: write to a .marks file"
    )]
    Budget,
    /// A place in frames of Ethernet, and an interface that has none.
    #[error(
        "packets of {interface} begin with IP: a number at a place of the frame is not in them; give \
         another key, such as packet-nat"
    )]
    NoFrame {
        /// The interface.
        interface: String,
    },
    /// A filter of frames of Ethernet, and an interface that has none.
    #[error(
        "packets of {interface} begin with IP, and the filter asks for what only frames of Ethernet \
         have: leave that out"
    )]
    FilterOfFrames {
        /// The interface.
        interface: String,
    },
    /// A network namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The CPU cannot be used.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The eBPF program cannot be used.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// No memory for the ring.
    #[error(
        "no memory for {records} records of {size} B in the kernel: give a lower number to {}",
        if *size > 16 { "--records or --snap-length" } else { "--records" }
    )]
    Memory {
        /// The number asked for.
        records: u64,
        /// Bytes of each.
        size: usize,
    },
    /// A file could not be created.
    #[error(transparent)]
    Create(WriteError),
    /// A file could not be written to its end.
    #[error("{error}: {kept}")]
    Write {
        /// Where and why.
        error: WriteError,
        /// How many of the packets that the tap saw are in all files of the link.
        kept: String,
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

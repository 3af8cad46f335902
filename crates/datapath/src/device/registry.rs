//! The kinds of devices that a generator can be told to use.

use std::io;

use super::Device;
use super::af_packet::AfPacket;
use super::af_xdp::{AfXdp, AfXdpError};
use crate::interface::Interface;
use crate::signals::StopSignals;

/// Which kind to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// A packet socket: one system call a packet.
    AfPacket {
        /// Past the queueing discipline of the interface and the hook before it.
        bypass: bool,
    },
    /// An AF_XDP socket: rings shared with the kernel.
    AfXdp,
}

/// A device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The privilege is missing.
    #[error(
        "the kernel does not permit sending raw frames: run as root (or with CAP_NET_RAW \
         and CAP_NET_ADMIN)"
    )]
    NotPermitted,
    /// AF_XDP cannot be used.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// The system refused something else.
    #[error("cannot open a packet socket: {0}")]
    System(io::Error),
}

/// Opens a `queue` of an interface for frames of up to `largest` bytes, without FCS; a packet socket's is
/// that which the kernel has for the CPU. `count` such devices share what one may take of the machine's
/// memory. What it waits for is not waited for any more once a
/// stop is asked for.
pub fn open(
    back_end: BackEnd,
    interface: &Interface,
    largest: usize,
    count: usize,
    queue: u32,
    signals: &StopSignals,
) -> Result<Box<dyn Device + Send>, DeviceError> {
    match back_end {
        BackEnd::AfPacket { bypass } => match AfPacket::open(interface, bypass) {
            Ok(device) => Ok(Box::new(device)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(DeviceError::NotPermitted)
            }
            Err(error) => Err(DeviceError::System(error)),
        },
        BackEnd::AfXdp => match AfXdp::open(interface, largest, count, queue, signals) {
            Err(AfXdpError::NotPermitted) => Err(DeviceError::NotPermitted),
            other => Ok(Box::new(other?)),
        },
    }
}

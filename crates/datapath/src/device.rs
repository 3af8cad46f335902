//! The back ends of the generator: ways to hand frames to a network device.

use std::io;

use crate::af_xdp::AfXdp;
pub use crate::af_xdp::AfXdpError;
use crate::interface::Interface;
use crate::socket::PacketSocket;

/// One way to hand frames to a network device. Frames are put into a queue first, which takes no
/// system call, and then handed over all at once: the time of the second step is when they leave.
pub trait Device {
    /// How many frames the queue holds.
    fn room(&self) -> usize;

    /// Puts a copy of a frame, without FCS, into the queue, which has room for it.
    fn push(&mut self, frame: &[u8]);

    /// Hands the queue over, waiting for nobody. Returns how many of its frames the device did
    /// not take.
    fn flush(&mut self) -> usize;

    /// How the device takes frames, where there are several ways.
    fn mode(&self) -> Option<Mode> {
        None
    }
}

/// How AF_XDP hands frames over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver sends from our memory (zero copy).
    Native,
    /// The kernel makes packets of its own from our memory; works on every interface.
    Generic,
}

impl Mode {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Which back end to use.
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

/// Opens an interface for frames of up to `largest` bytes, without FCS.
pub fn open(
    back_end: BackEnd,
    interface: &Interface,
    largest: usize,
) -> Result<Box<dyn Device>, DeviceError> {
    match back_end {
        BackEnd::AfPacket { bypass } => match PacketSocket::sender(interface, bypass) {
            Ok(socket) => {
                Ok(Box::new(AfPacket { socket, frames: vec![Vec::new(); BATCH], queued: 0 }))
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(DeviceError::NotPermitted)
            }
            Err(error) => Err(DeviceError::System(error)),
        },
        BackEnd::AfXdp => match AfXdp::open(interface, largest) {
            Err(AfXdpError::NotPermitted) => Err(DeviceError::NotPermitted),
            other => Ok(Box::new(other?)),
        },
    }
}

/// Packets that are handed over in one system call when the generator is behind.
const BATCH: usize = 32;

/// A packet socket. A packet that is due alone is a system call alone, the shortest way; several
/// share one, and each still tells whether the device took it.
struct AfPacket {
    socket: PacketSocket,
    frames: Vec<Vec<u8>>,
    queued: usize,
}

impl Device for AfPacket {
    fn room(&self) -> usize {
        BATCH
    }

    fn push(&mut self, frame: &[u8]) {
        let place = &mut self.frames[self.queued];
        place.clear();
        place.extend_from_slice(frame);
        self.queued += 1;
    }

    fn flush(&mut self) -> usize {
        let frames = &self.frames[..std::mem::take(&mut self.queued)];
        match frames {
            [frame] => usize::from(self.socket.send(frame).is_err()),
            frames => self.socket.send_all(frames),
        }
    }
}

//! Devices: ways to hand frames to a network. [`registry`] lists the kinds that a user can choose;
//! [`loopback`] and [`faults`] need no network.

pub mod af_packet;
pub mod af_xdp;
pub mod faults;
pub mod loopback;
pub mod registry;

use serde::Serialize;

/// One way to hand frames to a network. Frames are put into a queue first, which takes no system
/// call, and then handed over all at once: the time of the second step is when they leave.
pub trait Device {
    /// How many frames the queue holds.
    fn room(&self) -> usize;

    /// Puts a copy of a frame, without FCS, into the queue, which has room for it.
    fn push(&mut self, frame: &[u8]);

    /// Hands the queue over, waiting for nobody. Returns how many frames the device did not take,
    /// each once.
    fn flush(&mut self) -> usize;

    /// Waits a moment for frames that were handed over and are still under way. Returns how many of
    /// them will never leave.
    fn finish(&mut self) -> usize {
        0
    }

    /// Whether the device is gone and will never take a frame again.
    fn is_gone(&self) -> bool {
        false
    }

    /// How the device takes frames, where there are several ways.
    fn mode(&self) -> Option<Mode> {
        None
    }
}

/// How AF_XDP hands frames over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The driver sends from our memory (zero copy).
    Native,
    /// The kernel makes packets of its own from our memory; works on every interface.
    Generic,
}

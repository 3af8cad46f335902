//! Packet sockets: one system call a packet.

use std::io;

use super::Device;
use crate::interface::Interface;
use crate::socket::PacketSocket;

/// Packets that are handed over in one system call when the generator is behind.
const BATCH: usize = 32;

/// A packet socket. A packet that is due alone is a system call alone, the shortest way; several
/// share one, and each still tells whether the device took it.
pub struct AfPacket {
    socket: PacketSocket,
    interface: Interface,
    frames: Vec<Vec<u8>>,
    queued: usize,
}

impl AfPacket {
    /// Opens an interface; with `bypass` past its queueing discipline and the hook before it.
    pub fn open(interface: &Interface, bypass: bool) -> io::Result<Self> {
        Ok(Self {
            socket: PacketSocket::sender(interface, bypass)?,
            interface: interface.clone(),
            frames: vec![Vec::new(); BATCH],
            queued: 0,
        })
    }
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

    fn is_gone(&self) -> bool {
        !self.interface.exists()
    }
}

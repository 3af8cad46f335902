//! Packet sockets that send frames straight to a device.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with};

use crate::cpu::check;
use crate::interface::Interface;

/// Buffer of a sending socket in bytes, as the kernel counts: a million small frames.
const SEND_BUFFER: i32 = 1 << 29;

/// Sets an option of a socket.
pub(crate) fn set_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket that only sends: straight to the device if `bypass`, which is quicker, else
    /// through its queueing discipline and past its egress hook.
    pub fn sender(interface: &Interface, bypass: bool) -> io::Result<Self> {
        let socket = Self::open()?;
        socket.set(libc::PACKET_QDISC_BYPASS, &i32::from(bypass))?;
        // Frames count against the socket's buffer until somebody frees them. On virtual links
        // that is the receiver, so a small buffer would let a slow device under test hold the
        // sender back: the loop must stay open, and what the device cannot take is its loss.
        socket.set_at(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        // With protocol 0 the socket receives nothing.
        socket.bind(interface, 0)?;
        Ok(socket)
    }

    /// A socket that receives every frame that arrives at the interface, whatever its address,
    /// and none that leaves through it. `buffer` is its size in bytes, as the kernel counts.
    pub fn receiver(interface: &Interface, buffer: i32) -> io::Result<Self> {
        let socket = Self::open()?;
        socket.set_at(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer)?;
        socket.set(libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        socket.set(libc::PACKET_AUXDATA, &1i32)?;
        // SAFETY: a zeroed request is valid.
        let mut membership: libc::packet_mreq = unsafe { zeroed() };
        membership.mr_ifindex = interface.index;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        socket.set(libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        socket.bind(interface, libc::ETH_P_ALL as u16)?;
        Ok(socket)
    }

    fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, None)?))
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    pub(crate) fn set_at<T>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        value: &T,
    ) -> io::Result<()> {
        set_option(&self.0, level, option, value)
    }

    fn bind(&self, interface: &Interface, protocol: u16) -> io::Result<()> {
        // SAFETY: a zeroed address is valid; pointer and length describe it.
        check(unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol.to_be();
            address.sll_ifindex = interface.index;
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// Sends one frame, without FCS. Does not wait for room in the device.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.0, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Sends up to 64 frames, without FCS, in one system call if all goes well. Returns how many
    /// the device did not take.
    pub fn send_all(&self, frames: &[Vec<u8>]) -> usize {
        const MOST: usize = 64;
        let count = frames.len().min(MOST);
        // SAFETY: zeroes are valid for both; the parts and messages point to memory that lives
        // until the calls return.
        unsafe {
            let mut parts: [libc::iovec; MOST] = zeroed();
            let mut messages: [libc::mmsghdr; MOST] = zeroed();
            for ((part, message), frame) in parts.iter_mut().zip(&mut messages).zip(frames) {
                part.iov_base = frame.as_ptr().cast_mut().cast();
                part.iov_len = frame.len();
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
            }
            let (mut done, mut failed) = (0, 0);
            while done < count {
                let sent = libc::sendmmsg(
                    self.0.as_raw_fd(),
                    messages[done..].as_mut_ptr(),
                    (count - done) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                );
                // The call ends at a frame that was not taken, and says so when it is the first.
                done += if sent > 0 { sent as usize } else { 1 };
                failed += usize::from(sent <= 0);
            }
            failed
        }
    }

    /// Frames that the kernel dropped for lack of room since the last call.
    pub fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: pointer and length describe `statistics`.
        unsafe {
            let mut statistics: libc::tpacket_stats = zeroed();
            let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
            check(libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            ))?;
            Ok(u64::from(statistics.tp_drops))
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

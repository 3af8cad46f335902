//! Stamps from the control messages of a packet socket (SO_TIMESTAMPING), which every driver with
//! hardware stamps fills in.
//!
//! Documentation/networking/timestamping.rst: three times come with a packet, of which the first is
//! the kernel's and the third is the raw one of the card.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};

use tailtap_analysis::stamps::Clock;
use tailtap_wire::vlan;

use super::{Received, Source, Stamper};
use crate::interface::Interface;
use crate::socket::PacketSocket;

/// SO_TIMESTAMPING of <asm-generic/socket.h>, which is also the type of the control message. (With
/// 64-bit times, as on all 64-bit machines.)
const SO_TIMESTAMPING: libc::c_int = 37;
/// Room for packets that wait for us, in bytes as the kernel counts: some hundred thousand.
const BUFFER: i32 = 1 << 28;
/// Packets that are received in one system call.
const BATCH: usize = 64;
/// System calls after which others get their turn.
const BATCHES: usize = 64;
/// Bytes of each packet that we look at.
const CAPTURED: usize = 128;
/// Room for the control messages of a packet: times, and what tags were taken out.
const CONTROL: usize = 256;

/// The three times of struct scm_timestamping.
type Times = [libc::timespec; 3];

/// Memory for control messages, aligned for their headers.
#[derive(Clone)]
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// A socket that receives packets with their stamps.
pub struct Messages {
    socket: PacketSocket,
    /// Which of the times is asked for.
    time: usize,
    bytes: Vec<[u8; CAPTURED]>,
    control: Vec<Control>,
    dropped: u64,
}

impl Messages {
    /// Listens to an interface.
    pub fn open(interface: &Interface, stamper: Stamper) -> io::Result<Self> {
        let socket = PacketSocket::receiver(interface, BUFFER)?;
        let (flags, time) = match stamper {
            Stamper::Card => {
                (libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE, 2)
            }
            Stamper::Kernel => {
                (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE, 0)
            }
        };
        socket.set_at(libc::SOL_SOCKET, SO_TIMESTAMPING, &flags)?;
        Ok(Self {
            socket,
            time,
            bytes: vec![[0; CAPTURED]; BATCH],
            control: vec![Control([0; CONTROL]); BATCH],
            dropped: 0,
        })
    }

    /// Receives up to [`BATCH`] packets; returns how many there were.
    fn receive(&mut self, each: &mut dyn FnMut(Received<'_>)) -> io::Result<usize> {
        // SAFETY: zeroes are valid; all pointers point to memory that lives until the end.
        unsafe {
            let mut parts: [libc::iovec; BATCH] = zeroed();
            let mut messages: [libc::mmsghdr; BATCH] = zeroed();
            for (number, message) in messages.iter_mut().enumerate() {
                parts[number].iov_base = self.bytes[number].as_mut_ptr().cast();
                parts[number].iov_len = CAPTURED;
                message.msg_hdr.msg_iov = &raw mut parts[number];
                message.msg_hdr.msg_iovlen = 1;
                message.msg_hdr.msg_control = self.control[number].0.as_mut_ptr().cast();
                message.msg_hdr.msg_controllen = CONTROL as _;
            }
            let count = libc::recvmmsg(
                self.socket.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                // With MSG_TRUNC the length is that of the packet, not of what we took of it.
                (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            );
            if count < 0 {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => Ok(0),
                    _ => Err(error),
                };
            }
            let count = count as usize;
            for (message, bytes) in messages[..count].iter().zip(&self.bytes) {
                let len = message.msg_len as usize;
                let (times, tagged) = told(&message.msg_hdr);
                each(Received {
                    bytes: &bytes[..len.min(CAPTURED)],
                    len: len + if tagged { vlan::LEN } else { 0 },
                    time_ns: times.and_then(|times| nanoseconds(times[self.time])),
                });
            }
            Ok(count)
        }
    }
}

impl Source for Messages {
    fn take(&mut self, each: &mut dyn FnMut(Received<'_>)) -> io::Result<bool> {
        // Bounded, so that a flood does not keep us from stopping.
        for _ in 0..BATCHES {
            if self.receive(each)? < BATCH {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn dropped(&mut self) -> io::Result<u64> {
        // The kernel's counter starts again when it is read.
        self.dropped += self.socket.take_drops()?;
        Ok(self.dropped)
    }

    fn close(&mut self) -> io::Result<()> {
        // A filter that wants nothing: the socket keeps what waits and receives no more.
        let mut nothing =
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
        self.socket.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    fn clock(&self, stamper: Stamper) -> Clock {
        match stamper {
            Stamper::Card => Clock::Hardware,
            Stamper::Kernel => Clock::Realtime,
        }
    }
}

/// The times that came with a packet, and whether the kernel took a tag out of it.
///
/// # Safety
/// The header's control messages must be as recvmsg left them.
unsafe fn told(header: &libc::msghdr) -> (Option<Times>, bool) {
    let (mut times, mut tagged) = (None, false);
    // SAFETY: the caller's promise; each message is looked at only if it is long enough.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let len = message.cmsg_len - libc::CMSG_LEN(0) as usize;
            let data = libc::CMSG_DATA(next);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::SOL_SOCKET, SO_TIMESTAMPING) if len >= size_of::<Times>() => {
                    times = Some(data.cast::<Times>().read_unaligned());
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA)
                    if len >= size_of::<libc::tpacket_auxdata>() =>
                {
                    let status = data.cast::<libc::tpacket_auxdata>().read_unaligned().tp_status;
                    tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    (times, tagged)
}

/// A time in nanoseconds; `None` for zero, which stands for no stamp.
fn nanoseconds(time: libc::timespec) -> Option<u64> {
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    (ns != 0).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control message as the kernel lays it out.
    fn message(level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> (Option<Times>, bool) {
        let mut control = Control([0; CONTROL]);
        control.0[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: zeroes are a valid header, and the messages are laid out as the kernel does.
        unsafe {
            let mut header: libc::msghdr = zeroed();
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = bytes.len() as _;
            told(&header)
        }
    }

    fn times(words: [i64; 6]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn the_raw_time_of_the_card_is_the_third() {
        let stamped = times([1, 2, 0, 0, 3, 999_999_999]);
        let (found, tagged) = read(&message(libc::SOL_SOCKET, SO_TIMESTAMPING, &stamped));
        let found = found.expect("times");
        assert!(!tagged);
        assert_eq!(nanoseconds(found[0]), Some(1_000_000_002));
        assert_eq!(nanoseconds(found[1]), None);
        assert_eq!(nanoseconds(found[2]), Some(3_999_999_999));
    }

    #[test]
    fn tags_are_told_beside_the_times_in_any_order() {
        // SAFETY: zeroes are valid.
        let mut data: libc::tpacket_auxdata = unsafe { zeroed() };
        data.tp_status = libc::TP_STATUS_VLAN_VALID;
        // SAFETY: plain bytes of a plain structure.
        let data = unsafe {
            std::slice::from_raw_parts((&raw const data).cast::<u8>(), size_of_val(&data))
        };
        let tag = message(libc::SOL_PACKET, libc::PACKET_AUXDATA, data);
        let time = message(libc::SOL_SOCKET, SO_TIMESTAMPING, &times([7, 0, 0, 0, 0, 0]));
        for both in [[tag.clone(), time.clone()].concat(), [time, tag].concat()] {
            let (found, tagged) = read(&both);
            assert!(tagged);
            assert_eq!(nanoseconds(found.expect("times")[0]), Some(7_000_000_000));
        }
    }

    #[test]
    fn other_and_short_messages_are_no_times() {
        for bytes in [
            vec![],
            message(libc::SOL_SOCKET, SO_TIMESTAMPING, &times([1, 2, 3, 4, 5, 6])[..40]),
            message(libc::SOL_SOCKET, SO_TIMESTAMPING + 1, &times([1; 6])),
            message(libc::SOL_PACKET, SO_TIMESTAMPING, &times([1; 6])),
        ] {
            let (found, tagged) = read(&bytes);
            assert!(found.is_none() && !tagged);
        }
    }
}

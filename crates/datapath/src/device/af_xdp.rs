//! AF_XDP sockets that only send: frames lie in memory shared with the kernel (the UMEM), and
//! their places go through a ring to the kernel and come back through another one.
//!
//! The layout is that of <linux/if_xdp.h>, described in Documentation/networking/af_xdp.rst of the
//! kernel. Nothing is received. Where the driver itself takes frames from our memory (zero copy), it
//! may do so only while an XDP program is attached: that of igb cards, for one, refuses each wake-up
//! without. Then one is attached that lets all packets pass, and the driver receives into a part of
//! our memory.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libc::c_int;
use memmap2::{MmapMut, MmapOptions, MmapRaw};

use super::{Device, Mode};
use crate::bpf::{BpfError, Redirection};
use crate::cpu::check;
use crate::interface::Interface;
use crate::signals::StopSignals;
use crate::socket::set_option;

/// Frames that can be under way at once: enough for a receiver that is held up for some
/// milliseconds. Several devices share these out, as their memory is locked. A power of two.
const FRAMES: u32 = 8192;
/// The fewest frames of one of many devices: enough for ten milliseconds at 100 kpkt/s.
const LEAST_FRAMES: u32 = 1024;
/// Frames that are handed over at once when the generator is behind.
const BATCH: usize = 64;
/// The option for how many of them one system call takes in generic mode, 32 unless it is set;
/// XDP_MAX_TX_SKB_BUDGET of <linux/if_xdp.h>, Linux 6.17.
const MAX_TX_SKB_BUDGET: c_int = 9;
/// Chunks of memory for one frame each: half a page, or a page, which is the most.
const CHUNKS: [usize; 2] = [2048, 4096];
/// What the socket may have under way in bytes, as the kernel counts: see `socket.rs`.
const SEND_BUFFER: c_int = 1 << 29;
/// Tries to hand over what the kernel did not take at once.
const KICKS: usize = 64;
/// One of so many frames is what a driver that takes ours from our memory receives into.
const RECEIVED_SHARE: usize = 4;
/// How long a card may take until it sends: it may be reset, and its link then comes back.
const LINK_LIMIT: Duration = Duration::from_secs(20);
/// How long the kernel may take to free a queue of a closed socket, which it does by a task of its own;
/// xp_put_pool() in net/xdp/xsk_buff_pool.c.
const FREED_LIMIT: Duration = Duration::from_millis(500);
/// How long frames that were handed over may take to leave at the end.
const REST_LIMIT: Duration = Duration::from_secs(1);
/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// An AF_XDP socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// The kernel is too old or built without it.
    #[error(
        "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, Linux 5.4): send with --generator af_packet"
    )]
    Missing,
    /// Not enough memory may be locked.
    #[error(
        "AF_XDP needs {need_kib} KiB of locked memory and {have_kib} KiB are allowed: raise it \
         with `ulimit -l {need_kib}`, or run as root"
    )]
    Memory {
        /// What is needed.
        need_kib: u64,
        /// What is allowed.
        have_kib: u64,
    },
    /// Frames are too large.
    #[error(
        "AF_XDP holds packets of up to {most} B, not {size} B: lower --size or send with \
         --generator af_packet"
    )]
    Large {
        /// The largest size asked for, FCS included.
        size: usize,
        /// The most.
        most: usize,
    },
    /// The queue of the interface is taken.
    #[error("another AF_XDP socket has queue {queue} of interface {name}: end that program first")]
    Busy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// The driver wants an XDP program and takes none.
    #[error(
        "{0}. Its driver sends by AF_XDP only with one: else choose the generator af_packet, which \
         needs none"
    )]
    Program(BpfError),
    /// The driver does not begin to send.
    #[error(
        "interface {name} does not send by AF_XDP after {} s: {reason}; check its cable, or choose \
         the generator af_packet",
        LINK_LIMIT.as_secs()
    )]
    Silent {
        /// The interface.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The privilege is missing.
    #[error("the kernel does not permit AF_XDP")]
    NotPermitted,
    /// The system refused something else.
    #[error("cannot {what} for AF_XDP: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// One side of a ring that we share with the kernel.
struct Ring {
    memory: MmapRaw,
    offset: libc::xdp_ring_offset,
    /// How many entries it has, a power of two.
    entries: u32,
}

impl Ring {
    /// Maps the ring of a socket that lies at `page_offset`, with `entries` of `entry` bytes.
    fn map(
        socket: &OwnedFd,
        page_offset: u64,
        offset: libc::xdp_ring_offset,
        entries: u32,
        entry: usize,
    ) -> io::Result<Self> {
        let len = offset.desc as usize + entries as usize * entry;
        let memory = MmapOptions::new()
            .len(len)
            .offset(page_offset)
            .populate()
            .map_raw(socket.as_raw_fd())?;
        Ok(Self { memory, offset, entries })
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel said that an aligned u32 is there; it lives as long as the mapping
        // and is accessed through atomics alone.
        unsafe { &*self.memory.as_ptr().add(at as usize).cast::<AtomicU32>() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offset.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offset.consumer)
    }

    /// Hands the kernel chunks to receive into; nothing was handed over before.
    fn fill(&self, chunks: &[u64]) {
        for (position, &chunk) in (0..).zip(chunks) {
            // SAFETY: the entry lies in the ring, and the kernel does not read it before it is
            // published.
            unsafe { self.entry::<u64>(position).write(chunk) };
        }
        self.producer().store(chunks.len() as u32, Ordering::Release);
    }

    /// The place of an entry; positions count on and wrap around the ring.
    fn entry<T>(&self, position: u32) -> *mut T {
        let index = (position & (self.entries - 1)) as usize;
        // SAFETY: `map` made room for this many entries of this size.
        unsafe { self.memory.as_mut_ptr().add(self.offset.desc as usize).cast::<T>().add(index) }
    }
}

/// The frames of one of `count` devices.
fn frames_of(count: usize) -> u32 {
    let share = FRAMES / u32::try_from(count).unwrap_or(FRAMES).clamp(1, FRAMES);
    share.next_power_of_two().max(LEAST_FRAMES)
}

/// A socket that sends through a queue of an interface.
pub struct AfXdp {
    // Before the memory that its rings point into: dropped first.
    socket: OwnedFd,
    transmit: Ring,
    completed: Ring,
    umem: MmapMut,
    /// Chunks that nobody uses, and how many there are for frames of ours.
    free: Vec<u64>,
    chunks: usize,
    /// Where the next frame goes in the transmit ring, published or not.
    next: u32,
    /// Frames pushed since the last flush for which no chunk was free.
    homeless: usize,
    mode: Mode,
    interface: Interface,
    /// What lets received packets pass.
    _program: Option<Redirection>,
}

impl AfXdp {
    /// Opens a queue of an interface for frames of up to `largest` bytes, without FCS: natively where the
    /// driver can, else generically. `count` such devices share the memory out. Natively it waits
    /// until the card sends, or a stop is asked for.
    pub fn open(
        interface: &Interface,
        largest: usize,
        count: usize,
        queue: u32,
        signals: &StopSignals,
    ) -> Result<Self, AfXdpError> {
        let system = |what| move |source| AfXdpError::System { what, source };
        let Some(chunk) = CHUNKS.into_iter().find(|&chunk| largest <= chunk) else {
            let (size, most) = (largest + 4, CHUNKS[1] + 4);
            return Err(AfXdpError::Large { size, most });
        };
        let frames = frames_of(count);
        let len = frames as usize * chunk;
        // Mapped memory begins at a page, as the kernel demands.
        let mut umem = MmapMut::map_anon(len).map_err(system("reserve memory"))?;
        let mut free: Vec<u64> = (0..u64::from(frames)).map(|frame| frame * chunk as u64).collect();
        let lent = free.split_off(free.len() - free.len() / RECEIVED_SHARE);
        let socket = Self::prepare(&mut umem, frames, chunk)?;
        let offsets: libc::xdp_mmap_offsets =
            get(&socket, libc::XDP_MMAP_OFFSETS).map_err(system("lay out rings"))?;
        // An igb card that was bound first and given this memory then received nothing.
        Ring::map(&socket, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, frames, size_of::<u64>())
            .map_err(system("map a ring"))?
            .fill(&lent);
        // A queue is free some time after the socket that had it was closed.
        let mut bound = Ok(());
        let busy = || {
            bound = Self::bind(&socket, interface, queue);
            matches!(bound, Err(AfXdpError::Busy { .. })).then_some(())
        };
        signals.wait_while(busy, LOOK, FREED_LIMIT);
        bound?;
        let options: libc::xdp_options =
            get(&socket, libc::XDP_OPTIONS).map_err(system("read the mode"))?;
        let native = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        if !native {
            // The kernel receives only into the packets of its own.
            free.extend(lent);
        }
        let transmit = Ring::map(
            &socket,
            libc::XDP_PGOFF_TX_RING as u64,
            offsets.tx,
            frames,
            size_of::<libc::xdp_desc>(),
        );
        let completed = Ring::map(
            &socket,
            libc::XDP_UMEM_PGOFF_COMPLETION_RING,
            offsets.cr,
            frames,
            size_of::<u64>(),
        );
        let mut device = Self {
            transmit: transmit.map_err(system("map a ring"))?,
            completed: completed.map_err(system("map a ring"))?,
            socket,
            umem,
            chunks: free.len(),
            free,
            next: 0,
            homeless: 0,
            mode: if native { Mode::Native } else { Mode::Generic },
            interface: interface.clone(),
            _program: None,
        };
        if native {
            device.begin(signals)?;
        }
        Ok(device)
    }

    /// Returns once the driver takes frames from our memory and the card has a link, or a stop is
    /// asked for.
    fn begin(&mut self, signals: &StopSignals) -> Result<(), AfXdpError> {
        if self.wake_up().is_err() {
            let program = Redirection::attach(&self.interface, None, None);
            self._program = Some(program.map_err(AfXdpError::Program)?);
        }
        let missing = || match (self.wake_up(), self.interface.has_link()) {
            (Ok(()), Ok(true)) => None,
            (Ok(()), Ok(false)) => Some("it has no link".into()),
            (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        };
        match signals.wait_while(missing, LOOK, LINK_LIMIT) {
            None => Ok(()),
            Some(reason) => Err(AfXdpError::Silent { name: self.interface.name.clone(), reason }),
        }
    }

    /// A socket with its memory and rings.
    fn prepare(umem: &mut MmapMut, frames: u32, chunk: usize) -> Result<OwnedFd, AfXdpError> {
        let system = |what| move |source| AfXdpError::System { what, source };
        // SAFETY: takes no pointers; the descriptor is ours.
        let socket = unsafe {
            check(libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))
                .map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let socket = socket.map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => AfXdpError::Missing,
            Some(libc::EPERM | libc::EACCES) => AfXdpError::NotPermitted,
            _ => system("open a socket")(error),
        })?;
        let region = libc::xdp_umem_reg {
            addr: umem.as_mut_ptr() as u64,
            len: umem.len() as u64,
            chunk_size: chunk as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(
            |error| match error.raw_os_error() {
                Some(libc::ENOBUFS) => AfXdpError::Memory {
                    need_kib: umem.len() as u64 / 1024,
                    have_kib: locked_memory() / 1024,
                },
                _ => system("register memory")(error),
            },
        )?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING] {
            set_option(&socket, libc::SOL_XDP, ring, &frames).map_err(system("make a ring"))?;
        }
        set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).map_err(
            |error| match error.raw_os_error() {
                Some(libc::EPERM) => AfXdpError::NotPermitted,
                _ => system("reserve room")(error),
            },
        )?;
        // Kernels before it take as many in two calls.
        let _ = set_option(&socket, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &(BATCH as c_int));
        Ok(socket)
    }

    /// Binds a socket to a queue of the interface.
    fn bind(socket: &OwnedFd, interface: &Interface, queue: u32) -> Result<(), AfXdpError> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Without a mode the kernel takes the native one where the driver has it.
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface.index as u32,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: pointer and length describe `address`.
        check(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        })
        .map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => AfXdpError::Busy { name: interface.name.clone(), queue },
            _ => AfXdpError::System { what: "bind a socket", source: error },
        })?;
        Ok(())
    }

    /// Takes back the chunks that the kernel is done with.
    fn reap(&mut self) {
        let begin = self.completed.consumer().load(Ordering::Relaxed);
        let end = self.completed.producer().load(Ordering::Acquire);
        for step in 0..end.wrapping_sub(begin) {
            // SAFETY: the kernel published this entry.
            let chunk = unsafe { self.completed.entry::<u64>(begin.wrapping_add(step)).read() };
            self.free.push(chunk);
        }
        self.completed.consumer().store(end, Ordering::Release);
    }

    /// Frames in the transmit ring that the kernel has not taken.
    fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.transmit.consumer().load(Ordering::Acquire))
    }
}

impl Device for AfXdp {
    fn room(&self) -> usize {
        BATCH
    }

    fn push(&mut self, frame: &[u8]) {
        if self.free.is_empty() {
            self.reap();
        }
        // The open loop must not wait: what the device is behind with is its loss. (A chunk that
        // is free has room in the ring, which has an entry for each.)
        let Some(chunk) = self.free.pop() else {
            self.homeless += 1;
            return;
        };
        let at = chunk as usize;
        self.umem[at..at + frame.len()].copy_from_slice(frame);
        let place = libc::xdp_desc { addr: chunk, len: frame.len() as u32, options: 0 };
        // SAFETY: the entry lies in the ring, and the kernel does not read it before it is
        // published.
        unsafe { self.transmit.entry::<libc::xdp_desc>(self.next).write(place) };
        self.next = self.next.wrapping_add(1);
    }

    fn flush(&mut self) -> usize {
        let failed = self.hand_over();
        // Chunks that have just come back are used next: they are in the caches, where going round
        // all of them would find each one cold.
        self.reap();
        failed
    }

    fn finish(&mut self) -> usize {
        // What was pushed and not handed over stays here.
        self.take_back(self.next.wrapping_sub(self.transmit.producer().load(Ordering::Relaxed)));
        self.homeless = 0;
        let deadline = Instant::now() + REST_LIMIT;
        let mut failed = 0;
        loop {
            failed += self.flush();
            let rest = match self.mode {
                // Once it is detached the driver forgets what it has not sent.
                Mode::Native => self.chunks - self.free.len(),
                Mode::Generic => self.waiting() as usize,
            };
            if rest == 0 || Instant::now() > deadline {
                return failed + rest;
            }
            sleep(LOOK);
        }
    }

    fn is_gone(&self) -> bool {
        !self.interface.exists()
    }

    fn mode(&self) -> Option<Mode> {
        Some(self.mode)
    }
}

impl AfXdp {
    /// Publishes what was pushed and wakes up the kernel until it has taken everything.
    fn hand_over(&mut self) -> usize {
        self.transmit.producer().store(self.next, Ordering::Release);
        let mut failed = std::mem::take(&mut self.homeless);
        for _ in 0..KICKS {
            let wanted = match self.mode {
                // The driver polls the ring and says when it wants to be woken up.
                Mode::Native => {
                    let flags = self.transmit.word(self.transmit.offset.flags);
                    flags.load(Ordering::Acquire) & libc::XDP_RING_NEED_WAKEUP != 0
                }
                Mode::Generic => self.waiting() > 0,
            };
            if !wanted {
                break;
            }
            let Err(error) = self.wake_up() else {
                if self.mode == Mode::Native {
                    break;
                }
                continue;
            };
            match error.raw_os_error() {
                // A packet was made and the device dropped it.
                Some(libc::EBUSY) => failed += 1,
                // As many as the kernel takes at a time, or none for lack of room.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => self.reap(),
                // The interface is down: the frames stay and leave when it is up. Those for which
                // there is no chunk meanwhile have failed, and at the end those that wait.
                _ => {
                    if self.is_gone() {
                        failed += self.take_back(self.waiting());
                    }
                    break;
                }
            }
        }
        failed
    }

    /// Takes back the last `frames`, which nobody reads any more, or not yet. Returns their number.
    fn take_back(&mut self, frames: u32) -> usize {
        for _ in 0..frames {
            self.next = self.next.wrapping_sub(1);
            // SAFETY: the entry lies in the ring; we wrote it.
            let place = unsafe { self.transmit.entry::<libc::xdp_desc>(self.next).read() };
            self.free.push(place.addr);
        }
        self.transmit.producer().store(self.next, Ordering::Release);
        frames as usize
    }

    fn wake_up(&self) -> io::Result<()> {
        let (socket, nothing) = (self.socket.as_raw_fd(), std::ptr::null());
        // SAFETY: a send without data only wakes up the kernel.
        let sent =
            unsafe { libc::sendto(socket, nothing, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// An option of the socket that the kernel fills in.
fn get<T>(socket: &OwnedFd, option: c_int) -> io::Result<T> {
    // SAFETY: pointer and length describe `value`; zeroes are valid for the kernel's structures.
    unsafe {
        let mut value: T = zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        check(libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        ))?;
        Ok(value)
    }
}

/// Bytes of memory that this process may lock.
fn locked_memory() -> u64 {
    // SAFETY: pointer to a valid rlimit.
    unsafe {
        let mut limit: libc::rlimit = zeroed();
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit);
        limit.rlim_cur
    }
}

//! Capture files: what kind a file is, and its packets in file order.
//!
//! Each format is a file with a [`Reader`](reader::Reader) and a row in [`format`](mod@format). The
//! kind is told by the first bytes, after any compression is undone. MoonSniff's mscap has no magic:
//! it is taken by its suffix or when the caller says so. Of a file that is damaged further in (an
//! absurd length) the next record that makes sense is looked for; one that ends in mid-record yields
//! what stands before that. What was not read is counted, by reason, in [`Notes`].

mod erf;
mod error;
mod format;
mod input;
mod link;
mod markfile;
mod mistaken;
mod mscap;
mod notes;
mod opened;
mod pcap;
mod pcapng;
mod reader;
mod stampfile;
mod trailer;

use std::path::{Path, PathBuf};

use format::AnyReader;
use input::Input;
use reader::{Progress, Recovery};
use tailtap_wire::link::Link;
use trailer::Restamped;
pub(crate) use trailer::{NEAR_NS, Restamping, ahead_ns};

use crate::marks;

pub use error::{CaptureError, Unreadable};
pub use format::Format;
pub use notes::{Damage, Interface, Mark, Marked, Notes, Reason, Skipped, Unread};
pub use trailer::Trailer;

/// Longest packet that is believed. A longer record is damage: the largest frames of any
/// Ethernet device, with all offloads, stay below 256 KiB.
const MAX_FRAME: usize = 256 * 1024;

/// How far a record is looked for, in bytes.
const SEARCH: u64 = 1 << 22;

/// So near, in bytes, a record is looked for first: a few of them, unless they are large.
const NEAR: u64 = 1 << 12;

/// What is looked at behind damage at a time: several of the longest records.
const LOOK_AHEAD: usize = 8 * (MAX_FRAME + 4096);

/// No record is looked for farther behind damage than this, so that it takes moments.
const LOST_BYTES: u64 = 1 << 26;

/// No format has shorter records of packets: what bounds how many stood where nothing can be read.
const LEAST_RECORD: u64 = 12;

/// Latest stamp that is believed: 146 years in nanoseconds. The matching table holds no later one.
pub(crate) const LATEST_NS: u64 = (1 << 62) - 2;

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Time of the stamp in nanoseconds.
    pub time_ns: u64,
    /// The number of the interface that it was captured at: as the packet itself says (the system's
    /// number in cooked captures of the second version, the card's port in ERF, 256 times the device
    /// and the port in a switch's trailer), or as the file counts them; 0 where the file has one.
    pub interface: u32,
    /// Whether the machine that captured it sent it, where the file says it.
    pub outgoing: Option<bool>,
    /// What is known of the packet.
    pub content: Content<'a>,
}

/// What a capture keeps of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The captured bytes.
    Frame {
        /// Captured bytes, from the first header on that is the network's own.
        bytes: &'a [u8],
        /// Length of the packet on the wire from there on, which may be more than was captured.
        wire_len: u32,
        /// What they begin with.
        link: Link,
    },
    /// The id alone.
    Id(u32),
    /// The hash of the packet's key, or its id, and its length on the wire.
    Mark {
        /// What [`Extract`](crate::key::Extract) made of the packet when it was captured.
        key: u64,
        /// Length of the packet on the wire.
        wire_len: u32,
    },
}

/// Takes the packets of a capture. A type of its own can become part of the loops of all readers
/// (`#[inline(always)]`), which each such type has a copy of. All closures share one copy, which calls
/// them.
pub trait Sink {
    /// Takes the next packet.
    fn take(&mut self, packet: Packet<'_>);
}

/// Any closure.
pub(crate) type Call<'a> = &'a mut dyn FnMut(Packet<'_>);

impl Sink for Call<'_> {
    fn take(&mut self, packet: Packet<'_>) {
        self(packet);
    }
}

/// Counts what a sink may still take.
struct Limited<'a, S> {
    sink: &'a mut S,
    left: usize,
}

impl<S: Sink> Sink for Limited<'_, S> {
    #[inline(always)]
    fn take(&mut self, packet: Packet<'_>) {
        self.left -= 1;
        self.sink.take(packet);
    }
}

/// An open capture file.
pub struct Capture {
    path: PathBuf,
    input: Input,
    reader: AnyReader,
    format: Format,
    notes: Notes,
    done: bool,
    /// The trailers that the stamps are taken from.
    trailer: Option<Restamping>,
    /// How many packets had none.
    without_trailer: u64,
}

impl Capture {
    /// Opens a capture. The format is told by content unless `format` is given.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, CaptureError> {
        let io = Unreadable::io(path);
        let mut input = Input::open(path)?;
        let size = std::fs::metadata(path).map_err(io)?.len();
        let compression = input.compression();
        let mut wanted = input.want(64);
        if wanted.is_ok() && input.bytes().starts_with(&marks::MAGIC) {
            wanted = input.want(marks::HEADER_LEN);
        }
        let head = match (wanted, compression) {
            (Ok(()), _) => input.bytes(),
            (Err(source), Some(compression)) => {
                return Err(Unreadable::Compression { compression, source }.of(path));
            }
            (Err(source), None) => return Err(io(source)),
        };
        if head.is_empty() && !format.is_some_and(Format::may_be_empty) {
            return Err(Unreadable::Empty.of(path));
        }
        let format = match format {
            Some(format) => format,
            None => Format::recognise(head, path)
                .ok_or_else(|| error::HeaderError::Unknown.at(path, head))?,
        };
        let mut notes = Notes { size, ..Notes::default() };
        let opened = format.open(head, &mut notes);
        let (reader, header_len) = opened.map_err(|error| error.at(path, head))?;
        input.consume(header_len);
        let path = path.to_owned();
        let (done, trailer, without_trailer) = (false, None, 0);
        Ok(Self { path, input, reader, format, notes, done, trailer, without_trailer })
    }

    /// The same, of a file that people know by another name.
    pub fn open_as(path: &Path, name: &Path, format: Option<Format>) -> Result<Self, CaptureError> {
        let capture = Self::open(path, format).map_err(|error| error.called(name))?;
        Ok(Self { path: name.to_owned(), ..capture })
    }

    /// The file's path, or the name that people know it by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What was found out so far.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Position in the (decompressed) file of the next record to be read.
    pub fn position(&self) -> u64 {
        self.input.position()
    }

    /// Goes on at `offset`, where a record must begin, and takes the file to end at `end`, if
    /// given. Only for files in which one can begin anywhere, see [`Self::marks`].
    pub fn seek(&mut self, offset: u64, end: Option<u64>) -> Result<(), CaptureError> {
        self.done = false;
        let result = self.input.seek(offset, end.unwrap_or(u64::MAX));
        result.map_err(Unreadable::io(&self.path))
    }

    /// Size of the file in bytes, if it is not compressed.
    pub fn size(&self) -> Option<u64> {
        self.input.size()
    }

    /// Records about every `step` bytes, the first of all before the others, at which reading can
    /// begin; `None` where one cannot tell a record from the middle of a file, as in compressed
    /// files, and where the stamps are not those of the records. If the capture is in time order, all
    /// that comes before a mark is earlier.
    ///
    /// What stands there looks like records; whoever reads on to a mark knows whether it is one.
    pub fn marks(&mut self, step: u64) -> Result<Option<Vec<Mark>>, CaptureError> {
        let (Some(size), Some(start)) = (self.input.size(), self.reader.first_record()) else {
            return Ok(None);
        };
        if self.trailer.is_some() {
            return Ok(None);
        }
        let mut marks = Vec::new();
        let mut near = start;
        while near < size {
            self.seek(near, Some(near + SEARCH))?;
            if self.format.searches() {
                let wanted = self.input.want(SEARCH as usize);
                wanted.map_err(Unreadable::io(&self.path))?;
            }
            let since = marks.last().map_or(0, |mark: &Mark| mark.time_ns / 1_000_000_000);
            let found = match near == start {
                true => Some(0),
                false => self.reader.find(self.input.bytes(), near, since),
            };
            if let Some(offset) = found
                && let Some(mark) = self.mark(near + offset as u64, near == start)?
            {
                marks.push(mark);
                near = mark.offset;
            }
            near += step;
        }
        self.seek(start, None)?;
        Ok((marks.first().is_some_and(|mark| mark.offset == start)).then_some(marks))
    }

    /// The record at `offset`, or the first one behind it that is later than the one before it.
    fn mark(&mut self, offset: u64, any: bool) -> Result<Option<Mark>, CaptureError> {
        match self.mark_within(offset, NEAR, any)? {
            None => self.mark_within(offset, SEARCH, any),
            found => Ok(found),
        }
    }

    /// The same, among the next so many bytes.
    fn mark_within(
        &mut self,
        offset: u64,
        length: u64,
        any: bool,
    ) -> Result<Option<Mark>, CaptureError> {
        self.seek(offset, Some(offset + length))?;
        let mut before = None;
        loop {
            let offset = self.position();
            let mut time = None;
            self.read(1, |packet| time = Some(packet.time_ns))?;
            let Some(time_ns) = time else { return Ok(None) };
            if any || before.is_some_and(|before| time_ns > before) {
                return Ok(Some(Mark { offset, time_ns }));
            }
            before = Some(time_ns);
        }
    }

    /// About how many packets the file holds, judged by those read so far; unknown for compressed
    /// files.
    pub fn estimate(&self) -> Option<u64> {
        let (position, size) = (self.input.position(), self.input.size()?);
        let packets = u128::from(self.notes.packets) * u128::from(size);
        (position > 0).then(|| (packets / u128::from(position)) as u64)
    }

    /// Hands up to `limit` further packets to `sink`. Returns `false` at the end of the capture.
    ///
    /// Errors are of the kind that concerns the whole file; damage further in ends the capture
    /// and stands in [`Self::notes`].
    pub fn read(
        &mut self,
        limit: usize,
        mut sink: impl FnMut(Packet<'_>),
    ) -> Result<bool, CaptureError> {
        self.read_into(limit, &mut (&mut sink as Call<'_>))
    }

    /// As [`Self::read`], into any sink.
    pub fn read_into(&mut self, limit: usize, sink: &mut impl Sink) -> Result<bool, CaptureError> {
        let mut sink = Limited { sink, left: limit };
        while sink.left > 0 && !self.done {
            let bytes = self.input.bytes();
            let before = sink.left;
            let progress = match self.trailer {
                None => self.reader.decode(bytes, before, &mut sink),
                Some(from) => {
                    let without = &mut self.without_trailer;
                    let mut sink = Restamped { sink: &mut sink, from, without };
                    self.reader.decode(bytes, before, &mut sink)
                }
            };
            self.notes.packets += (before - sink.left) as u64;
            match progress {
                Progress::Full(used) => self.input.consume(used),
                Progress::More(used) => {
                    self.input.consume(used);
                    self.refill();
                }
                Progress::Damaged(used, why) => {
                    self.input.consume(used);
                    self.recover(&why);
                }
            }
            if let Some(refusal) = self.reader.refusal(self.done) {
                return Err(refusal.of(&self.path));
            }
        }
        self.reader.note(&mut self.notes);
        if self.trailer.is_some() {
            self.notes.unread.add(Reason::NoTrailer, self.without_trailer);
            self.notes.unit_ns = 1;
            self.notes.trailer = self.trailer.map(|from| from.0);
        }
        Ok(!self.done)
    }

    /// Gets more bytes after what is left; at the end of the file a remainder is damage.
    fn refill(&mut self) {
        let had = self.input.bytes().len();
        match self.input.want(had + 1) {
            Ok(()) if self.input.bytes().len() > had => {}
            Ok(()) if had == 0 => self.done = true,
            Ok(()) => self.recover(&format!("it ends in mid-record, {had} bytes into it")),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.stop("its compressed data ends in mid-stream");
            }
            Err(error) if self.input.compression().is_none() => {
                self.stop(&format!("it cannot be read: {error}"));
            }
            Err(error) => self.stop(&format!("its compressed data is broken: {error}")),
        }
    }

    /// Goes on at the next record that makes sense; without one, the capture ends where it is damaged.
    fn recover(&mut self, why: &str) {
        let damage = Damage { byte: self.input.position(), why: why.to_owned() };
        loop {
            // What cannot be read ends the file here; reading on says why.
            let ended =
                self.input.want(LOOK_AHEAD).is_err() || self.input.bytes().len() < LOOK_AHEAD;
            match self.reader.recover(self.input.bytes(), ended) {
                Recovery::Record(at) => {
                    self.input.consume(at);
                    let bytes = self.input.position() - damage.byte;
                    let skipped = &mut self.notes.skipped;
                    skipped.places += 1;
                    skipped.bytes += bytes;
                    // The record before may have been damaged too, and have taken others for its own.
                    skipped.packets_at_most += (bytes + MAX_FRAME as u64) / LEAST_RECORD;
                    skipped.first.get_or_insert(damage);
                    return;
                }
                Recovery::Nothing(bytes) => self.input.consume(bytes),
            }
            if ended || self.input.position() - damage.byte > LOST_BYTES {
                self.done = true;
                self.notes.damage = Some(damage);
                return;
            }
        }
    }

    /// Takes the stamps for nanoseconds where the file says that they are microseconds.
    pub fn take_for_nanoseconds(&mut self) {
        self.reader.take_for_nanoseconds();
    }

    /// Takes so many bytes off the end of each frame: a frame check sequence of which the file says
    /// nothing.
    pub fn take_off(&mut self, fcs_len: usize) {
        self.reader.take_off(fcs_len);
    }

    /// Takes only packets of this level or above, where packets have one (see [`crate::marks`]).
    pub(crate) fn take_level(&mut self, least: u8) {
        self.reader.take_level(least);
    }

    /// Takes the stamps from trailers, which are then no part of the packets. Packets without one are not
    /// read.
    pub(crate) fn take_from(&mut self, trailers: Restamping) {
        self.trailer = Some(trailers);
    }

    fn stop(&mut self, why: &str) {
        self.done = true;
        self.notes.damage = Some(Damage { byte: self.input.position(), why: why.to_owned() });
    }
}

/// A frame without the frame check sequence of `fcs_len` bytes at its end, as far as that was captured,
/// and its length on the wire without it.
#[inline]
fn without_fcs(bytes: &[u8], wire_len: u32, fcs_len: usize) -> (&[u8], u32) {
    let whole = (wire_len as usize).max(bytes.len());
    let left = whole.saturating_sub(fcs_len);
    (&bytes[..bytes.len().min(left)], wire_len.saturating_sub(fcs_len as u32))
}

/// Little-endian u32 at the start of `bytes`, which must hold four.
#[inline]
fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

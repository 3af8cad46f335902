//! Capture files: what kind a file is, and its packets in file order.
//!
//! The kind is told by the first bytes, after any compression is undone. MoonSniff's mscap has no
//! magic: it is taken by its suffix or when the caller says so. A file that is damaged further in
//! (cut off in mid-record, an absurd length) yields what stands before the damage; the damage is
//! noted in [`Notes`].

mod input;
mod mscap;
mod pcap;
mod pcapng;
mod stampfile;

use std::path::{Path, PathBuf};

use input::Input;
use serde::{Deserialize, Serialize};

use crate::stamps::{Clock, TapCounts};

/// Longest packet that is believed. A longer record is damage: the largest frames of any
/// Ethernet device, with all offloads, stay below 256 KiB.
const MAX_FRAME: usize = 256 * 1024;

/// How far a record is looked for, in bytes.
const SEARCH: u64 = 1 << 22;

/// Latest stamp that is believed: 146 years in nanoseconds. The matching table holds no later one.
pub(crate) const LATEST_NS: u64 = (1 << 62) - 2;

/// What is said of a later stamp.
const TOO_LATE: &str = "a packet's time is out of range";

/// The only link type that can be read: LINKTYPE_ETHERNET of pcap and pcapng.
const LINKTYPE_ETHERNET: u32 = 1;

/// A capture file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Classic pcap: micro- or nanoseconds, either byte order.
    Pcap,
    /// pcapng.
    Pcapng,
    /// MoonSniff's mscap: 12-byte little-endian records of u64 nanoseconds and u32 id.
    Mscap,
    /// tailtap's own stamp file.
    Stamps,
}

impl Format {
    /// The name used in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
            Self::Mscap => "mscap",
            Self::Stamps => "stamps",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Pcap, Self::Pcapng, Self::Mscap, Self::Stamps]
            .into_iter()
            .find(|format| format.name() == name)
    }

    /// Whether its records hold packet ids in place of frames.
    pub fn holds_ids(self) -> bool {
        matches!(self, Self::Mscap | Self::Stamps)
    }
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Time of the stamp in nanoseconds.
    pub time_ns: u64,
    /// What is known of the packet.
    pub content: Content<'a>,
}

/// What a capture keeps of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The captured bytes from the Ethernet header on.
    Frame {
        /// Captured bytes.
        bytes: &'a [u8],
        /// Length of the packet on the wire, which may be more than was captured.
        wire_len: u32,
    },
    /// The id alone.
    Id(u32),
}

/// A capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in the file.
    #[error("{0}: the file is empty: was the capture stopped before it wrote anything?")]
    Empty(PathBuf),
    /// The first bytes are of no known kind.
    #[error(
        "{path}: not a capture that tailtap reads (first bytes {magic}): pcap, pcapng, stamp files \
         and MoonSniff's mscap are known, plain or compressed with zstd or gzip; name an mscap file \
         *.mscap or give --format mscap"
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its first bytes, in hexadecimal.
        magic: String,
    },
    /// The file ends within its header.
    #[error("{0}: the file ends within its header: the capture is cut off")]
    HeaderCut(PathBuf),
    /// The packets are not Ethernet frames.
    #[error(
        "{path}: link type {linktype} is not Ethernet: capture on the Ethernet interface itself, \
         not on 'any' or a tunnel"
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// LINKTYPE_ value of the file.
        linktype: u32,
    },
    /// The compressed data is broken before the first packet.
    #[error("{path}: the {compression} data is broken: {source}")]
    Compression {
        /// The file.
        path: PathBuf,
        /// zstd or gzip.
        compression: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Why nothing can be made of a capture from some place on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Position in the (decompressed) file.
    pub byte: u64,
    /// What is wrong there.
    pub why: String,
}

/// A record's place in a file that is not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the record begins.
    pub offset: u64,
    /// Its time in nanoseconds.
    pub time_ns: u64,
}

/// What was found out about a capture while reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Packets read.
    pub packets: u64,
    /// Why reading stopped before the end of the file.
    pub damage: Option<Damage>,
    /// How often mscap's time jumped back by 2^32 ns and was unwrapped.
    pub unwrapped: u64,
    /// The tap's own counts, from a stamp file that was closed.
    pub tap: Option<TapCounts>,
    /// A stamp file that was not closed: the tap still runs, or was killed.
    pub unclosed: bool,
    /// The clock of the stamps, where the file says it.
    pub clock: Option<Clock>,
    /// Size of the file in bytes when it was opened, compressed or not.
    pub size: u64,
    /// Its size later, if another program changed it in between: a capture that still runs.
    pub resized: Option<u64>,
}

impl Notes {
    /// Looks whether the file's size has changed since it was opened.
    pub(crate) fn look_again(&mut self, path: &Path) {
        let now = std::fs::metadata(path).map_or(self.size, |metadata| metadata.len());
        self.resized = (now != self.size).then_some(now);
    }
}

/// How far a decoder came with the bytes that it was given.
enum Progress {
    /// It used this many bytes; more are needed for the next packet.
    More(usize),
    /// It used this many bytes and delivered as many packets as were asked for.
    Full(usize),
    /// After this many bytes nothing can be made of the file any more, and why.
    Damaged(usize, String),
}

enum Decoder {
    Pcap(pcap::Decoder),
    Pcapng(pcapng::Decoder),
    Mscap(mscap::Decoder),
    Stamps,
}

impl Decoder {
    /// Where the first record begins in files in which one can begin with any record.
    fn header_len(&self) -> Option<u64> {
        match self {
            Self::Pcap(_) => Some(pcap::HEADER_LEN as u64),
            Self::Stamps => Some(crate::stamps::HEADER_LEN as u64),
            Self::Pcapng(_) | Self::Mscap(_) => None,
        }
    }
}

/// An open capture file.
pub struct Capture {
    path: PathBuf,
    input: Input,
    decoder: Decoder,
    format: Format,
    notes: Notes,
    done: bool,
}

impl Capture {
    /// Opens a capture. The format is told by content unless `format` is given.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(io)?.len();
        let mut input = Input::open(path)?;
        let compression = input.compression();
        let head = match (input.want(64), compression) {
            (Ok(()), _) => input.bytes(),
            (Err(source), Some(compression)) => {
                return Err(CaptureError::Compression {
                    path: path.to_owned(),
                    compression,
                    source,
                });
            }
            (Err(source), None) => return Err(io(source)),
        };
        if head.is_empty() && format != Some(Format::Mscap) {
            return Err(CaptureError::Empty(path.to_owned()));
        }
        let format = match format {
            Some(format) => format,
            None => detect(head, path)?,
        };
        let mut notes = Notes { size, ..Notes::default() };
        let (decoder, header_len) = match format {
            Format::Pcap => {
                let decoder = pcap::Decoder::new(head).map_err(|e| e.at(path, head))?;
                (Decoder::Pcap(decoder), pcap::HEADER_LEN)
            }
            Format::Pcapng if pcapng::is_pcapng(head) => {
                (Decoder::Pcapng(pcapng::Decoder::default()), 0)
            }
            Format::Pcapng => return Err(unknown(path, head)),
            Format::Mscap => (Decoder::Mscap(mscap::Decoder::default()), 0),
            Format::Stamps => {
                let header = stampfile::header(head).map_err(|e| e.at(path, head))?;
                notes.tap = header.counts;
                notes.unclosed = header.counts.is_none();
                notes.clock = Some(header.clock);
                (Decoder::Stamps, crate::stamps::HEADER_LEN)
            }
        };
        input.consume(header_len);
        Ok(Self { path: path.to_owned(), input, decoder, format, notes, done: false })
    }

    /// The file's path.
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
        result.map_err(|source| CaptureError::Io { path: self.path.clone(), source })
    }

    /// Size of the file in bytes, if it is not compressed.
    pub fn size(&self) -> Option<u64> {
        self.input.size()
    }

    /// Records about every `step` bytes, the first of all before the others, at which reading can
    /// begin; `None` where one cannot tell a record from the middle of a file, as in compressed
    /// files. If the capture is in time order, all that comes before a mark is earlier.
    ///
    /// What stands there looks like records; whoever reads on to a mark knows whether it is one.
    pub fn marks(&mut self, step: u64) -> Result<Option<Vec<Mark>>, CaptureError> {
        let (Some(size), Some(start)) = (self.input.size(), self.decoder.header_len()) else {
            return Ok(None);
        };
        let mut marks = Vec::new();
        let mut near = start;
        while near < size {
            self.seek(near, Some(near + SEARCH))?;
            let since = marks.last().map_or(0, |mark: &Mark| mark.time_ns / 1_000_000_000);
            let found = match &self.decoder {
                _ if near == start => Some(0),
                Decoder::Pcap(decoder) => decoder.find(self.input.bytes(), since),
                _ => Some(stampfile::find(near)),
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
        self.seek(offset, Some(offset + SEARCH))?;
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
        let mut left = limit;
        while left > 0 && !self.done {
            let bytes = self.input.bytes();
            let before = left;
            let mut count = |packet: Packet<'_>| {
                left -= 1;
                sink(packet);
            };
            let progress = match &mut self.decoder {
                Decoder::Pcap(decoder) => decoder.decode(bytes, before, &mut count),
                Decoder::Pcapng(decoder) => decoder.decode(bytes, before, &mut count),
                Decoder::Mscap(decoder) => decoder.decode(bytes, before, &mut count),
                Decoder::Stamps => stampfile::decode(bytes, before, &mut count),
            };
            self.notes.packets += (before - left) as u64;
            match progress {
                Progress::Full(used) => self.input.consume(used),
                Progress::More(used) => {
                    self.input.consume(used);
                    self.refill();
                }
                Progress::Damaged(used, why) => {
                    self.input.consume(used);
                    self.stop(&why);
                }
            }
            if let Decoder::Pcapng(decoder) = &self.decoder
                && let Some(linktype) = decoder.foreign_linktype()
                && self.notes.packets == 0
                && (self.done || decoder.is_foreign())
            {
                return Err(CaptureError::LinkType { path: self.path.clone(), linktype });
            }
        }
        if let Decoder::Mscap(decoder) = &self.decoder {
            self.notes.unwrapped = decoder.unwrapped();
        }
        Ok(!self.done)
    }

    /// Gets more bytes after what is left; at the end of the file a remainder is damage.
    fn refill(&mut self) {
        let had = self.input.bytes().len();
        match self.input.want(had + 1) {
            Ok(()) if self.input.bytes().len() > had => {}
            Ok(()) if had == 0 => self.done = true,
            Ok(()) => self.stop(&format!("it ends in mid-record, {had} bytes into it")),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.stop("its compressed data ends in mid-stream");
            }
            Err(error) => self.stop(&format!("its compressed data is broken: {error}")),
        }
    }

    fn stop(&mut self, why: &str) {
        self.done = true;
        self.notes.damage = Some(Damage { byte: self.input.position(), why: why.to_owned() });
    }
}

/// A header that cannot be used, before the path is known.
enum HeaderError {
    Cut,
    Unknown,
    LinkType(u32),
}

impl HeaderError {
    fn at(self, path: &Path, head: &[u8]) -> CaptureError {
        match self {
            Self::Cut => CaptureError::HeaderCut(path.to_owned()),
            Self::Unknown => unknown(path, head),
            Self::LinkType(linktype) => CaptureError::LinkType { path: path.to_owned(), linktype },
        }
    }
}

fn unknown(path: &Path, head: &[u8]) -> CaptureError {
    let magic = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    CaptureError::UnknownFormat { path: path.to_owned(), magic }
}

fn detect(head: &[u8], path: &Path) -> Result<Format, CaptureError> {
    if pcap::is_pcap(head) {
        Ok(Format::Pcap)
    } else if pcapng::is_pcapng(head) {
        Ok(Format::Pcapng)
    } else if head.starts_with(&crate::stamps::MAGIC) {
        Ok(Format::Stamps)
    } else if named_mscap(path) {
        Ok(Format::Mscap)
    } else {
        Err(unknown(path, head))
    }
}

/// Whether the name, less a compression suffix, ends in `.mscap`.
fn named_mscap(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".zst").or(name.strip_suffix(".gz")).unwrap_or(&name);
    name.ends_with(".mscap")
}

/// Little-endian u32 at the start of `bytes`, which must hold four.
#[inline]
fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

//! Why a capture cannot be read at all.

use std::path::{Path, PathBuf};

/// A capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct CaptureError {
    /// The file, by the name that people know.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Unreadable,
}

/// What is wrong with a capture.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The operating system refused.
    #[error(transparent)]
    Io(std::io::Error),
    /// There is nothing in the file.
    #[error("the file is empty: was the capture stopped before it wrote anything?")]
    Empty,
    /// The first bytes are of no known kind.
    #[error(
        "not a capture that tailtap reads (first bytes {magic}): pcap, pcapng, stamp files, \
         ERF and MoonSniff's mscap are known, plain or compressed with zstd, gzip, xz, lz4 or bzip2; \
         name an mscap file *.mscap or give --format mscap, and an ERF file *.erf or --format erf"
    )]
    UnknownFormat {
        /// Its first bytes, in hexadecimal.
        magic: String,
    },
    /// The file ends within its header.
    #[error("the file ends within its header: the capture is cut off")]
    HeaderCut,
    /// A pipe, a terminal or another file that can be read once only.
    #[error(
        "not a file that can be read twice, which matching needs: save the capture first \
         (cat {given} > FILE, or let the capturing program write it), and give that file"
    )]
    NotAFile {
        /// What was given.
        given: PathBuf,
    },
    /// The standard input.
    #[error(
        "the standard input cannot be read twice, which matching needs: save the capture first \
         (… > FILE), and give that file"
    )]
    StandardInput,
    /// A compression that is not undone here.
    #[error(
        "compressed with {compression}, which tailtap does not undo: unpack it first \
         ({command}), or compress it with zstd, gzip, xz, lz4 or bzip2"
    )]
    UnknownCompression {
        /// The compression.
        compression: &'static str,
        /// What undoes it.
        command: String,
    },
    /// The stamps are nanoseconds and the file says otherwise.
    #[error(
        "its stamps are nanoseconds, but {says}: evaluate with --nanoseconds ingress, egress \
         or both, whichever captures are so; {mend}"
    )]
    Nanoseconds {
        /// What the file says instead.
        says: &'static str,
        /// What mends the file.
        mend: &'static str,
    },
    /// The packets are of a link type that is not read.
    #[error(
        "link type {linktype}{} is not read: capture on an interface of Ethernet or IP, or on \
         'any' (tcpdump -L lists the link types of an interface, -y chooses one)",
        name(*linktype)
    )]
    LinkType {
        /// LINKTYPE_ value of the file.
        linktype: u32,
    },
    /// A file of several that make one capture is of another format.
    #[error("{is}, where the files before it are {others}: files of one capture have one format")]
    OtherFormat {
        /// Its format.
        is: &'static str,
        /// That of the others.
        others: &'static str,
    },
    /// Files whose times do not tell how they follow each other.
    #[error(
        "MoonSniff's times begin anywhere and do not tell how several files follow each other: \
         join them in their order first (cat FILES > FILE)"
    )]
    Unordered,
    /// Times without a date cannot be held against those of another clock.
    #[error(
        "MoonSniff's times begin anywhere, so that they cannot be brought to another clock: \
         give pcap, pcapng or stamp files for two clocks"
    )]
    Undated,
    /// A filter reads frames.
    #[error("it holds no frames, which a filter reads: leave --filter out")]
    NoFrames,
    /// No interface has the name that was given.
    #[error("no interface is called '{name}': there are {known}")]
    NoInterface {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The compressed data is broken before the first packet.
    #[error("the {compression} data is broken: {source}")]
    Compression {
        /// Its name.
        compression: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl Unreadable {
    /// This, of a file.
    pub fn of(self, path: &Path) -> CaptureError {
        CaptureError { path: path.to_owned(), why: self }
    }

    /// The system's error about a file.
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> CaptureError + Copy + '_ {
        |error| Self::Io(error).of(path)
    }
}

impl CaptureError {
    /// The same of a file that people know by another name.
    pub(super) fn called(self, name: &Path) -> Self {
        self.why.of(name)
    }
}

/// A header that cannot be used.
pub(super) enum HeaderError {
    Cut,
    Unknown,
    LinkType(u32),
}

impl HeaderError {
    /// The same of a file that begins with `head`.
    pub(super) fn at(self, path: &Path, head: &[u8]) -> CaptureError {
        let why = match self {
            Self::Cut => Unreadable::HeaderCut,
            Self::Unknown => {
                let magic = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                Unreadable::UnknownFormat { magic }
            }
            Self::LinkType(linktype) => Unreadable::LinkType { linktype },
        };
        why.of(path)
    }
}

/// What a link type that is not read is called, with a blank before it, as far as it is known.
fn name(number: u32) -> &'static str {
    match number {
        105 => " (IEEE 802.11)",
        119 | 127 | 163 => " (IEEE 802.11 with a radio's header)",
        149 | 258 => " (macOS's pktap)",
        187 | 201 | 251 => " (Bluetooth)",
        189 | 220 | 249 => " (USB)",
        195 | 215 | 230 | 283 => " (IEEE 802.15.4)",
        227 => " (CAN)",
        239 => " (the firewall's log)",
        253 => " (netlink)",
        147..=162 => " (for private use)",
        _ => "",
    }
}

//! Why a capture cannot be read at all.

use std::path::{Path, PathBuf};

use crate::naming::option;

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
        "{path}: not a capture that tailtap reads (first bytes {magic}): pcap, pcapng, stamp files, \
         ERF and MoonSniff's mscap are known, plain or compressed with zstd, gzip, xz, lz4 or bzip2; \
         name an mscap file *.mscap or give {format} mscap, and an ERF file *.erf or {format} erf",
        format = option("format")
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
    /// A pipe, a terminal or another file that can be read once only.
    #[error(
        "{path}: not a file that can be read twice, which matching needs: save the capture first \
         (cat {path} > FILE, or let the capturing program write it), and give that file"
    )]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The standard input.
    #[error(
        "-: the standard input cannot be read twice, which matching needs: save the capture first \
         (… > FILE), and give that file"
    )]
    StandardInput,
    /// A compression that is not undone here.
    #[error(
        "{path}: compressed with {compression}, which tailtap does not undo: unpack it first \
         ({command}), or compress it with zstd, gzip, xz, lz4 or bzip2"
    )]
    UnknownCompression {
        /// The file.
        path: PathBuf,
        /// The compression.
        compression: &'static str,
        /// What undoes it.
        command: String,
    },
    /// The stamps are nanoseconds and the file says otherwise.
    #[error(
        "{path}: its stamps are nanoseconds, but {says}: evaluate with {} ingress, egress \
         or both, whichever captures are so; {mend}",
        option("nanoseconds")
    )]
    Nanoseconds {
        /// The file.
        path: PathBuf,
        /// What the file says instead.
        says: &'static str,
        /// What mends the file.
        mend: &'static str,
    },
    /// The packets are of a link type that is not read.
    #[error(
        "{path}: link type {linktype}{} is not read: capture on an interface of Ethernet or IP, or on \
         'any' (tcpdump -L lists the link types of an interface, -y chooses one)",
        super::link::name(*linktype)
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// LINKTYPE_ value of the file.
        linktype: u32,
    },
    /// A file of several that make one capture is of another format.
    #[error(
        "{path}: {is}, where the files before it are {others}: files of one capture have one format"
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        is: &'static str,
        /// That of the others.
        others: &'static str,
    },
    /// Files whose times do not tell how they follow each other.
    #[error(
        "{0}: MoonSniff's times begin anywhere and do not tell how several files follow each other: \
         join them in their order first (cat FILES > FILE)"
    )]
    Unordered(PathBuf),
    /// No interface has the name that was given.
    #[error("{path}: no interface is called '{name}': there are {known}")]
    NoInterface {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The compressed data is broken before the first packet.
    #[error("{path}: the {compression} data is broken: {source}")]
    Compression {
        /// The file.
        path: PathBuf,
        /// Its name.
        compression: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl CaptureError {
    /// The same of a file that people know by another name.
    pub(super) fn called(mut self, name: &Path) -> Self {
        match &mut self {
            Self::StandardInput => {}
            Self::Empty(path)
            | Self::Unordered(path)
            | Self::HeaderCut(path)
            | Self::Io { path, .. }
            | Self::UnknownFormat { path, .. }
            | Self::NotAFile { path }
            | Self::UnknownCompression { path, .. }
            | Self::Nanoseconds { path, .. }
            | Self::LinkType { path, .. }
            | Self::OtherFormat { path, .. }
            | Self::NoInterface { path, .. }
            | Self::Compression { path, .. } => name.clone_into(path),
        }
        self
    }
}

/// A header that cannot be used, before the path is known.
pub(super) enum HeaderError {
    Cut,
    Unknown,
    LinkType(u32),
}

impl HeaderError {
    pub(super) fn at(self, path: &Path, head: &[u8]) -> CaptureError {
        match self {
            Self::Cut => CaptureError::HeaderCut(path.to_owned()),
            Self::Unknown => {
                let magic = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                CaptureError::UnknownFormat { path: path.to_owned(), magic }
            }
            Self::LinkType(linktype) => CaptureError::LinkType { path: path.to_owned(), linktype },
        }
    }
}

/// What makes a capture unusable as a whole and is found further in, before the path is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All packets are of link types that are not read, such as this one.
    LinkType(u32),
    /// The stamps are nanoseconds and the file says otherwise.
    Nanoseconds {
        /// What the file says.
        says: &'static str,
        /// What mends it.
        mend: &'static str,
    },
}

impl Refusal {
    pub(super) fn at(self, path: &Path) -> CaptureError {
        let path = path.to_owned();
        match self {
            Self::LinkType(linktype) => CaptureError::LinkType { path, linktype },
            Self::Nanoseconds { says, mend } => CaptureError::Nanoseconds { path, says, mend },
        }
    }
}

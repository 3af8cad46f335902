//! The bytes of a capture file: a memory map that moves along a plain file, a sliding buffer over a
//! compressed one. Both hold a bounded part of the file, however long it is.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use memmap2::{Advice, Mmap, MmapOptions};

use super::CaptureError;

/// How much is decompressed at a time.
const CHUNK: usize = 1 << 20;
/// How much of a plain file is mapped at a time.
const WINDOW: usize = 1 << 25;
/// Maps start at multiples of this: no page of any machine is larger.
const PAGE: u64 = 1 << 16;

pub(super) enum Input {
    Mapped {
        file: File,
        /// Where reading ends: the size of the file, or earlier.
        size: u64,
        map: Mmap,
        /// Position of the map in the file.
        base: u64,
        /// The bytes not yet consumed are `map[at..]`.
        at: usize,
    },
    Stream {
        reader: Box<dyn Read + Send>,
        compression: &'static str,
        buffer: Vec<u8>,
        /// The bytes not yet consumed are `buffer[at..end]`.
        at: usize,
        end: usize,
        /// Bytes consumed before `buffer[0]`.
        dropped: u64,
        eof: bool,
    },
}

impl Input {
    /// Opens a file; zstd and gzip are recognised by their magic.
    pub(super) fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // The key is looked for before the evaluation reads from the start again.
            return Err(io(std::io::Error::other("not a regular file: save the capture first")));
        }
        if metadata.len() == 0 {
            return Err(CaptureError::Empty(path.to_owned()));
        }
        let map = map_file(&file, 0, metadata.len().min(WINDOW as u64)).map_err(io)?;
        let broken = |compression| {
            move |source| CaptureError::Compression { path: path.to_owned(), compression, source }
        };
        match &map[..] {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = zstd::Decoder::new(file).map_err(broken("zstd"))?;
                Ok(Self::stream(Box::new(decoder), "zstd"))
            }
            [0x1f, 0x8b, ..] => {
                let decoder = MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file));
                Ok(Self::stream(Box::new(decoder), "gzip"))
            }
            _ => Ok(Self::Mapped { file, size: metadata.len(), map, base: 0, at: 0 }),
        }
    }

    /// Goes on at `position`, and at `end` at the latest. Only for plain files.
    pub(super) fn seek(&mut self, position: u64, end: u64) -> std::io::Result<()> {
        let Self::Mapped { file, size, map, base, at } = self else {
            return Err(std::io::Error::other("a compressed file can only be read from its start"));
        };
        *size = end.min(file.metadata()?.len());
        let position = position.min(*size);
        *base = position / PAGE * PAGE;
        *at = (position - *base) as usize;
        *map = map_file(file, *base, (*size - *base).min(WINDOW as u64))?;
        Ok(())
    }

    fn stream(reader: Box<dyn Read + Send>, compression: &'static str) -> Self {
        Self::Stream {
            reader,
            compression,
            buffer: Vec::new(),
            at: 0,
            end: 0,
            dropped: 0,
            eof: false,
        }
    }

    /// The compression, if any.
    pub(super) fn compression(&self) -> Option<&'static str> {
        match self {
            Self::Mapped { .. } => None,
            Self::Stream { compression, .. } => Some(compression),
        }
    }

    /// The bytes at hand that were not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped { map, at, .. } => &map[*at..],
            Self::Stream { buffer, at, end, .. } => &buffer[*at..*end],
        }
    }

    /// Size of the file, if it is not compressed.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Mapped { size, .. } => Some(*size),
            Self::Stream { .. } => None,
        }
    }

    /// Position in the (decompressed) file.
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Mapped { base, at, .. } => base + *at as u64,
            Self::Stream { at, dropped, .. } => dropped + *at as u64,
        }
    }

    pub(super) fn consume(&mut self, count: usize) {
        match self {
            Self::Mapped { at, .. } | Self::Stream { at, .. } => *at += count,
        }
    }

    /// Tries to have at least `count` bytes at hand; fewer remain only at the end of the file.
    pub(super) fn want(&mut self, count: usize) -> std::io::Result<()> {
        let (reader, buffer, at, end, dropped, eof) = match self {
            Self::Stream { reader, buffer, at, end, dropped, eof, .. } => {
                (reader, buffer, at, end, dropped, eof)
            }
            Self::Mapped { file, size, map, base, at } => {
                let position = *base + *at as u64;
                let mapped_to = *base + map.len() as u64;
                if map.len() - *at < count && mapped_to < *size {
                    // A file that was cut meanwhile ends where it ends now.
                    *size = (*size).min(file.metadata()?.len()).max(position);
                    *base = position / PAGE * PAGE;
                    *at = (position - *base) as usize;
                    let length = (*at + count).max(WINDOW) as u64;
                    *map = map_file(file, *base, length.min(*size - *base))?;
                }
                return Ok(());
            }
        };
        while *end - *at < count && !*eof {
            if *at > 0 {
                buffer.copy_within(*at..*end, 0);
                *dropped += *at as u64;
                *end -= *at;
                *at = 0;
            }
            if buffer.len() < *end + CHUNK {
                buffer.resize(*end + CHUNK, 0);
            }
            match reader.read(&mut buffer[*end..]) {
                Ok(0) => *eof = true,
                Ok(read) => *end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Maps `length` bytes of a file from `position` on for reading.
// Another process that cuts the file off within the part that is mapped ends this one with SIGBUS.
// That part is read within milliseconds; it is the price of reading three times as fast as by copy.
#[allow(unsafe_code)]
fn map_file(file: &File, position: u64, length: u64) -> std::io::Result<Mmap> {
    let mut options = MmapOptions::new();
    options.offset(position).len(length as usize);
    // SAFETY: the map is read-only and private to this crate, and only read as bytes.
    let map = unsafe { options.map(file)? };
    // Hints; a kernel that does not take them still reads.
    let _ = map.advise(Advice::Sequential);
    let _ = map.advise(Advice::PopulateRead);
    Ok(map)
}

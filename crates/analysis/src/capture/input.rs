//! The bytes of a capture file: a buffer that slides along it, whether it is compressed or not, and
//! holds a bounded part of it, however long it is.
//!
//! A plain file is read by copy and not through a map: its bytes come into the processor's cache
//! with it, where a map costs a page fault for every few pages, and threads that map and unmap stop
//! each other. A file that is cut off while it is read merely ends.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::CaptureError;

/// How much is decompressed at a time.
const CHUNK: usize = 1 << 20;
/// How much of a plain file is read at a time: little enough to stay in the processor's cache.
const PLAIN_CHUNK: usize = 1 << 18;

pub(super) struct Input {
    source: Source,
    buffer: Vec<u8>,
    /// The bytes not yet consumed are `buffer[at..end]`.
    at: usize,
    end: usize,
    /// Position of `buffer[0]` in the (decompressed) file.
    base: u64,
    eof: bool,
}

enum Source {
    Plain {
        file: File,
        /// Where reading ends: the size that the file had, or earlier.
        size: u64,
    },
    Stream {
        reader: Box<dyn Read + Send>,
        compression: &'static str,
    },
}

impl Input {
    /// Opens a file; zstd and gzip are recognised by their magic.
    pub(super) fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { path: path.to_owned(), source };
        // A pipe is not even opened: that may wait for another program for ever.
        let metadata = std::fs::metadata(path).map_err(|source| {
            if path == Path::new("-") { CaptureError::StandardInput } else { io(source) }
        })?;
        if metadata.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // The key is looked for before the evaluation reads from the start again.
            return Err(CaptureError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.len() == 0 {
            return Err(CaptureError::Empty(path.to_owned()));
        }
        let mut magic = Vec::new();
        (&file).take(6).read_to_end(&mut magic).map_err(io)?;
        (&file).rewind().map_err(io)?;
        if let Some((compression, program)) = foreign_compression(&magic) {
            let command = format!("{program} {}", path.display());
            return Err(CaptureError::UnknownCompression {
                path: path.to_owned(),
                compression,
                command,
            });
        }
        let broken = |compression| {
            move |source| CaptureError::Compression { path: path.to_owned(), compression, source }
        };
        let stream = |reader, compression| Source::Stream { reader, compression };
        let source = match magic[..] {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = zstd::Decoder::new(file).map_err(broken("zstd"))?;
                stream(Box::new(decoder), "zstd")
            }
            [0x1f, 0x8b, ..] => {
                let decoder = MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file));
                stream(Box::new(decoder), "gzip")
            }
            _ => Source::Plain { file, size: metadata.len() },
        };
        Ok(Self { source, buffer: Vec::new(), at: 0, end: 0, base: 0, eof: false })
    }

    /// Goes on at `position`, and at `end` at the latest. Only for plain files.
    pub(super) fn seek(&mut self, position: u64, end: u64) -> std::io::Result<()> {
        let Source::Plain { file, size } = &mut self.source else {
            return Err(std::io::Error::other("a compressed file can only be read from its start"));
        };
        *size = end.min(file.metadata()?.len());
        self.base = file.seek(SeekFrom::Start(position.min(*size)))?;
        (self.at, self.end, self.eof) = (0, 0, false);
        Ok(())
    }

    /// The compression, if any.
    pub(super) fn compression(&self) -> Option<&'static str> {
        match self.source {
            Source::Plain { .. } => None,
            Source::Stream { compression, .. } => Some(compression),
        }
    }

    /// The bytes at hand that were not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Size of the file, if it is not compressed.
    pub(super) fn size(&self) -> Option<u64> {
        match self.source {
            Source::Plain { size, .. } => Some(size),
            Source::Stream { .. } => None,
        }
    }

    /// Position in the (decompressed) file.
    pub(super) fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
    }

    /// Tries to have at least `count` bytes at hand; fewer remain only at the end of the file.
    pub(super) fn want(&mut self, count: usize) -> std::io::Result<()> {
        let Self { source, buffer, at, end, base, eof } = self;
        while *end - *at < count && !*eof {
            if *at > 0 {
                buffer.copy_within(*at..*end, 0);
                *base += *at as u64;
                *end -= *at;
                *at = 0;
            }
            let read = match source {
                Source::Plain { file, size } => {
                    let left = size.saturating_sub(*base + *end as u64);
                    let room = room(buffer, *end, PLAIN_CHUNK);
                    let room = &mut room[..left.min(PLAIN_CHUNK as u64) as usize];
                    file.read(room)
                }
                Source::Stream { reader, .. } => reader.read(room(buffer, *end, CHUNK)),
            };
            match read {
                Ok(0) => *eof = true,
                Ok(read) => *end += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The name of a compression that is not undone here, and what undoes it.
fn foreign_compression(magic: &[u8]) -> Option<(&'static str, &'static str)> {
    match magic {
        [0xfd, b'7', b'z', b'X', b'Z', 0x00] => Some(("xz", "xz -dk")),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Some(("bzip2", "bzip2 -dk")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("lz4", "lz4 -dk")),
        [0x89, b'L', b'Z', b'O', ..] => Some(("lzop", "lzop -dk")),
        [b'L', b'Z', b'I', b'P', ..] => Some(("lzip", "lzip -dk")),
        [0x1f, 0x9d, ..] => Some(("compress", "uncompress -k")),
        [b'P', b'K', 0x03, 0x04, ..] => Some(("zip", "unzip")),
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c] => Some(("7-Zip", "7z x")),
        _ => None,
    }
}

/// The part of a buffer from `end` on, where there is room for at least `chunk` bytes.
fn room(buffer: &mut Vec<u8>, end: usize, chunk: usize) -> &mut [u8] {
    if buffer.len() < end + chunk {
        buffer.resize(end + chunk, 0);
    }
    &mut buffer[end..]
}

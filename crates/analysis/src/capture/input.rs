//! The bytes of a capture file: a buffer that slides along it, whether it is compressed or not, and
//! holds a bounded part of it, however long it is.
//!
//! A plain file is read by copy and not through a map: its bytes come into the processor's cache
//! with it, where a map costs a page fault for every few pages, and threads that map and unmap stop
//! each other. A file that is cut off while it is read merely ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

use super::{CaptureError, Unreadable};

/// How much is decompressed at a time.
const CHUNK: usize = 1 << 20;
/// How much of a plain file is read at a time: little enough to stay in the processor's cache.
const PLAIN_CHUNK: usize = 1 << 18;
/// More memory than this is not given to what an xz file says that it needs, in KiB: `xz -9` takes 65 MiB.
const XZ_MEMORY_KIB: u32 = 1 << 18;

/// What names of compressed files end in.
pub(super) const SUFFIXES: [&str; 5] = [".zst", ".gz", ".xz", ".lz4", ".bz2"];

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
    /// Opens a file; compressions are recognised by their magic.
    pub(super) fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = Unreadable::io(path);
        // A pipe is not even opened: that may wait for another program for ever.
        let metadata = std::fs::metadata(path).map_err(|source| {
            if path == Path::new("-") { Unreadable::StandardInput.of(path) } else { io(source) }
        })?;
        if metadata.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // The key is looked for before the evaluation reads from the start again.
            return Err(Unreadable::NotAFile { given: path.to_owned() }.of(path));
        }
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.len() == 0 {
            return Err(Unreadable::Empty.of(path));
        }
        let mut magic = Vec::new();
        (&file).take(6).read_to_end(&mut magic).map_err(io)?;
        (&file).rewind().map_err(io)?;
        if let Some((compression, program)) = foreign_compression(&magic) {
            let command = format!("{program} {}", path.display());
            return Err(Unreadable::UnknownCompression { compression, command }.of(path));
        }
        let source = match compression(&magic) {
            None => Source::Plain { file, size: metadata.len() },
            Some((compression, open)) => {
                let broken = |source| Unreadable::Compression { compression, source }.of(path);
                let reader = open(BufReader::with_capacity(CHUNK, file)).map_err(broken)?;
                Source::Stream { reader, compression }
            }
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

/// Makes a reader of what a compressed file holds. Streams that follow each other are read as one.
type Open = fn(BufReader<File>) -> std::io::Result<Box<dyn Read + Send>>;

/// The compression that a file begins with, and what undoes it.
fn compression(magic: &[u8]) -> Option<(&'static str, Open)> {
    Some(match *magic {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            ("zstd", |file| Ok(Box::new(zstd::Decoder::with_buffer(file)?)))
        }
        [0x1f, 0x8b, ..] => ("gzip", |file| Ok(Box::new(MultiGzDecoder::new(file)))),
        [0xfd, b'7', b'z', b'X', b'Z', 0x00] => {
            ("xz", |file| Ok(Box::new(XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB))))
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => {
            ("lz4", |file| Ok(Box::new(Lz4Frames { file: Some(file), frame: None })))
        }
        // What follows is the start of a block, or the end of a file without one.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72] => {
            ("bzip2", |file| Ok(Box::new(MultiBzDecoder::new(file))))
        }
        _ => return None,
    })
}

/// The frames of an lz4 file: the library reads one, and says whether that was whole.
struct Lz4Frames {
    /// Where the next frame begins.
    file: Option<BufReader<File>>,
    frame: Option<lz4::Decoder<BufReader<File>>>,
}

impl Read for Lz4Frames {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(bytes)?;
                if read > 0 || bytes.is_empty() {
                    return Ok(read);
                }
            }
            if let Some(frame) = self.frame.take() {
                let (file, whole) = frame.finish();
                whole.map_err(|_| Error::from(ErrorKind::UnexpectedEof))?;
                self.file = Some(file);
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(lz4::Decoder::new(file)?);
        }
    }
}

/// The name of a compression that is not undone here, and what undoes it.
fn foreign_compression(magic: &[u8]) -> Option<(&'static str, &'static str)> {
    match magic {
        [0x02, 0x21, 0x4c, 0x18, ..] => Some(("lz4's legacy format", "lz4 -dk")),
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

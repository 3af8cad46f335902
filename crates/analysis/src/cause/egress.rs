//! What the stamps after the device say of cores and of queues.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::capture::CaptureError;
use crate::stamps::{HEADER_LEN, Header, RECORD_LEN};

/// How much of the file is read at a time.
const CHUNK: usize = RECORD_LEN << 14;

/// What was asked of the packets after the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// For each time asked for, the packets that left before it.
    pub positions: Vec<u64>,
    /// For each time asked for, the core of a packet that left then; none where nobody says.
    pub cpus: Vec<Option<u16>>,
}

impl Egress {
    /// Reads a stamp file. `times` ascend.
    pub fn read(path: &Path, times: &[u64]) -> Result<Self, CaptureError> {
        let mut stamps = Stamps::open(path)?;
        let mut found = Self::default();
        let mut packets = 0;
        // Whether any packet names a core but the first: files without cores hold zeros.
        let mut told = false;
        while stamps.refill()? {
            for bytes in stamps.records() {
                let (time, cpu) = decode(bytes);
                told |= cpu != 0;
                while let Some(&asked) = times.get(found.positions.len())
                    && asked <= time
                {
                    found.positions.push(packets);
                    found.cpus.push((asked == time).then_some(cpu));
                }
                packets += 1;
            }
        }
        found.positions.resize(times.len(), packets);
        found.cpus.resize(times.len(), None);
        if !told {
            found.cpus.fill(None);
        }
        Ok(found)
    }
}

/// The packets that left one core, in the order of time.
pub(super) struct Leaving {
    stamps: Stamps,
    /// The core; none for all of them.
    cpu: Option<u16>,
    /// The first that was not passed, among those that are in memory.
    place: usize,
}

impl Leaving {
    /// Reads a stamp file, from the packets on that left at a time. Its stamps ascend.
    pub(super) fn open(path: &Path, cpu: Option<u16>, from: u64) -> Result<Self, CaptureError> {
        let mut stamps = Stamps::open(path)?;
        stamps.seek(from)?;
        Ok(Self { stamps, cpu, place: 0 })
    }

    /// Whether one left within a stretch of time, the end inclusive, and none before it has that one.
    /// Stretches ascend.
    pub(super) fn any_within(&mut self, from: u64, until: u64) -> Result<bool, CaptureError> {
        let mut found = false;
        loop {
            for bytes in &self.stamps.records()[self.place..] {
                let (time, cpu) = decode(bytes);
                if self.cpu.is_none_or(|wanted| wanted == cpu) {
                    if time > until {
                        return Ok(found);
                    }
                    found |= time >= from;
                }
                self.place += 1;
            }
            if !self.stamps.refill()? {
                self.place = self.stamps.records().len();
                return Ok(found);
            }
            self.place = 0;
        }
    }
}

/// The time and the core of a record.
fn decode(bytes: &[u8; RECORD_LEN]) -> (u64, u16) {
    let time = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    (time, u16::from_le_bytes([bytes[14], bytes[15]]))
}

/// The records of a stamp file, some at a time.
struct Stamps {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    filled: usize,
}

impl Stamps {
    /// Reads the header.
    fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let mut header = [0; HEADER_LEN];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(CaptureError::HeaderCut(path.to_owned()));
            }
            read => read.map_err(io)?,
        }
        if Header::decode(&header).is_none() {
            let magic = header[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(CaptureError::UnknownFormat { path: path.to_owned(), magic });
        }
        Ok(Self { path: path.to_owned(), file, buffer: vec![0; CHUNK], filled: 0 })
    }

    /// Goes to the first record at a time or behind it, by halves.
    fn seek(&mut self, time: u64) -> Result<(), CaptureError> {
        let io = |source| CaptureError::Io { path: self.path.clone(), source };
        let length = self.file.metadata().map_err(io)?.len() as usize;
        let (mut from, mut until) = (0, length.saturating_sub(HEADER_LEN) / RECORD_LEN);
        let at = |record: usize| (HEADER_LEN + record * RECORD_LEN) as u64;
        while from < until {
            let middle = usize::midpoint(from, until);
            let mut bytes = [0; RECORD_LEN];
            self.file.read_exact_at(&mut bytes, at(middle)).map_err(io)?;
            if decode(&bytes).0 < time {
                from = middle + 1;
            } else {
                until = middle;
            }
        }
        self.file.seek(SeekFrom::Start(at(from))).map_err(io)?;
        Ok(())
    }

    /// Those in memory.
    fn records(&self) -> &[[u8; RECORD_LEN]] {
        self.buffer[..self.filled].as_chunks().0
    }

    /// Forgets those in memory and reads the next ones; `false` at the end.
    fn refill(&mut self) -> Result<bool, CaptureError> {
        let rest = self.filled % RECORD_LEN;
        self.buffer.copy_within(self.filled - rest..self.filled, 0);
        self.filled = rest;
        while self.filled < RECORD_LEN {
            match self.file.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(CaptureError::Io { path: self.path.clone(), source }),
                Ok(0) => return Ok(false),
                Ok(more) => self.filled += more,
            }
        }
        Ok(true)
    }
}

//! The packets of a source, one after the other.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::recent::{Counted, Recent};
use super::ways::Table;
use super::{Filter, Select, Source, add, frame, require_format};
use crate::capture::{
    Call, Capture, CaptureError, Content, Format, Mark, Notes, Packet, Sink, Unreadable,
};

/// Packets of a side's files that are not of the side, or not known to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// That were not chosen: of another interface, or of the other direction.
    pub others: u64,
    /// Whose direction nobody knows.
    pub undirected: u64,
    /// Exact copies of a packet that was taken.
    pub copies: u64,
}

/// An open source.
pub struct Feed {
    source: Source,
    capture: Capture,
    /// The file that follows.
    next: usize,
    /// What was found out about the files before.
    ended: Vec<(PathBuf, Notes)>,
    sieve: Option<Sieve>,
    taken: u64,
}

impl Feed {
    pub(super) fn open(source: Source) -> Result<Self, CaptureError> {
        let capture = source.open_file(&source.files[0].path)?;
        let format = capture.format();
        if source.filter.is_some() && (format.holds_ids() || format == Format::Marks) {
            return Err(Unreadable::NoFrames.of(capture.path()));
        }
        let sieve = (!source.takes_all()).then(|| Sieve::of(&source));
        Ok(Self { source, capture, next: 1, ended: Vec::new(), sieve, taken: 0 })
    }

    /// What people are told of the source.
    pub fn path(&self) -> &Path {
        self.source.name()
    }

    /// The format of its files.
    pub fn format(&self) -> Format {
        self.capture.format()
    }

    /// What was found out so far, about all files together.
    pub fn notes(&self) -> Notes {
        let mut all = match self.ended.split_first() {
            None => self.capture.notes().clone(),
            Some(((_, first), others)) => {
                let mut all = first.clone();
                others.iter().for_each(|(_, notes)| add(&mut all, notes));
                add(&mut all, self.capture.notes());
                all
            }
        };
        if let Some(Select::Interface(chosen)) = &self.source.select {
            let units = all.interfaces.iter().zip(0..);
            let units = units.filter(|(_, number)| chosen.iter().any(|one| one.is(*number)));
            all.unit_ns = units.map(|(one, _)| one.unit_ns).max().unwrap_or(all.unit_ns);
        }
        all
    }

    /// What was found out about each file, where there are several.
    pub fn files(&self) -> Vec<(PathBuf, Notes)> {
        if self.source.files.len() == 1 {
            return Vec::new();
        }
        let last = (self.capture.path().to_owned(), self.capture.notes().clone());
        self.ended.iter().cloned().chain([last]).collect()
    }

    /// Where the bytes of its only file lie.
    pub(crate) fn file(&self) -> &Path {
        &self.source.files[0].path
    }

    /// How many packets are not of the side.
    pub fn set_aside(&self) -> SetAside {
        self.sieve.as_ref().map_or_else(SetAside::default, |sieve| sieve.aside)
    }

    /// Position in the only file of the next record.
    pub(crate) fn position(&self) -> u64 {
        self.capture.position()
    }

    /// As [`Capture::seek`], of a plain source.
    pub(crate) fn seek(&mut self, offset: u64, end: Option<u64>) -> Result<(), CaptureError> {
        self.capture.seek(offset, end)
    }

    /// The size of the only file, if it is not compressed.
    pub(crate) fn size(&self) -> Option<u64> {
        self.capture.size().filter(|_| self.source.is_plain())
    }

    /// As [`Capture::marks`]; nothing where the source is not plain.
    pub(crate) fn marks(&mut self, step: u64) -> Result<Option<Vec<Mark>>, CaptureError> {
        if self.source.is_plain() { self.capture.marks(step) } else { Ok(None) }
    }

    /// About how many packets there are, judged by those read so far; unknown for compressed files.
    pub(crate) fn estimate(&self) -> Option<u64> {
        if self.source.is_plain() {
            return self.capture.estimate();
        }
        let sizes = self.source.files.iter().map(|file| std::fs::metadata(&file.path));
        let all = sizes.map(|found| found.map_or(0, |found| found.len())).sum::<u64>();
        let before = self.ended.iter().map(|(_, notes)| notes.size).sum::<u64>();
        let read = before + self.capture.size().map(|_| self.capture.position())?;
        (read > 0).then(|| (u128::from(self.taken) * u128::from(all) / u128::from(read)) as u64)
    }

    /// Hands up to `limit` further packets to `sink`. Returns `false` at the end.
    pub fn read(
        &mut self,
        limit: usize,
        mut sink: impl FnMut(Packet<'_>),
    ) -> Result<bool, CaptureError> {
        self.read_into(limit, &mut (&mut sink as Call<'_>))
    }

    /// As [`Self::read`], into any sink.
    pub fn read_into(&mut self, limit: usize, sink: &mut impl Sink) -> Result<bool, CaptureError> {
        let mut left = limit;
        loop {
            let before = self.capture.notes().packets;
            let more = match &mut self.sieve {
                None => {
                    let more = self.capture.read_into(left, sink)?;
                    left -= (self.capture.notes().packets - before) as usize;
                    more
                }
                Some(sieve) => {
                    let mut taken = 0;
                    let more = self.capture.read(left, |packet| {
                        if sieve.takes(&packet) {
                            taken += 1;
                            sink.take(packet);
                        }
                    })?;
                    left -= taken;
                    more
                }
            };
            let more = more || self.go_on()?;
            if left == 0 || !more {
                self.taken += (limit - left) as u64;
                return Ok(more);
            }
        }
    }

    /// Opens the file that follows, if there is one.
    fn go_on(&mut self) -> Result<bool, CaptureError> {
        let Some(file) = self.source.files.get(self.next) else { return Ok(false) };
        let next = self.source.open_file(&file.path)?;
        require_format(self.capture.format(), &next)?;
        let ended = std::mem::replace(&mut self.capture, next);
        self.ended.push((ended.path().to_owned(), ended.notes().clone()));
        self.next += 1;
        Ok(true)
    }
}

/// Takes the packets of a side from those of its files.
struct Sieve {
    filter: Option<Filter>,
    select: Option<Select>,
    counted: Option<Counted>,
    way: Option<(Table, bool)>,
    copies: Option<Recent>,
    aside: SetAside,
}

impl Sieve {
    fn of(source: &Source) -> Self {
        Self {
            filter: source.filter.clone(),
            select: source.select.clone(),
            counted: match source.select {
                Some(Select::Copy { key, .. }) => Some(Counted::by(key)),
                _ => None,
            },
            way: source.way.as_ref().map(|(ways, back)| (Table::of(ways), *back)),
            copies: source.without_copies.then(Recent::default),
            aside: SetAside::default(),
        }
    }

    fn takes(&mut self, packet: &Packet<'_>) -> bool {
        if let Some(filter) = &self.filter
            && let Content::Frame { bytes, wire_len, link } = packet.content
            && !filter.takes(bytes, wire_len, link)
        {
            self.aside.others += 1;
            return false;
        }
        if let Some(select) = &self.select {
            let copy = self.counted.as_mut().map(|counted| counted.count(packet));
            if !select.takes(packet, copy) {
                self.aside.others += 1;
                return false;
            }
        }
        if let Some((table, back)) = &self.way {
            match frame(packet.content).and_then(|(frame, link)| table.is_back(frame, link)) {
                Some(found) if found == *back => {}
                Some(_) => {
                    self.aside.others += 1;
                    return false;
                }
                None => {
                    self.aside.undirected += 1;
                    return false;
                }
            }
        }
        if let Some(copies) = &mut self.copies
            && copies.is_copy(packet)
        {
            self.aside.copies += 1;
            return false;
        }
        true
    }
}

//! Which packets of which files make a side.
//!
//! A [`Source`] is a value: files, and a choice among their packets. It opens as a [`Feed`], which hands
//! these packets on in the order of the files. Nothing behind it knows how many files there are.

mod feed;
mod recent;
mod select;
mod ways;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tailtap_wire::link::Link;

pub use feed::{Feed, SetAside};
pub(crate) use recent::Copies;
pub use select::{Names, ParseSelectError, Select, vlan};
pub(crate) use ways::Learned;
pub use ways::{End, Ways, ends, macs};

use crate::capture::{Capture, CaptureError, Content, Format, Marked, Notes, Trailer, Unreadable};
use crate::path_bytes;

/// A file of a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    #[serde(with = "path_bytes")]
    path: PathBuf,
}

/// The packets of a side: of which files, which of them, and how the files are read beyond what their
/// bytes say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What people are told of it.
    #[serde(with = "path_bytes")]
    name: PathBuf,
    /// In the order of their first stamps.
    files: Vec<File>,
    select: Option<Select>,
    /// A direction of what passes both ways: how it is known, and whether it is the way back.
    way: Option<(Ways, bool)>,
    /// Whether exact copies of a packet within moments count as one.
    pub(crate) without_copies: bool,
    format: Option<Format>,
    nanoseconds: bool,
    /// What is taken off the ends of frames, as was seen and the file does not say.
    pub(crate) fcs_len: usize,
    /// The trailers that the stamps are taken from, and those that were seen and left alone.
    pub(crate) trailer: Option<Trailer>,
    pub(crate) unused_trailer: Option<Trailer>,
    /// Packets below this level are left out, where packets have one.
    pub(crate) least_level: u8,
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self {
            name: path.to_owned(),
            files: vec![File { path: path.to_owned() }],
            select: None,
            way: None,
            without_copies: false,
            format: None,
            nanoseconds: false,
            fcs_len: 0,
            trailer: None,
            unused_trailer: None,
            least_level: 0,
        }
    }
}

impl From<&PathBuf> for Source {
    fn from(path: &PathBuf) -> Self {
        Self::from(path.as_path())
    }
}

impl From<&Self> for Source {
    fn from(source: &Self) -> Self {
        source.clone()
    }
}

impl Source {
    /// Files that follow each other in time, in whatever order they are given, as one side that people
    /// know by `name`. They must be of one format, whose times have a date.
    pub fn of_files(
        name: &Path,
        paths: &[PathBuf],
        format: Option<Format>,
    ) -> Result<Self, CaptureError> {
        let mut source = Self { name: name.to_owned(), format, ..Self::from(name) };
        if let [path] = paths {
            source.files = vec![File { path: path.clone() }];
            return Ok(source);
        }
        let mut found = Vec::with_capacity(paths.len());
        let mut kind: Option<Format> = None;
        for path in paths {
            let mut capture = Capture::open(path, format)?;
            if capture.format() == Format::Mscap {
                return Err(Unreadable::Unordered.of(path));
            }
            require_format(*kind.get_or_insert(capture.format()), &capture)?;
            let mut first_ns = None;
            capture.read(1, |packet| first_ns = Some(packet.time_ns))?;
            // Files without a packet come last: they are read, for what they say of themselves.
            found.push((first_ns.is_none(), first_ns, path.clone()));
        }
        found.sort();
        source.files = found.into_iter().map(|(.., path)| File { path }).collect();
        Ok(source)
    }

    /// The packets of this choice alone. Names of interfaces become their numbers. Reads the files as
    /// they say of themselves.
    pub fn selecting(mut self, select: Select) -> Result<Self, CaptureError> {
        self.select = Some(select.settled(&self)?);
        Ok(self)
    }

    /// The packets of one direction alone.
    #[must_use]
    pub fn going(mut self, ways: Ways, back: bool) -> Self {
        self.way = Some((ways, back));
        self
    }

    /// The same, read as the options say.
    pub(crate) fn told(mut self, format: Option<Format>, nanoseconds: bool) -> Self {
        (self.format, self.nanoseconds) = (format, nanoseconds);
        self
    }

    /// All packets of its files.
    pub(crate) fn whole(&self) -> Self {
        Self { select: None, way: None, without_copies: false, ..self.clone() }
    }

    /// What people are told of it.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// What was chosen of its packets.
    pub fn select(&self) -> Option<&Select> {
        self.select.as_ref()
    }

    /// Whether all packets of one file are taken, so that reading may begin anywhere in it.
    pub(crate) fn is_plain(&self) -> bool {
        self.files.len() == 1 && self.takes_all()
    }

    /// Whether no packet is left out.
    fn takes_all(&self) -> bool {
        self.select.is_none() && self.way.is_none() && !self.without_copies
    }

    /// Whether copies can be told from packets of their own: not where copies are what was chosen.
    pub(crate) fn may_have_copies(&self) -> bool {
        !matches!(self.select, Some(Select::Copy { .. }))
    }

    /// What each of its files says of itself that is a file of marks.
    pub(crate) fn marked(&self) -> Result<Vec<Marked>, CaptureError> {
        let marked = |file: &File| Ok(self.open_file(&file.path)?.notes().marked.clone());
        let found: Result<Vec<_>, CaptureError> = self.files.iter().map(marked).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Begins to read.
    pub fn open(&self) -> Result<Feed, CaptureError> {
        Feed::open(self.clone())
    }

    fn open_file(&self, path: &Path) -> Result<Capture, CaptureError> {
        let name = if self.files.len() == 1 { &self.name } else { path };
        let mut capture = Capture::open_as(path, name, self.format)?;
        if self.nanoseconds {
            capture.take_for_nanoseconds();
        }
        capture.take_off(self.fcs_len);
        capture.take_level(self.least_level);
        if let Some(trailer) = self.trailer {
            capture.take_from(trailer);
        }
        Ok(capture)
    }
}

/// An error when a file of several is of another format than the first.
fn require_format(format: Format, capture: &Capture) -> Result<(), CaptureError> {
    if capture.format() == format {
        return Ok(());
    }
    let (is, others) = (capture.format().name(), format.name());
    Err(Unreadable::OtherFormat { is, others }.of(capture.path()))
}

/// Adds what was found out about a file that follows.
fn add(all: &mut Notes, next: &Notes) {
    all.packets += next.packets;
    all.damage = all.damage.take().or_else(|| next.damage.clone());
    all.skipped.merge(next.skipped.clone());
    all.unread.merge(&next.unread);
    all.foreign_linktype = next.foreign_linktype.or(all.foreign_linktype);
    all.unit_ns = all.unit_ns.max(next.unit_ns);
    all.fcs_len = all.fcs_len.max(next.fcs_len);
    all.trailer = all.trailer.or(next.trailer);
    all.unwrapped += next.unwrapped;
    all.tap = match (all.tap, next.tap) {
        (Some(mut one), Some(other)) => {
            one.seen += other.seen;
            one.lost += other.lost;
            Some(one)
        }
        (one, other) => one.or(other),
    };
    all.unclosed |= next.unclosed;
    all.clock = all.clock.or(next.clock);
    if let (Some(all), Some(next)) = (&mut all.marked, &next.marked) {
        all.samples.extend_from_slice(&next.samples);
        all.unsampled += next.unsampled;
        all.filtered += next.filtered;
        all.thinned += next.thinned;
    }
    all.size += next.size;
    all.resized = all.resized.or(next.resized);
    all.interfaces.extend_from_slice(next.interfaces.get(all.interfaces.len()..).unwrap_or(&[]));
}

/// The frame of a packet and what it begins with; nothing where the capture holds ids.
pub(crate) fn frame<'a>(content: Content<'a>) -> Option<(&'a [u8], Link)> {
    match content {
        Content::Frame { bytes, link, .. } => Some((bytes, link)),
        Content::Id(_) | Content::Mark { .. } => None,
    }
}

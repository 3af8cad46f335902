//! What a format must be able to do.

use std::path::Path;

use super::error::{HeaderError, Unreadable};
use super::{Notes, Sink, input};

/// How far a reader came with the bytes that it was given.
pub(super) enum Progress {
    /// It used this many bytes; more are needed for the next packet.
    More(usize),
    /// It used this many bytes and delivered as many packets as were asked for.
    Full(usize),
    /// After this many bytes something stands of which nothing can be made, and why.
    Damaged(usize, String),
}

/// Where a reader can go on behind damage.
pub(super) enum Recovery {
    /// A record begins so many bytes on.
    Record(usize),
    /// None begins in so many bytes.
    Nothing(usize),
}

/// Makes packets of the bytes of a file. Functions that are given are right for most formats.
pub(super) trait Reader: Sized {
    /// Whether records hold packet ids in place of frames.
    const HOLDS_IDS: bool = false;
    /// Whether a file without a single byte is a capture without packets.
    const MAY_BE_EMPTY: bool = false;
    /// Whether [`Self::find`] looks at the bytes: in formats whose records have one length it counts.
    const SEARCHES: bool = true;

    /// Whether a file is of this format, by its first bytes or its name.
    fn recognises(head: &[u8], path: &Path) -> bool;

    /// Reads the header at the start of a file. Returns its length, which may be 0.
    fn open(head: &[u8], notes: &mut Notes) -> Result<(Self, usize), HeaderError>;

    /// Hands at most `limit` packets to `sink`. `bytes` begin with a record.
    fn decode(&mut self, bytes: &[u8], limit: usize, sink: &mut impl Sink) -> Progress;

    /// Where the first record begins, in formats that can be read from any record on.
    fn first_record(&self) -> Option<u64> {
        None
    }

    /// In such formats, how far behind the start of `bytes`, which stand at `position` in the file,
    /// the next record seems to begin. No packet there is earlier than `since`, in seconds.
    fn find(&self, _bytes: &[u8], _position: u64, _since: u64) -> Option<usize> {
        None
    }

    /// Looks behind damage, which `bytes` begin with, for the next record that makes sense. Where it
    /// is not the end of the file that ends the bytes, they are at least [`super::LOOK_AHEAD`].
    fn recover(&mut self, bytes: &[u8], _ended: bool) -> Recovery {
        Recovery::Nothing(bytes.len())
    }

    /// Why the capture cannot be used as a whole, if that is known by now. `ended` says that no more
    /// will be read.
    fn refusal(&self, _ended: bool) -> Option<Unreadable> {
        None
    }

    /// Takes the stamps for nanoseconds, where the file says that they are microseconds.
    fn take_for_nanoseconds(&mut self) {}

    /// Takes so many bytes off the end of each frame of which the file does not say it: a frame
    /// check sequence.
    fn take_off(&mut self, _fcs_len: usize) {}

    /// Takes only packets of this level or above, where packets have one (see [`crate::marks`]).
    fn take_level(&mut self, _least: u8) {}

    /// Writes down what was found out so far.
    fn note(&self, _notes: &mut Notes) {}
}

/// Whether a file's name, less the suffix of a compression, ends so.
pub(super) fn has_suffix(path: &Path, suffix: &str) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let plain = input::SUFFIXES.iter().find_map(|compressed| name.strip_suffix(compressed));
    plain.unwrap_or(&name).ends_with(suffix)
}

//! The table of formats, and what a format must be able to do.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{HeaderError, Unreadable};
use super::{Notes, Sink, erf, input, markfile, mscap, pcap, pcapng, stampfile};

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

/// Makes an enumeration of the formats, and of their readers a type that passes every call on: a
/// call through a pointer for each packet would be slower.
macro_rules! formats {
    ($($(#[doc = $doc:literal])* $format:ident, $name:literal, $reader:ty;)*) => {
        /// A capture file format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Format {
            $($(#[doc = $doc])* $format,)*
        }

        impl Format {
            const ALL: &[Self] = &[$(Self::$format),*];

            /// The name used in options and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$format => $name,)*
                }
            }

            /// Whether its records hold packet ids in place of frames.
            pub fn holds_ids(self) -> bool {
                match self {
                    $(Self::$format => <$reader>::HOLDS_IDS,)*
                }
            }

            pub(super) fn may_be_empty(self) -> bool {
                match self {
                    $(Self::$format => <$reader>::MAY_BE_EMPTY,)*
                }
            }

            pub(super) fn searches(self) -> bool {
                match self {
                    $(Self::$format => <$reader>::SEARCHES,)*
                }
            }

            fn recognises(self, head: &[u8], path: &Path) -> bool {
                match self {
                    $(Self::$format => <$reader>::recognises(head, path),)*
                }
            }

            pub(super) fn open(
                self,
                head: &[u8],
                notes: &mut Notes,
            ) -> Result<(AnyReader, usize), HeaderError> {
                match self {
                    $(Self::$format => <$reader>::open(head, notes)
                        .map(|(reader, len)| (AnyReader::$format(reader), len)),)*
                }
            }
        }

        /// A reader of any format; its functions are those of [`Reader`].
        pub(super) enum AnyReader {
            $($format($reader),)*
        }

        impl AnyReader {
            #[inline]
            pub(super) fn decode(
                &mut self,
                bytes: &[u8],
                limit: usize,
                sink: &mut impl Sink,
            ) -> Progress {
                match self {
                    $(Self::$format(reader) => reader.decode(bytes, limit, sink),)*
                }
            }

            pub(super) fn first_record(&self) -> Option<u64> {
                match self {
                    $(Self::$format(reader) => reader.first_record(),)*
                }
            }

            pub(super) fn find(&self, bytes: &[u8], position: u64, since: u64) -> Option<usize> {
                match self {
                    $(Self::$format(reader) => reader.find(bytes, position, since),)*
                }
            }

            pub(super) fn recover(&mut self, bytes: &[u8], ended: bool) -> Recovery {
                match self {
                    $(Self::$format(reader) => reader.recover(bytes, ended),)*
                }
            }

            pub(super) fn refusal(&self, ended: bool) -> Option<Unreadable> {
                match self {
                    $(Self::$format(reader) => reader.refusal(ended),)*
                }
            }

            pub(super) fn take_for_nanoseconds(&mut self) {
                match self {
                    $(Self::$format(reader) => reader.take_for_nanoseconds(),)*
                }
            }

            pub(super) fn take_off(&mut self, fcs_len: usize) {
                match self {
                    $(Self::$format(reader) => reader.take_off(fcs_len),)*
                }
            }

            pub(super) fn take_level(&mut self, least: u8) {
                match self {
                    $(Self::$format(reader) => reader.take_level(least),)*
                }
            }

            pub(super) fn note(&self, notes: &mut Notes) {
                match self {
                    $(Self::$format(reader) => reader.note(notes),)*
                }
            }
        }
    };
}

// Files are recognised in this order: ERF and mscap are last because they go by the name.
formats! {
    /// Classic pcap: micro- or nanoseconds, either byte order.
    Pcap, "pcap", pcap::Decoder;
    /// pcapng.
    Pcapng, "pcapng", pcapng::Decoder;
    /// tailtap's own stamp file.
    Stamps, "stamps", stampfile::Decoder;
    /// tailtap's own file of marks: hashes of keys.
    Marks, "marks", markfile::Decoder;
    /// Endace's extensible record format.
    Erf, "erf", erf::Decoder;
    /// MoonSniff's mscap: 12-byte little-endian records of u64 nanoseconds and u32 id.
    Mscap, "mscap", mscap::Decoder;
}

/// Whether a file's name, less the suffix of a compression, ends so.
pub(super) fn has_suffix(path: &Path, suffix: &str) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name = name.unwrap_or_default();
    let plain = input::SUFFIXES.iter().find_map(|compressed| name.strip_suffix(compressed));
    plain.unwrap_or(&name).ends_with(suffix)
}

impl Format {
    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format of a file with these first bytes.
    pub(super) fn recognise(head: &[u8], path: &Path) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.recognises(head, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamps::MAGIC;

    #[test]
    fn every_format_has_a_name_of_its_own() {
        for &format in Format::ALL {
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        assert_eq!(Format::from_name("snoop"), None);
    }

    #[test]
    fn content_counts_before_the_name() {
        let recognise = |head: &[u8], name: &str| Format::recognise(head, Path::new(name));
        let pcap = 0xa1b2_3c4du32.to_le_bytes();
        for name in ["x", "x.pcap", "x.mscap"] {
            assert_eq!(recognise(&pcap, name), Some(Format::Pcap));
            assert_eq!(recognise(&MAGIC, name), Some(Format::Stamps));
        }
        for name in ["x.mscap", "X.MSCAP", "x.mscap.zst", "x.mscap.gz", "x.mscap.xz"] {
            assert_eq!(recognise(&[0; 12], name), Some(Format::Mscap));
        }
        for name in ["x.erf", "X.ERF.lz4", "x.erf.bz2"] {
            assert_eq!(recognise(&[0; 12], name), Some(Format::Erf));
        }
        assert_eq!(recognise(&[0; 12], "x.pcap"), None);
        assert_eq!(recognise(&[], "mscap"), None);
    }
}

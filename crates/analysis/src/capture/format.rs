//! The table of formats.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{HeaderError, Unreadable};
use super::reader::{Progress, Reader, Recovery};
use super::{Notes, Sink, erf, markfile, mscap, pcap, pcapng, stampfile};

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

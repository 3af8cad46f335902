//! The keys whose ids a tap can stamp.

use std::str::FromStr;

use tailtap_analysis::key::{Field, KeyKind, Place};

use super::program::MAX_KEY_WIDTH;

/// Where the packets that are stamped carry their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapKey {
    /// In MoonSniff's layout.
    Moonsniff,
    /// At a fixed place of the frame, at most [`MAX_KEY_WIDTH`] bytes wide.
    Field(Field),
}

impl TapKey {
    /// That of a number, if the kernel's side finds it.
    pub(super) fn of_field(field: Field) -> Option<Field> {
        (field.place == Place::Frame && field.width <= MAX_KEY_WIDTH).then_some(field)
    }
}

/// A text that names no key of a tap.
#[derive(Debug, thiserror::Error)]
#[error(
    "'{0}' is not a key of a tap: give moonsniff or OFFSET:WIDTH:le|be with a width of 1 to \
     {MAX_KEY_WIDTH} bytes (42:4:le, say)"
)]
pub struct ParseTapKeyError(String);

impl FromStr for TapKey {
    type Err = ParseTapKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = match text.parse() {
            Ok(KeyKind::Moonsniff) => Some(Self::Moonsniff),
            Ok(KeyKind::Field(field)) => Self::of_field(field).map(Self::Field),
            _ => None,
        };
        found.ok_or_else(|| ParseTapKeyError(text.into()))
    }
}

//! What whoever asked could ask for instead, by the name that it has there.
//!
//! No message of ours spells an option. To a caller in Rust `window` is a field; who calls from elsewhere
//! says once what such things are called there.

use std::sync::OnceLock;

/// What a parameter is called.
pub type Named = fn(&str) -> String;

static NAMED: OnceLock<Named> = OnceLock::new();

/// What to call the parameter `name` in a message that is made now.
pub fn option(name: &str) -> String {
    NAMED.get().map_or_else(|| name.to_owned(), |named| named(name))
}

/// From now on [`option`] says what `named` says, unless somebody said so before.
pub fn name_by(named: Named) {
    let _ = NAMED.set(named);
}

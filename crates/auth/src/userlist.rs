//! The users of `auth_file`.

/// The users of `auth_file`, by name.
#[derive(Debug, Default)]
pub struct Userlist;

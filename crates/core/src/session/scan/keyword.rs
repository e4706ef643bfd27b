//! The key words that matter.

/// A key word that decides something. `None` of them: any other word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    As,
    Delete,
    Distinct,
    Do,
    Except,
    Execute,
    Extract,
    Fetch,
    For,
    From,
    Group,
    Having,
    Insert,
    Intersect,
    Into,
    Is,
    Join,
    Lateral,
    Limit,
    Merge,
    Not,
    Offset,
    Only,
    Order,
    Ordinality,
    Overlay,
    Recursive,
    Returning,
    Select,
    Set,
    Substring,
    Table,
    Trim,
    Union,
    Update,
    Using,
    Values,
    Where,
    Window,
    With,
}

/// The longest word that is looked at.
const LEN_MAX: usize = 24;

/// A word in lower case, if it is short enough to be a key word.
pub(super) fn lower<'b>(word: &[u8], buffer: &'b mut [u8; LEN_MAX]) -> &'b [u8] {
    let Some(out) = buffer.get_mut(..word.len()) else {
        return b"";
    };
    out.copy_from_slice(word);
    out.make_ascii_lowercase();
    out
}

pub(super) fn buffer() -> [u8; LEN_MAX] {
    [0; LEN_MAX]
}

impl Keyword {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        Some(match lower(word, &mut buffer()) {
            b"as" => Self::As,
            b"delete" => Self::Delete,
            b"distinct" => Self::Distinct,
            b"do" => Self::Do,
            b"except" => Self::Except,
            b"execute" => Self::Execute,
            b"extract" => Self::Extract,
            b"fetch" => Self::Fetch,
            b"for" => Self::For,
            b"from" => Self::From,
            b"group" => Self::Group,
            b"having" => Self::Having,
            b"insert" => Self::Insert,
            b"intersect" => Self::Intersect,
            b"into" => Self::Into,
            b"is" => Self::Is,
            b"join" => Self::Join,
            b"lateral" => Self::Lateral,
            b"limit" => Self::Limit,
            b"merge" => Self::Merge,
            b"not" => Self::Not,
            b"offset" => Self::Offset,
            b"only" => Self::Only,
            b"order" => Self::Order,
            b"ordinality" => Self::Ordinality,
            b"overlay" => Self::Overlay,
            b"recursive" => Self::Recursive,
            b"returning" => Self::Returning,
            b"select" => Self::Select,
            b"set" => Self::Set,
            b"substring" => Self::Substring,
            b"table" => Self::Table,
            b"trim" => Self::Trim,
            b"union" => Self::Union,
            b"update" => Self::Update,
            b"using" => Self::Using,
            b"values" => Self::Values,
            b"where" => Self::Where,
            b"window" => Self::Window,
            b"with" => Self::With,
            _ => return None,
        })
    }
}

//! Statements and expressions.

/// A statement that works on the session's state, or looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Set {
        local: bool,
        name: String,
        /// `None`: DEFAULT.
        value: Option<String>,
    },
    /// RESET of a parameter, or of all.
    Reset(Option<String>),
    ResetAuthorization,
    /// SHOW of a parameter.
    Show(String),
    /// SET TRANSACTION: of the present transaction alone.
    SetTransaction,
    DiscardAll,
    DiscardTemp,
    DiscardSequences,
    DiscardPlans,
    /// DECLARE of a cursor: with HOLD or not.
    Declare {
        name: String,
        holds: bool,
    },
    Close(Option<String>),
    Listen(String),
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
    Prepare {
        name: String,
        /// The statement behind AS.
        body: String,
    },
    Execute(String),
    Deallocate(Option<String>),
    CreateTemp(String),
    Drop(String),
    /// Into a table: its triggers fire, for the first value.
    Insert {
        table: String,
        value: Expr,
    },
    Select(Select),
    /// A statement of the reading of the catalog: rows of this kind.
    ReadCatalog(String),
}

impl Statement {
    /// Does it take from a session whatever that holds of some kind?
    pub(crate) fn is_of_clean(&self) -> bool {
        match self {
            Self::Reset(None)
            | Self::DiscardAll
            | Self::DiscardTemp
            | Self::DiscardSequences
            | Self::Close(None)
            | Self::Unlisten(None) => true,
            Self::Select(select) => select.calls("pg_advisory_unlock_all"),
            _ => false,
        }
    }

    /// Does it ask what the session holds, and do nothing else?
    pub(crate) fn only_looks(&self) -> bool {
        match self {
            Self::Select(select) => {
                !select.calls("set_config") && !select.calls("pg_advisory_unlock_all")
            }
            // Before the look.
            Self::Set { local: true, .. } | Self::SetTransaction | Self::Show(_) => true,
            _ => false,
        }
    }
}

impl Select {
    /// Is this function among the columns?
    fn calls(&self, function: &str) -> bool {
        let own = self.columns.iter().any(|column| column.calls(function));
        own || self.next.as_ref().is_some_and(|next| next.calls(function))
    }
}

impl Expr {
    fn calls(&self, function: &str) -> bool {
        match self {
            Self::Call { name, args, .. } => {
                name == function || args.iter().any(|arg| arg.calls(function))
            }
            Self::Not(inner) | Self::IsNull(inner) => inner.calls(function),
            Self::Operator(_, left, right) => left.calls(function) || right.calls(function),
            _ => false,
        }
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expr {
    Null,
    Text(String),
    Parameter(usize),
    /// Of whichever source has it, or of the one that is named.
    Column(Option<String>, String),
    Call {
        name: String,
        args: Vec<Expr>,
        /// `FILTER (WHERE ...)`.
        filter: Option<Box<Expr>>,
    },
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Exists(Box<Select>),
    /// The one value of a SELECT in parentheses.
    Scalar(Box<Select>),
    Operator(String, Box<Expr>, Box<Expr>),
    /// Compared with each of an array: with ANY, or with ALL.
    Each {
        operator: String,
        left: Box<Expr>,
        array: Box<Expr>,
        all: bool,
    },
    Array(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
}

/// A SELECT, and those behind UNION ALL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    pub(super) columns: Vec<Expr>,
    pub(super) sources: Vec<Source>,
    pub(super) filter: Option<Expr>,
    pub(super) next: Option<Box<Select>>,
}

/// What stands in a FROM list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(super) relation: Relation,
    pub(super) alias: Option<String>,
    pub(super) names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Relation {
    /// A table, a view or a function without arguments.
    Named(String),
    Values(Vec<Vec<Expr>>),
    /// `ROWS FROM (unnest(..), ..)`: arrays side by side.
    Unnested(Vec<Expr>),
}

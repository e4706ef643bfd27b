//! The types of statements and expressions.

/// A statement that changes or reads session state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Set {
        local: bool,
        name: String,
        /// `None` is DEFAULT.
        value: Option<String>,
    },
    /// RESET of a parameter, or of all parameters.
    Reset(Option<String>),
    ResetAuthorization,
    /// SHOW of a parameter.
    Show(String),
    /// SET TRANSACTION, which affects only the present transaction.
    SetTransaction,
    DiscardAll,
    DiscardTemp,
    DiscardSequences,
    DiscardPlans,
    /// DECLARE of a cursor, WITH HOLD or without.
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
        /// The statement after AS.
        body: String,
    },
    Execute(String),
    Deallocate(Option<String>),
    CreateTemp(String),
    Drop(String),
    /// INSERT into a table, whose triggers fire for the first value.
    Insert {
        table: String,
        value: Expr,
    },
    Select(Select),
    /// A statement that reads the catalog: rows of this kind.
    ReadCatalog(String),
}

impl Statement {
    /// Returns whether the statement removes session state of some kind.
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

    /// Returns whether the statement only reads session state.
    pub(crate) fn only_reads_state(&self) -> bool {
        match self {
            Self::Select(select) => {
                !select.calls("set_config") && !select.calls("pg_advisory_unlock_all")
            }
            // The statements before an inspection.
            Self::Set { local: true, .. } | Self::SetTransaction | Self::Show(_) => true,
            _ => false,
        }
    }
}

impl Select {
    /// Returns whether this function is among the columns.
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
    /// A column of any source, or of the named source.
    Column(Option<String>, String),
    Call {
        name: String,
        args: Vec<Expr>,
        /// `FILTER (WHERE ...)`.
        filter: Option<Box<Expr>>,
    },
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Exists(Box<Select>),
    /// A SELECT in parentheses that returns one value.
    Scalar(Box<Select>),
    Operator(String, Box<Expr>, Box<Expr>),
    /// A comparison with each element of an array, by ANY or ALL.
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

/// A SELECT, and further ones after UNION ALL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Select {
    pub(super) columns: Vec<Expr>,
    pub(super) sources: Vec<Source>,
    pub(super) filter: Option<Expr>,
    pub(super) next: Option<Box<Select>>,
}

/// An item of a FROM list.
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
    /// `ROWS FROM (unnest(..), ..)`: arrays as columns of one table.
    Unnested(Vec<Expr>),
}

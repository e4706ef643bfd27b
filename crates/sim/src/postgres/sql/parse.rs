//! Parses tokens into statements and expressions. The parser refuses anything that it does not understand.

use pgweir_core::session::{ANY_FOREIGN_CODE, MAY_KEEP_STATE};

use super::{
    syntax::{Expr, Relation, Select, Source, Statement},
    token::{Token, lex},
};

/// Returns the statement of this text, or `None` for an unknown one.
pub(crate) fn parse(text: &str) -> Option<Statement> {
    // No role of the model is a superuser or replicates, and all functions are in SQL or PL/pgSQL.
    let text = text.replacen(MAY_KEEP_STATE, "false", 1);
    let text = &text.replacen(ANY_FOREIGN_CODE, "false", 1);
    let tokens = lex(text)?;
    if let Some(kind) = kind_of_facts(&tokens) {
        return Some(Statement::ReadCatalog(kind));
    }
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
    };
    let statement = parser.statement(text)?;
    parser.ends().then_some(statement)
}

/// Catalogs that only the pooler's reading of the catalog names.
const CATALOGS: [&str; 16] = [
    "pg_database",
    "pg_proc",
    "pg_get_catalog_foreign_keys",
    "pg_language",
    "pg_event_trigger",
    "pg_class",
    "pg_aggregate",
    "pg_rewrite",
    "pg_trigger",
    "pg_constraint",
    "pg_inherits",
    "pg_cast",
    "pg_operator",
    "pg_type",
    "pg_range",
    "pg_am",
];

/// Finds the first column of the rows, in a statement by which the pooler reads the catalog.
fn kind_of_facts(tokens: &[Token]) -> Option<String> {
    let is = |token: &Token, word: &str| matches!(token, Token::Word(own) if own == word);
    let (first, rest) = tokens.split_first()?;
    let rest = rest
        .strip_prefix(&[Token::Word("distinct".to_owned())])
        .unwrap_or(rest);
    let Some(Token::Text(kind)) = rest.first().filter(|_| is(first, "select")) else {
        return None;
    };
    let catalogs = || {
        rest.iter()
            .any(|token| CATALOGS.iter().any(|own| is(token, own)))
    };
    (kind == "end" && rest.len() == 1 || catalogs()).then(|| kind.clone())
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl Parser<'_> {
    fn ends(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Skips these words if they come next.
    fn takes(&mut self, words: &str) -> bool {
        let found = words.split(' ').enumerate().all(|(offset, word)| {
            matches!(self.tokens.get(self.at + offset), Some(Token::Word(own)) if own == word)
        });
        if found {
            self.at += words.split(' ').count();
        }
        found
    }

    fn symbol(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word(name) | Token::Quoted(name) => Some(name),
            _ => None,
        }
    }

    /// Parses a name with dots. Of a name in `pg_catalog`, only the last part counts.
    fn dotted(&mut self) -> Option<String> {
        let mut name = self.name()?;
        while self.symbol('.') {
            let next = self.name()?;
            name = match name.as_str() {
                "pg_catalog" => next,
                _ => format!("{name}.{next}"),
            };
        }
        Some(name)
    }

    fn statement(&mut self, text: &str) -> Option<Statement> {
        if self.takes("select") {
            return self.select().map(Statement::Select);
        }
        if self.takes("set transaction") {
            self.at = self.tokens.len();
            return Some(Statement::SetTransaction);
        }
        if self.takes("set") {
            return self.set();
        }
        if self.takes("reset") {
            return self.reset();
        }
        if self.takes("show") {
            return self.dotted().map(Statement::Show);
        }
        if self.takes("discard") {
            return Some(match self.name()?.as_str() {
                "all" => Statement::DiscardAll,
                "temp" | "temporary" => Statement::DiscardTemp,
                "sequences" => Statement::DiscardSequences,
                "plans" => Statement::DiscardPlans,
                _ => return None,
            });
        }
        if self.takes("prepare") {
            return self.prepare(text);
        }
        if self.takes("deallocate") {
            self.takes("prepare");
            return self.all_or_name().map(Statement::Deallocate);
        }
        self.of_objects()
    }

    /// Parses statements on cursors, channels and tables.
    fn of_objects(&mut self) -> Option<Statement> {
        if self.takes("execute") {
            return self.name().map(Statement::Execute);
        }
        if self.takes("close") {
            return self.all_or_name().map(Statement::Close);
        }
        if self.takes("declare") {
            let name = self.name()?;
            self.takes("no scroll");
            let holds = self.takes("cursor with hold for") || !self.takes("cursor for");
            self.at = self.tokens.len();
            return Some(Statement::Declare { name, holds });
        }
        if self.takes("listen") {
            return self.name().map(Statement::Listen);
        }
        if self.takes("unlisten") {
            return match self.symbol('*') {
                true => Some(Statement::Unlisten(None)),
                false => self.name().map(|name| Statement::Unlisten(Some(name))),
            };
        }
        if self.takes("notify") {
            let channel = self.name()?;
            let payload = match self.symbol(',') {
                true => match self.next()? {
                    Token::Text(payload) => payload,
                    _ => return None,
                },
                false => String::new(),
            };
            return Some(Statement::Notify { channel, payload });
        }
        if self.takes("create temp table") || self.takes("create temporary table") {
            let name = self.name()?;
            self.at = self.tokens.len();
            return Some(Statement::CreateTemp(name));
        }
        if self.takes("drop table") {
            return self.name().map(Statement::Drop);
        }
        if self.takes("insert into") {
            let table = self.name()?;
            let starts = self.takes("values") && self.symbol('(');
            let value = starts.then(|| self.expr())??;
            return self
                .symbol(')')
                .then_some(Statement::Insert { table, value });
        }
        None
    }

    fn all_or_name(&mut self) -> Option<Option<String>> {
        if self.takes("all") {
            return Some(None);
        }
        self.name().map(Some)
    }

    fn set(&mut self) -> Option<Statement> {
        let local = self.takes("local");
        self.takes("session");
        let name = self.dotted()?.to_ascii_lowercase();
        let name = match name.as_str() {
            "time" if self.takes("zone") => "timezone".to_owned(),
            _ => name,
        };
        // RESET ROLE has nothing after the word.
        let is_plain = matches!(name.as_str(), "role" | "timezone");
        if !self.symbol('=') && !self.takes("to") && !is_plain {
            return None;
        }
        if self.takes("default") {
            return Some(Statement::Set {
                local,
                name,
                value: None,
            });
        }
        let mut values = Vec::new();
        loop {
            values.push(match self.next()? {
                Token::Word(value)
                | Token::Quoted(value)
                | Token::Text(value)
                | Token::Number(value) => value,
                _ => return None,
            });
            if !self.symbol(',') {
                break;
            }
        }
        let value = Some(values.join(", "));
        Some(Statement::Set { local, name, value })
    }

    fn reset(&mut self) -> Option<Statement> {
        if self.takes("session authorization") {
            return Some(Statement::ResetAuthorization);
        }
        if self.takes("all") {
            return Some(Statement::Reset(None));
        }
        let name = self.dotted()?.to_ascii_lowercase();
        Some(Statement::Reset(Some(name)))
    }

    /// Parses `PREPARE name AS statement`.
    fn prepare(&mut self, text: &str) -> Option<Statement> {
        let name = self.name()?;
        if !self.takes("as") {
            return None;
        }
        self.at = self.tokens.len();
        let lower = text.to_ascii_lowercase();
        let body = text[lower.find(" as ")? + 4..].trim().to_owned();
        Some(Statement::Prepare { name, body })
    }

    fn select(&mut self) -> Option<Select> {
        let columns = self.columns()?;
        let mut sources = Vec::new();
        let mut filter = None;
        if self.takes("from") {
            sources.push(self.source()?);
            while self.symbol(',') || self.takes("join") || self.takes("cross join") {
                sources.push(self.source()?);
                if self.takes("on") {
                    filter = and(filter, self.expr()?);
                }
            }
        }
        if self.takes("where") {
            filter = and(filter, self.expr()?);
        }
        let next = match self.takes("union all select") {
            true => Some(Box::new(self.select()?)),
            false => None,
        };
        Some(Select {
            columns,
            sources,
            filter,
            next,
        })
    }

    fn columns(&mut self) -> Option<Vec<Expr>> {
        let mut columns = Vec::new();
        let is_end = |word: &str| matches!(word, "from" | "where" | "union");
        loop {
            match self.peek() {
                None | Some(Token::Symbol(')')) => break,
                Some(Token::Word(word)) if is_end(word) => break,
                _ => columns.push(self.expr()?),
            }
            if self.takes("as") {
                self.name()?;
            }
            if !self.symbol(',') {
                break;
            }
        }
        Some(columns)
    }

    fn source(&mut self) -> Option<Source> {
        let relation = if self.symbol('(') {
            let values = self.takes("values").then(|| self.values())??;
            self.symbol(')').then_some(Relation::Values(values))?
        } else if self.takes("rows from") {
            self.unnested()?
        } else {
            let name = self.dotted()?;
            if self.symbol('(') && !self.symbol(')') {
                return None;
            }
            Relation::Named(name)
        };
        let is_end = |word: &str| matches!(word, "where" | "union" | "join" | "on" | "cross");
        let has_alias =
            self.takes("as") || matches!(self.peek(), Some(Token::Word(word)) if !is_end(word));
        let alias = match has_alias {
            true => Some(self.name()?),
            false => None,
        };
        let mut names = Vec::new();
        if alias.is_some() && self.symbol('(') {
            loop {
                names.push(self.name()?);
                if !self.symbol(',') {
                    break;
                }
            }
            self.symbol(')').then_some(())?;
        }
        Some(Source {
            relation,
            alias,
            names,
        })
    }

    /// Parses `(unnest(array), ...)`.
    fn unnested(&mut self) -> Option<Relation> {
        self.symbol('(').then_some(())?;
        let mut arrays = Vec::new();
        for call in self.list(')')? {
            match call {
                Expr::Call { name, mut args, .. } if name == "unnest" && args.len() == 1 => {
                    arrays.append(&mut args);
                }
                _ => return None,
            }
        }
        Some(Relation::Unnested(arrays))
    }

    fn values(&mut self) -> Option<Vec<Vec<Expr>>> {
        let mut rows = Vec::new();
        loop {
            self.symbol('(').then_some(())?;
            rows.push(self.list(')')?);
            if !self.symbol(',') {
                return Some(rows);
            }
        }
    }

    /// Parses expressions up to this symbol, and skips the symbol.
    fn list(&mut self, end: char) -> Option<Vec<Expr>> {
        let mut list = Vec::new();
        if self.symbol(end) {
            return Some(list);
        }
        loop {
            list.push(self.expr()?);
            if !self.symbol(',') {
                break;
            }
        }
        self.symbol(end).then_some(list)
    }

    fn expr(&mut self) -> Option<Expr> {
        let mut left = self.conjunction()?;
        while self.takes("or") {
            left = operator("or", left, self.conjunction()?);
        }
        Some(left)
    }

    fn conjunction(&mut self) -> Option<Expr> {
        let mut left = self.negation()?;
        while self.takes("and") {
            left = operator("and", left, self.negation()?);
        }
        Some(left)
    }

    fn negation(&mut self) -> Option<Expr> {
        if self.takes("not") {
            return Some(Expr::Not(Box::new(self.negation()?)));
        }
        let mut left = self.primary()?;
        loop {
            if self.takes("is null") {
                left = Expr::IsNull(Box::new(left));
            } else if self.takes("is not null") {
                left = Expr::Not(Box::new(Expr::IsNull(Box::new(left))));
            } else if let Some(name) = self.operator() {
                left = match (self.takes("any"), self.takes("all")) {
                    (false, false) => operator(&name, left, self.primary()?),
                    (_, all) => self.each(name, left, all)?,
                };
            } else {
                return Some(left);
            }
        }
    }

    fn each(&mut self, operator: String, left: Expr, all: bool) -> Option<Expr> {
        self.symbol('(').then_some(())?;
        let array = self.expr()?;
        self.symbol(')').then_some(())?;
        Some(Expr::Each {
            operator,
            left: Box::new(left),
            array: Box::new(array),
            all,
        })
    }

    /// Parses `=`, `<>`, `/`, also as `OPERATOR(pg_catalog.=)`.
    fn operator(&mut self) -> Option<String> {
        let is_spelled = self.takes("operator");
        if is_spelled {
            (self.symbol('(') && self.takes("pg_catalog") && self.symbol('.')).then_some(())?;
        }
        let mut name = String::new();
        while let Some(Token::Symbol(symbol @ ('=' | '<' | '>' | '/' | '*' | '+' | '-' | '|'))) =
            self.peek()
        {
            name.push(*symbol);
            self.at += 1;
        }
        let ends = !is_spelled || self.symbol(')');
        (ends && !name.is_empty()).then_some(name)
    }

    fn primary(&mut self) -> Option<Expr> {
        let found = match self.next()? {
            Token::Text(text) | Token::Number(text) => Expr::Text(text),
            Token::Parameter(number) => Expr::Parameter(number),
            Token::Symbol('(') if self.takes("select") => {
                let select = self.select()?;
                self.symbol(')').then(|| Expr::Scalar(Box::new(select)))?
            }
            Token::Symbol('(') => {
                let inner = self.expr()?;
                self.symbol(')').then_some(inner)?
            }
            Token::Word(word) if word == "null" => Expr::Null,
            Token::Word(word) if word == "true" => Expr::Text("t".to_owned()),
            Token::Word(word) if word == "false" => Expr::Text("f".to_owned()),
            Token::Word(word) if word == "case" => self.case()?,
            Token::Word(word) if word == "array" => {
                self.symbol('[').then_some(())?;
                Expr::Array(self.list(']')?)
            }
            Token::Word(word) if word == "exists" => {
                (self.symbol('(') && self.takes("select")).then_some(())?;
                let select = self.select()?;
                self.symbol(')').then(|| Expr::Exists(Box::new(select)))?
            }
            Token::Word(_) | Token::Quoted(_) => {
                self.at -= 1;
                self.named()?
            }
            Token::Symbol(_) => return None,
        };
        while self.symbol(':') {
            self.symbol(':').then_some(())?;
            self.dotted()?;
            if self.symbol('[') {
                self.symbol(']').then_some(())?;
            }
        }
        Some(found)
    }

    /// Parses a call or a column.
    fn named(&mut self) -> Option<Expr> {
        let name = self.dotted()?;
        if !self.symbol('(') {
            if matches!(name.as_str(), "session_user" | "current_user") {
                let args = Vec::new();
                return Some(call(name, args));
            }
            return Some(match name.split_once('.') {
                Some((source, column)) => Expr::Column(Some(source.to_owned()), column.to_owned()),
                None => Expr::Column(None, name),
            });
        }
        let args = match self.symbol('*') {
            true => self.symbol(')').then(Vec::new)?,
            false => self.list(')')?,
        };
        let mut filter = None;
        if self.takes("filter") {
            (self.symbol('(') && self.takes("where")).then_some(())?;
            filter = Some(Box::new(self.expr()?));
            self.symbol(')').then_some(())?;
        }
        Some(Expr::Call { name, args, filter })
    }

    fn case(&mut self) -> Option<Expr> {
        let mut branches = Vec::new();
        while self.takes("when") {
            let condition = self.expr()?;
            self.takes("then").then_some(())?;
            branches.push((condition, self.expr()?));
        }
        let otherwise = match self.takes("else") {
            true => Some(Box::new(self.expr()?)),
            false => None,
        };
        self.takes("end").then_some(Expr::Case(branches, otherwise))
    }
}

fn call(name: String, args: Vec<Expr>) -> Expr {
    Expr::Call {
        name,
        args,
        filter: None,
    }
}

fn operator(name: &str, left: Expr, right: Expr) -> Expr {
    Expr::Operator(name.to_owned(), Box::new(left), Box::new(right))
}

fn and(one: Option<Expr>, other: Expr) -> Option<Expr> {
    Some(match one {
        Some(one) => operator("and", one, other),
        None => other,
    })
}

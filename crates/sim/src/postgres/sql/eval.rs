//! Evaluates queries over the session state.

use super::{
    functions::{effect_of_call, is_harmless},
    state::{Failure, State, unrecognized},
    syntax::{Expr, Relation, Select, Source},
};

/// A value of a row or an expression; `None` is NULL.
type Value = Option<String>;

/// The rows of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows(pub(crate) Vec<Vec<Value>>);

/// The facts outside of the session state that a query may read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// The names of the protocol-level statements.
    pub(crate) named: Vec<String>,
    /// The login user.
    pub(crate) user: String,
    /// The next value of each sequence.
    pub(crate) next_value: u64,
    /// The database's OID.
    pub(crate) database: u32,
    /// Whether values that only clients may set are refused.
    pub(crate) refuses: bool,
}

/// The evaluation of a query.
pub(super) struct Machine<'m> {
    state: &'m mut State,
    facts: &'m Facts,
    /// The visible sources, with the columns of their present rows.
    visible: VisibleRows,
    /// The rows of an aggregate.
    group: Vec<VisibleRows>,
}

/// The present row of each source: the source's name, and its columns.
type VisibleRows = Vec<(String, Row)>;
/// Columns with their names.
type Row = Vec<(String, Value)>;

impl<'m> Machine<'m> {
    pub(super) fn new(state: &'m mut State, facts: &'m Facts) -> Self {
        Self {
            state,
            facts,
            visible: Vec::new(),
            group: Vec::new(),
        }
    }

    pub(super) fn select(&mut self, select: &Select) -> Result<Rows, Failure> {
        let mut rows = Vec::new();
        let mut part = Some(select);
        while let Some(select) = part {
            rows.extend(self.one_select(select)?);
            part = select.next.as_deref();
        }
        Ok(Rows(rows))
    }

    fn one_select(&mut self, select: &Select) -> Result<Vec<Vec<Value>>, Failure> {
        let outer = self.visible.clone();
        let mut seen: Vec<VisibleRows> = vec![outer.clone()];
        for source in &select.sources {
            let rows = self.rows_of(source)?;
            let name = source
                .alias
                .clone()
                .unwrap_or_else(|| match &source.relation {
                    Relation::Named(name) => name.clone(),
                    Relation::Values(_) | Relation::Unnested(_) => String::new(),
                });
            let joined = seen.iter().flat_map(|left| {
                rows.iter()
                    .map(|row| [left.clone(), vec![(name.clone(), row.clone())]].concat())
            });
            seen = joined.collect();
        }
        let mut kept = Vec::new();
        for visible in seen {
            self.visible = visible;
            let is_in = match &select.filter {
                Some(filter) => is_true(&self.eval(filter)?),
                None => true,
            };
            if is_in {
                kept.push(std::mem::take(&mut self.visible));
            }
        }
        let mut rows = Vec::new();
        if select.columns.iter().any(is_aggregate) {
            self.visible = outer.clone();
            let before = std::mem::replace(&mut self.group, kept);
            rows.push(self.eval_all(&select.columns)?);
            self.group = before;
        } else {
            for visible in kept {
                self.visible = visible;
                rows.push(self.eval_all(&select.columns)?);
            }
        }
        self.visible = outer;
        Ok(rows)
    }

    fn eval_all(&mut self, list: &[Expr]) -> Result<Vec<Value>, Failure> {
        list.iter().map(|expr| self.eval(expr)).collect()
    }

    /// Returns the rows of a source, with the columns' names.
    fn rows_of(&mut self, source: &Source) -> Result<Vec<Row>, Failure> {
        let (names, rows): (&[&str], Vec<Vec<Value>>) = match &source.relation {
            Relation::Values(rows) => {
                let rows: Result<_, _> = rows.iter().map(|row| self.eval_all(row)).collect();
                (&["column1", "column2", "column3"], rows?)
            }
            Relation::Unnested(arrays) => (&[], self.array_columns(arrays)?),
            Relation::Named(name) => self.relation(name)?,
        };
        let name_of = |at: usize| {
            let own = source.names.get(at).map(String::as_str);
            own.or(names.get(at).copied()).unwrap_or("?").to_owned()
        };
        let named = |row: Vec<Value>| {
            let columns = row.into_iter().enumerate();
            columns.map(|(at, value)| (name_of(at), value)).collect()
        };
        Ok(rows.into_iter().map(named).collect())
    }

    /// Returns arrays as columns. NULLs fill the shorter arrays.
    fn array_columns(&mut self, arrays: &[Expr]) -> Result<Vec<Vec<Value>>, Failure> {
        let mut columns = Vec::new();
        for array in self.eval_all(arrays)? {
            columns.push(elements(array)?);
        }
        let longest = columns.iter().map(Vec::len).max().unwrap_or_default();
        let row = |at| {
            let values = columns.iter().map(|column| column.get(at).cloned());
            values.map(Option::flatten).collect()
        };
        Ok((0..longest).map(row).collect())
    }

    fn relation(&self, name: &str) -> Result<(&'static [&'static str], Vec<Vec<Value>>), Failure> {
        let text = |text: &str| Some(text.to_owned());
        let state = &*self.state;
        Ok(match name {
            "pg_settings" => (
                &["name", "setting", "context", "source", "reset_val"],
                self.parameters(),
            ),
            "pg_prepared_statements" | "pg_prepared_statement" => {
                let sql = state.statements();
                let sql = sql.map(|(name, source)| vec![text(name), text(source), text("t")]);
                let named = self.facts.named.iter();
                let named = named.map(|name| vec![text(name), text(""), text("f")]);
                (
                    &["name", "statement", "from_sql"],
                    sql.chain(named).collect(),
                )
            }
            "pg_cursors" | "pg_cursor" => {
                let all = state.cursors().iter();
                let rows = all.map(|name| vec![text(name), text("t")]);
                (&["name", "is_holdable"], rows.collect())
            }
            "pg_locks" | "pg_lock_status" => {
                let all = state.locks().keys();
                let rows = all.map(|_| vec![text("advisory"), text(PID), text("t")]);
                (&["locktype", "pid", "granted"], rows.collect())
            }
            // In the model, a server process ends with its connection.
            "pg_stat_activity" => (&["pid"], Vec::new()),
            "pg_control_system" => (&["system_identifier"], vec![vec![text("77")]]),
            "pg_listening_channels" => {
                let rows = state.channels().iter().map(|name| vec![text(name)]);
                (&["pg_listening_channels"], rows.collect())
            }
            "pg_depend" => {
                let all = state.temporary().iter();
                let rows = all.map(|_| vec![text("2615"), text(TEMP_SCHEMA)]);
                (&["refclassid", "refobjid"], rows.collect())
            }
            "pg_class" => {
                let all = state.temporary().iter();
                let rows = all.map(|name| vec![text(name), text(TEMP_SCHEMA), text("t")]);
                (
                    &["relname", "relnamespace", "relpersistence"],
                    rows.collect(),
                )
            }
            other => return Err(Failure::Unknown(format!("the relation {other}"))),
        })
    }

    /// Returns `pg_settings`, without custom parameters and the role, as in PostgreSQL.
    fn parameters(&self) -> Vec<Vec<Value>> {
        let text = |text: &str| Some(text.to_owned());
        let all = self.state.defaults().keys();
        let listed = all.filter(|name| !matches!(name.as_str(), "role" | "session_authorization"));
        let row = |name: &String| {
            let source = match self.state.set().contains_key(name) {
                true => "session",
                false => "default",
            };
            let value = self.state.value(name).map(str::to_owned);
            let reset = self.state.defaults().get(name).cloned();
            let context = match name.as_str() {
                "is_superuser" => "internal",
                _ => "user",
            };
            vec![text(name), value, text(context), text(source), reset]
        };
        listed.map(row).collect()
    }

    pub(super) fn value_of(&mut self, expr: &Expr) -> Result<Value, Failure> {
        self.eval(expr)
    }

    fn eval(&mut self, expr: &Expr) -> Result<Value, Failure> {
        let truth = |truth: bool| Some(if truth { "t" } else { "f" }.to_owned());
        Ok(match expr {
            Expr::Null => None,
            Expr::Text(text) => Some(text.clone()),
            Expr::Parameter(number) => Some(format!("${number}")),
            Expr::Column(source, column) => self.column(source.as_deref(), column)?,
            Expr::Call { name, args, filter } if is_aggregate_name(name) => {
                self.aggregate(name, args, filter.as_deref())?
            }
            Expr::Call { name, args, .. } => {
                let args = self.eval_all(args)?;
                self.call(name, &args)?
            }
            Expr::Case(branches, otherwise) => {
                for (condition, value) in branches {
                    if is_true(&self.eval(condition)?) {
                        return self.eval(value);
                    }
                }
                match otherwise {
                    Some(value) => self.eval(value)?,
                    None => None,
                }
            }
            Expr::Exists(select) => truth(!self.select(select)?.0.is_empty()),
            Expr::Scalar(select) => {
                let rows = self.select(select)?.0;
                rows.into_iter().next().and_then(|mut row| row.remove(0))
            }
            Expr::Operator(name, left, right) => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                operate(name, left, right)?
            }
            Expr::Each {
                operator,
                left,
                array,
                all,
            } => {
                let left = self.eval(left)?;
                let items = match &**array {
                    Expr::Array(items) => self.eval_all(items)?,
                    other => elements(self.eval(other)?)?,
                };
                let mut hits = Vec::new();
                for item in items {
                    hits.push(is_true(&operate(operator, left.clone(), item)?));
                }
                let holds = match all {
                    true => hits.iter().all(|hit| *hit),
                    false => hits.iter().any(|hit| *hit),
                };
                truth(holds)
            }
            Expr::Array(_) => return Err(Failure::Unknown("an array".to_owned())),
            Expr::Not(inner) => self.eval(inner)?.and_then(|value| truth(value != "t")),
            Expr::IsNull(inner) => {
                let value = self.eval(inner)?;
                truth(value.is_none())
            }
        })
    }

    fn column(&self, source: Option<&str>, column: &str) -> Result<Value, Failure> {
        let sources = self.visible.iter().rev();
        let mut meant = sources.filter(|(name, _)| source.is_none_or(|own| own == name));
        let found = meant.find_map(|(_, row)| row.iter().find(|(name, _)| name == column));
        match found {
            Some((_, value)) => Ok(value.clone()),
            None => Err(Failure::Unknown(format!("the column {column}"))),
        }
    }

    fn aggregate(
        &mut self,
        name: &str,
        args: &[Expr],
        filter: Option<&Expr>,
    ) -> Result<Value, Failure> {
        let mut values = Vec::new();
        for visible in self.group.clone() {
            let outer = std::mem::replace(&mut self.visible, visible);
            let is_in = match filter {
                Some(filter) => is_true(&self.eval(filter)?),
                None => true,
            };
            if is_in {
                values.push(match args.first() {
                    Some(arg) => self.eval(arg)?,
                    None => Some(String::new()),
                });
            }
            self.visible = outer;
        }
        Ok(match name {
            "count" => Some(values.iter().flatten().count().to_string()),
            "sum" => {
                let numbers = values.iter().flatten();
                let numbers = numbers.filter_map(|number| number.parse::<u64>().ok());
                Some(numbers.sum::<u64>().to_string())
            }
            "bool_or" => Some(if values.iter().any(is_true) { "t" } else { "f" }.to_owned()),
            _ => {
                let texts: Vec<String> = values.into_iter().flatten().collect();
                (!texts.is_empty()).then(|| texts.join(","))
            }
        })
    }

    fn call(&mut self, name: &str, args: &[Value]) -> Result<Value, Failure> {
        let arg = |at: usize| args.get(at).cloned().flatten().unwrap_or_default();
        Ok(match name {
            "current_setting" => {
                let found = self.state.value(&arg(0)).map(str::to_owned);
                if found.is_none() && args.len() < 2 {
                    return Err(unrecognized(&arg(0)));
                }
                found
            }
            "set_config" => {
                let value = args.get(1).cloned().flatten();
                self.set_config(&arg(0), value.as_deref(), matches!(&*arg(2), "t" | "true"))?;
                self.state.value(&arg(0)).map(str::to_owned)
            }
            // The escapes of the bytes that occur in this world.
            "encode" => args[0].as_ref().map(|value| value.replace('\\', "\\\\")),
            "convert_to" | "lower" | "float8" | "quote_literal" | "text" => {
                let value = args.first().cloned().flatten();
                value.map(|value| match name {
                    "lower" => value.to_ascii_lowercase(),
                    _ => value,
                })
            }
            "coalesce" => args.iter().flatten().next().cloned(),
            "getdatabaseencoding" => Some("UTF8".to_owned()),
            "pg_my_temp_schema" => Some(TEMP_SCHEMA.to_owned()),
            "pg_backend_pid" => Some(PID.to_owned()),
            "session_user" | "current_user" => Some(self.facts.user.clone()),
            "strpos" => {
                let found = arg(0).find(&arg(1)).map_or(0, |at| at + 1);
                Some(found.to_string())
            }
            "length" | "octet_length" => {
                let value = args.first().cloned().flatten();
                value.map(|value| value.chars().count().to_string())
            }
            "starts_with" => Some(truth(arg(0).starts_with(&arg(1)))),
            "gen_random_uuid" | "uuid_hash" => Some("7".to_owned()),
            _ => return self.call_with_effect(name, args),
        })
    }

    /// Functions that change session state.
    fn call_with_effect(&mut self, name: &str, args: &[Value]) -> Result<Value, Failure> {
        let arg = |at: usize| args.get(at).cloned().flatten().unwrap_or_default();
        let nothing = Some(String::new());
        Ok(match name {
            "pg_advisory_lock_shared" => {
                self.state.lock(&arg(0));
                nothing
            }
            "pg_advisory_unlock_shared" => Some(truth(self.state.unlock(&arg(0)))),
            "pg_advisory_unlock_all" => {
                self.state.unlock_all();
                nothing
            }
            "nextval" => {
                let value = self.facts.next_value.to_string();
                self.state.remember(&arg(0), &value);
                Some(value)
            }
            "currval" => match self.state.sequence(&arg(0)) {
                Some(value) => Some(value.clone()),
                None => {
                    let what = format!("currval of sequence \"{}\" is not yet defined", arg(0));
                    return Err(Failure::Sql("55000", what));
                }
            },
            "lastval" => match self.state.last() {
                Some(value) => Some(value.clone()),
                None => {
                    let what = "lastval is not yet defined in this session".to_owned();
                    return Err(Failure::Sql("55000", what));
                }
            },
            "setseed" => {
                // A statement that the model has made itself belongs to no client.
                let seed = args[0].clone().filter(|seed| seed != RANDOM);
                self.state.set_seed(seed);
                nothing
            }
            _ if is_harmless(name) => nothing,
            _ => match effect_of_call(name) {
                Some(effect) => {
                    self.state.run(&effect.replace("$1", &arg(0)), self.facts)?;
                    nothing
                }
                None => return Err(Failure::Unknown(format!("the function {name}"))),
            },
        })
    }

    fn set_config(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<(), Failure> {
        let is_refused = value.is_some_and(super::super::is_refused) && name == "work_mem";
        if is_refused && self.facts.refuses {
            return Err(Failure::Sql("22023", super::super::REFUSED.to_owned()));
        }
        self.state.change(name, value, local)
    }
}

/// The pid of the session's own process.
const PID: &str = "1";
/// The OID of the session's schema of temporary objects.
const TEMP_SCHEMA: &str = "99";
/// Evaluates a calculation with a random number.
const RANDOM: &str = "random";

fn truth(truth: bool) -> String {
    if truth { "t" } else { "f" }.to_owned()
}

fn is_true(value: &Value) -> bool {
    matches!(value.as_deref(), Some("t" | "true" | "on"))
}

fn is_aggregate_name(name: &str) -> bool {
    matches!(name, "count" | "string_agg" | "bool_or" | "sum")
}

fn is_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::Call { name, args, .. } => is_aggregate_name(name) || args.iter().any(is_aggregate),
        Expr::Operator(_, left, right) => is_aggregate(left) || is_aggregate(right),
        Expr::Not(inner) | Expr::IsNull(inner) => is_aggregate(inner),
        _ => false,
    }
}

/// Returns the elements of an array in its text form: one dimension, quoted or not.
fn elements(array: Value) -> Result<Vec<Value>, Failure> {
    let text = array.unwrap_or_default();
    let unknown = || Failure::Unknown(format!("the array {text}"));
    let inner = text
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.ok_or_else(unknown)?.chars().peekable();
    let mut found = Vec::new();
    while rest.peek().is_some() {
        let mut item = String::new();
        let is_quoted = rest.next_if_eq(&'"').is_some();
        loop {
            match rest.next() {
                Some('"') if is_quoted => match rest.next() {
                    None | Some(',') => break,
                    Some(_) => return Err(unknown()),
                },
                None | Some(',') if !is_quoted => break,
                Some('\\') => item.push(rest.next().ok_or_else(unknown)?),
                Some('{' | '}' | '"') if !is_quoted => return Err(unknown()),
                Some(other) => item.push(other),
                None => return Err(unknown()),
            }
        }
        found.push(Some(item));
    }
    Ok(found)
}

fn operate(name: &str, left: Value, right: Value) -> Result<Value, Failure> {
    match name {
        "and" => return Ok(Some(truth(is_true(&left) && is_true(&right)))),
        "or" => return Ok(Some(truth(is_true(&left) || is_true(&right)))),
        "/" => return Ok(Some(RANDOM.to_owned())),
        _ => {}
    }
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(None);
    };
    let found = match name {
        "=" => left == right,
        "<>" => left != right,
        "||" => return Ok(Some(left + &right)),
        ">" => left.parse::<i64>().ok() > right.parse::<i64>().ok(),
        "<" => left.parse::<i64>().ok() < right.parse::<i64>().ok(),
        other => return Err(Failure::Unknown(format!("the operator {other}"))),
    };
    Ok(Some(truth(found)))
}

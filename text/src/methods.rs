//! Methods, filters and tests of Python and Jinja that the template engine lacks or has otherwise.

use minijinja::value::{from_args, Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat;

pub fn add_to(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(call_method);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("sequence", |value: Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment.add_test("iterable", |value: Value| {
        let kinds = [ValueKind::String, ValueKind::Seq, ValueKind::Map, ValueKind::Iterable];
        kinds.contains(&value.kind())
    });
}

fn length(value: Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        kind => value.len().ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, format!("a value of kind {kind} has no length"))
        }),
    }
}

fn call_method(
    state: &State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = call_text_method(text, method, args)? {
            return Ok(result);
        }
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

fn call_text_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, found, tail) = match text.split_once(separator) {
                Some((head, tail)) => (head, separator, tail),
                None => (text, "", ""),
            };
            Value::from_iter([head, found, tail].map(Value::from))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (head, found, tail) = match text.rsplit_once(separator) {
                Some((head, tail)) => (head, separator, tail),
                None => ("", "", text),
            };
            Value::from_iter([head, found, tail].map(Value::from))
        }
        "split" | "rsplit" => match split(text, method == "rsplit", args)? {
            Some(parts) => Value::from(parts),
            None => return Ok(None),
        },
        "find" | "index" => {
            let (needle,): (&str,) = from_args(args)?;
            match text.find(needle) {
                Some(at) => Value::from(text[..at].chars().count()),
                None if method == "find" => Value::from(-1),
                None => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
            }
        }
        "count" => {
            let (needle,): (&str,) = from_args(args)?;
            match needle.is_empty() {
                true => Value::from(text.chars().count() + 1),
                false => Value::from(text.matches(needle).count()),
            }
        }
        _ => return Ok(None),
    }))
}

/// Splits at a separator, at most `maxsplit` times; None if at white space without a limit.
fn split(text: &str, from_end: bool, args: &[Value]) -> Result<Option<Vec<String>>, Error> {
    let (separator, limit, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(options.get::<Option<&str>>("sep")?);
    let limit = limit.or(options.get("maxsplit")?).and_then(|limit| usize::try_from(limit).ok());
    options.assert_all_used()?;
    let owned = |parts: Vec<&str>| parts.into_iter().map(str::to_owned).collect();
    let Some(separator) = separator else {
        return match limit {
            None => Ok(None),
            Some(_) => {
                let message = "split at white space with a limit is not supported";
                Err(Error::new(ErrorKind::InvalidOperation, message))
            }
        };
    };
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let count = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let parts = match from_end {
        false => text.splitn(count, separator).collect(),
        true => {
            let mut parts: Vec<&str> = text.rsplitn(count, separator).collect();
            parts.reverse();
            parts
        }
    };
    Ok(Some(owned(parts)))
}

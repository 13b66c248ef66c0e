//! Values as Python writes them, where Jinja templates see the difference.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Values are written recursively.
const MAX_DEPTH: usize = 1000;
/// Of one JSON text, whose indentation may take far more bytes than the values.
const MAX_JSON_BYTES: usize = 16 << 20;

fn check_depth(depth: usize) -> Result<(), Error> {
    match depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply")),
    }
}

/// `str(value)`.
pub fn to_str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => repr(value),
    }
}

/// `repr(value)`; empty for an undefined value.
pub fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(&mut out, value, 0)?;
    Ok(out)
}

fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    check_depth(depth)?;
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => write_quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(out, &key, depth + 1)?;
                out.push_str(": ");
                write_repr(out, &value.get_item(&key).unwrap_or_default(), depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_repr(out, &item, depth + 1)?;
            }
            out.push(']');
        }
        _ => _ = write!(out, "{value}"),
    }
    Ok(())
}

fn write_number(out: &mut String, value: &Value) {
    match value.is_integer() {
        true => _ = write!(out, "{value}"),
        false => write_float(out, f64::try_from(value.clone()).unwrap_or(f64::NAN)),
    }
}

/// The shortest digits that give the same number; an exponent outside 1e-4..1e16.
fn write_float(out: &mut String, number: f64) {
    if number.is_nan() {
        out.push_str("nan");
    } else if number.is_infinite() {
        out.push_str(if number > 0.0 { "inf" } else { "-inf" });
    } else if number != 0.0 && !(1e-4..1e16).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    } else {
        _ = write!(out, "{number:?}");
    }
}

fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => _ = write!(out, "\\{c}"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => _ = write!(out, "\\x{:02x}", c as u32),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// The arguments of `json.dumps` that templates use.
#[derive(Default)]
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    pub indent: Option<usize>,
    pub separators: Option<(String, String)>,
}

/// `json.dumps(value)`. Fails on a value that JSON cannot express.
pub fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    JsonWriter::new(&mut out, style).write(value, 0)?;
    Ok(out)
}

struct JsonWriter<'a> {
    out: &'a mut String,
    style: &'a JsonStyle,
    item: &'a str,
    key: &'a str,
}

impl<'a> JsonWriter<'a> {
    fn new(out: &'a mut String, style: &'a JsonStyle) -> Self {
        let (item, key) = match &style.separators {
            Some((item, key)) => (item.as_str(), key.as_str()),
            None if style.indent.is_some() => (",", ": "),
            None => (", ", ": "),
        };
        Self { out, style, item, key }
    }

    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        check_depth(depth)?;
        if self.out.len() > MAX_JSON_BYTES {
            let message = format!("a JSON text exceeds {MAX_JSON_BYTES} bytes");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.write_number(value),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter().into_iter().flatten().collect();
                if self.style.sort_keys {
                    keys.sort_by_key(|key| key_text(key).unwrap_or_default());
                }
                self.begin('{');
                for (i, key) in keys.iter().enumerate() {
                    self.separate(i, depth + 1);
                    self.write_string(&key_text(key)?);
                    self.out.push_str(self.key);
                    self.write(&value.get_item(key).unwrap_or_default(), depth + 1)?;
                }
                self.end('}', keys.is_empty(), depth);
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter().into_iter().flatten().collect();
                self.begin('[');
                for (i, item) in items.iter().enumerate() {
                    self.separate(i, depth + 1);
                    self.write(item, depth + 1)?;
                }
                self.end(']', items.is_empty(), depth);
            }
            kind => {
                let message = format!("a value of kind {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn begin(&mut self, bracket: char) {
        self.out.push(bracket);
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(self.item);
        }
        self.new_line(depth);
    }

    fn end(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn write_number(&mut self, value: &Value) {
        let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
        match number.is_finite() || value.is_integer() {
            true => write_number(self.out, value),
            false if number.is_nan() => self.out.push_str("NaN"),
            false => self.out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    }

    fn write_string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // A noncharacter marks text (chat.rs), so it stays as it is.
                '\u{fdd0}'..='\u{fdef}' => self.out.push(c),
                c if (c as u32) < 0x20 || (self.style.ensure_ascii && !c.is_ascii()) => {
                    let mut units = [0u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A key as `json.dumps` writes it: strings as they are, others as JSON.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(key.is_true().to_string()),
        _ => repr(key),
    }
}

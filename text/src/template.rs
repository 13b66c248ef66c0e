//! Chat templates, rendered as transformers renders them.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use serde_json::{json, Map, Value as Json};

use crate::methods;
use crate::python::{self, JsonStyle};

const NAME: &str = "chat_template";
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Bounds of one rendering.
#[derive(Clone, Copy)]
pub struct RenderLimits {
    /// Instructions of the template engine.
    pub fuel: u64,
    pub output_bytes: usize,
}

pub struct ChatTemplate {
    environment: Environment<'static>,
}

/// The variables of one rendering: an object with `messages`, `tools`, `add_generation_prompt`,
/// special tokens and the caller's own.
pub type Variables = Map<String, Json>;

impl ChatTemplate {
    /// Checks the syntax. The error names the line.
    pub fn parse(source: &str) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_formatter(|out: &mut Output, _: &State, value: &Value| {
            out.write_str(&python::to_str(value)?).map_err(Error::from)
        });
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", |value: Value| python::to_str(&value));
        methods::add_to(&mut environment);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message).with_source(Raised))
        });
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        environment
            .add_template_owned(NAME, without_generation_tags(&source))
            .map_err(|error| describe(&error))?;
        Ok(Self { environment })
    }

    /// Renders the messages. `continue_final` ends the text within the last message, so that a
    /// model continues it. `now` is what `strftime_now` formats.
    pub fn render(
        &self,
        mut variables: Variables,
        continue_final: bool,
        now: chrono::NaiveDateTime,
        limits: RenderLimits,
    ) -> Result<String, String> {
        messages(&mut variables).for_each(|message| message.retain(|_, value| !value.is_null()));
        alias_reasoning(&mut variables);
        let final_text = match continue_final {
            true => Some(tag_final_message(&mut variables)?),
            false => None,
        };
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(limits.fuel));
        environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        let template = environment.get_template(NAME).map_err(|error| describe(&error))?;
        let mut out = BoundedOutput { bytes: Vec::new(), limit: limits.output_bytes };
        template
            .render_captured_to(Value::from_serialize(&variables), &mut out)
            .map_err(|error| describe(&error))?;
        let text = String::from_utf8(out.bytes).map_err(|error| error.to_string())?;
        match final_text {
            Some(final_text) => cut_after_final_message(text, &final_text),
            None => Ok(text),
        }
    }
}

/// Source of the errors of raise_exception: their message is the template's own.
#[derive(Debug)]
struct Raised;
impl std::fmt::Display for Raised {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
impl std::error::Error for Raised {}

fn describe(error: &Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(inner) = at.downcast_ref::<Error>() {
            let raised = std::error::Error::source(inner).is_some_and(|source| source.is::<Raised>());
            if raised {
                return inner.detail().unwrap_or_default().to_owned();
            }
        }
        cause = at.source();
    }
    let line = error.line().map_or(String::new(), |line| format!("line {line}: "));
    if let Some(cause) = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>()) {
        return cause.to_string();
    }
    match error.kind() {
        ErrorKind::OutOfFuel => format!("{line}the template takes too many steps"),
        kind => match error.detail() {
            Some(detail) => format!("{line}{kind}: {detail}"),
            None => format!("{line}{kind}"),
        },
    }
}

/// transformers' `{% generation %}` block marks the assistant's tokens and renders its content.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(end) = rest[at..].find("%}").map(|end| at + end) else { break };
        let tag = &rest[at + 2..end];
        let bare = tag.strip_prefix('-').unwrap_or(tag);
        let bare = bare.strip_suffix('-').unwrap_or(bare);
        let replaced = match bare.trim() {
            "generation" => tag.replacen("generation", "if true", 1),
            "endgeneration" => tag.replacen("endgeneration", "endif", 1),
            _ => tag.to_owned(),
        };
        out.push_str(&rest[..at + 2]);
        out.push_str(&replaced);
        rest = &rest[end..];
    }
    out + rest
}

fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let style = JsonStyle {
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent: options.get("indent")?,
        separators: match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
            Some([item, key]) => Some((item.clone(), key.clone())),
            Some(_) => {
                let message = "separators must be two strings";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
            None => None,
        },
    };
    options.assert_all_used()?;
    python::to_json(value, &style).map(Value::from)
}

fn strftime(now: chrono::NaiveDateTime, format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let mut text = String::new();
    write!(text, "{}", now.format(format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now: unknown format {format:?}"))
    })?;
    Ok(text)
}

struct BoundedOutput {
    bytes: Vec<u8>,
    limit: usize,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > self.limit {
            let message = format!("the text exceeds {} bytes", self.limit);
            return Err(io::Error::other(message));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn messages(variables: &mut Variables) -> impl Iterator<Item = &mut Map<String, Json>> {
    let messages = variables.get_mut("messages").and_then(Json::as_array_mut);
    messages.into_iter().flatten().filter_map(Json::as_object_mut)
}

/// What a string of a conversation is.
#[derive(Clone, Copy)]
pub enum Text {
    Role,
    Other,
}

/// Calls `edit` on every string in the messages, tools and documents, names of members included.
pub fn edit_texts(variables: &mut Variables, edit: &dyn Fn(&mut String, Text)) {
    fn visit(value: &mut Json, edit: &dyn Fn(&mut String, Text)) {
        match value {
            Json::String(text) => edit(text, Text::Other),
            Json::Array(items) => items.iter_mut().for_each(|item| visit(item, edit)),
            Json::Object(fields) => visit_object(fields, edit),
            _ => {}
        }
    }
    fn visit_object(fields: &mut Map<String, Json>, edit: &dyn Fn(&mut String, Text)) {
        let edited = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
            match &mut value {
                Json::String(role) if name == "role" => edit(role, Text::Role),
                value => visit(value, edit),
            }
            edit(&mut name, Text::Other);
            (name, value)
        });
        *fields = edited.collect();
    }
    for name in ["messages", "tools", "documents"] {
        if let Some(value) = variables.get_mut(name) {
            visit(value, edit);
        }
    }
}

/// Templates read a message's reasoning under different names.
fn alias_reasoning(variables: &mut Variables) {
    for message in messages(variables) {
        let found = REASONING_FIELDS.iter().find_map(|name| message.get(*name));
        if let Some(reasoning) = found.cloned() {
            if !message.contains_key("thinking") {
                message.insert("thinking".to_owned(), reasoning.clone());
            }
            message.insert("reasoning_content".to_owned(), reasoning);
        }
    }
}

/// Appends the tag to the text of the last message and returns that text.
fn tag_final_message(variables: &mut Variables) -> Result<String, String> {
    let missing = || "the last message has no text to continue".to_owned();
    let content = messages(variables).last().and_then(|message| message.get_mut("content"));
    let text = match content.ok_or_else(missing)? {
        Json::Array(parts) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        content => Some(content),
    };
    let text = text.filter(|text| text.is_string()).ok_or_else(missing)?;
    let original = text.as_str().unwrap_or_default().to_owned();
    *text = json!(format!("{original}{CONTINUE_TAG}"));
    Ok(original)
}

fn cut_after_final_message(mut text: String, final_text: &str) -> Result<String, String> {
    let tag = text.rfind(CONTINUE_TAG.trim_end());
    let (Some(at), true) = (tag, text.contains(final_text.trim())) else {
        return Err("the template leaves out the text of the last message, which is to be continued".into());
    };
    let kept = text[at..].starts_with(CONTINUE_TAG);
    text.truncate(at);
    if !kept {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}
